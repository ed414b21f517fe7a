"""Derivatives of a step: both modes beside central differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from eqsim_mjx import Mjx

import eqsim


# A ball that rests on the ground, with a rod on a spherical joint that a servo holds, a
# spring at rest, a slide at its limit, and one with dry friction that sticks.
CORNERS = """
<mujoco>
  <option timestep="0.005"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1" contype="1" conaffinity="1"/>
    <body pos="0 0 .0995"><freejoint/>
      <geom size=".1" mass="1" contype="1" conaffinity="1"/>
      <body><joint name="ball" type="ball" stiffness="2" damping=".1"/>
        <geom type="capsule" fromto="0 0 0 .1 .05 .2" size=".02"/></body>
    </body>
    <body pos="1 0 1"><joint name="slide" type="slide" axis="1 0 0" range="-.1 0"
        limited="true"/>
      <geom size=".1"/>
      <body><joint name="stuck" type="hinge" axis="0 1 0" frictionloss="5"/>
        <geom type="capsule" fromto="0 0 0 .2 0 0" size=".02"/></body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="slide"/>
    <position joint="ball" kp="3" gear="1 2 0"/>
  </actuator>
</mujoco>"""


def step(sys, state, ctrl):
    new = Mjx().step(sys, state, ctrl)
    return jnp.concatenate([new.q, new.qd])


def check(fn, x, eps=1e-6, rtol=2e-6):
    """Forward mode, reverse mode and differences give one matrix; returns it."""
    fn = jax.jit(fn)
    forward, reverse = jax.jit(jax.jacfwd(fn))(x), jax.jit(jax.jacrev(fn))(x)
    size = eps * jnp.maximum(1.0, jnp.max(jnp.abs(x)))
    moves = size * jnp.eye(x.size)
    column = lambda e: (fn(x + e) - fn(x - e)) / (2 * size)
    expected = np.stack([column(e) for e in moves], axis=1)
    bound = rtol * (1.0 + np.max(np.abs(expected)))
    assert np.max(np.abs(forward - expected)) < bound
    assert np.max(np.abs(reverse - expected)) < bound
    return expected


@pytest.mark.parametrize("part", ["q", "qd", "ctrl", "mass"])
def test_at_rest_in_contact_and_at_limits(part):
    """Where every other derivative of MJX is zero or none: at rest, with neutral
    rotations, touching, at a limit, and stuck by dry friction."""
    sys = eqsim.load_mjcf(CORNERS)
    state = Mjx().init(sys, sys.joints.ref.at[-2].set(1e-4))
    ctrl = jnp.array([0.5, 0.0])
    if part == "mass":
        edit = lambda m: eqx.tree_at(lambda s: s.links.mass, sys, m)
        matrix = check(lambda m: step(edit(m), state, ctrl), sys.links.mass)
    elif part == "ctrl":
        matrix = check(lambda u: step(sys, state, u), ctrl)
    else:
        where = lambda s: vars(s)[part]
        edit = lambda x: eqx.tree_at(where, state, x)
        matrix = check(lambda x: step(sys, edit(x), ctrl), where(state))
    # Turning the ball, or the rod, turns it: derivatives that MJX itself has as zero.
    assert part != "qd" or np.allclose(matrix[4:7, 3:6], 0.0025 * np.eye(3), rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("height", [0.75, 0.5], ids=["in the air", "on the ground"])
def test_ant(models, height):
    """All of `q`, `qd`, the control, and the masses."""
    sys = eqsim.load_mjcf(models / "ant.xml")
    rng = np.random.default_rng(1)
    q = sys.joints.ref.at[2].set(height).at[7:].add(0.1 * rng.normal(size=8))
    state = Mjx().init(sys, q, jnp.asarray(rng.normal(size=sys.nv)))
    sizes = sys.nq, sys.nv, sys.nu, sys.nlink

    def moved(x):
        q, qd, ctrl, mass = jnp.split(x, np.cumsum(sizes)[:-1])
        new = eqx.tree_at(lambda s: (s.q, s.qd), state, (q, qd))
        return step(eqx.tree_at(lambda s: s.links.mass, sys, mass), new, ctrl)

    ctrl = jnp.asarray(rng.normal(size=sys.nu))
    x = jnp.concatenate([state.q, state.qd, ctrl, sys.links.mass])
    matrix = check(moved, x)
    # No column is zero, but those of where it stands: `q'` does depend on `q` and `qd`.
    assert np.all(np.max(np.abs(matrix), axis=0) > 1e-9)


def test_through_a_rollout():
    """Reverse mode through a loop of steps is that of the closed form: see
    `eqsim.envs.Fast`."""
    env = eqsim.make("fast", pipeline=Mjx())
    sys, pipeline = env.sys, env.pipeline

    def end(mass):
        robot = eqx.tree_at(lambda s: s.links.mass, sys, mass)
        push = lambda state, _: (pipeline.step(robot, state, jnp.ones(1)), None)
        return eqsim.scan(push, pipeline.init(robot), length=4)[0].qd[0]

    slope = jax.grad(end)(jnp.array([2.0]))
    assert jnp.allclose(slope, -4 * 0.1 * 3.0 / 2.0**2)
