"""Derivatives of a step: both modes beside central differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from eqsim_mjx import Mjx

import eqsim


# A ball that rests on the ground, with a rod on a spherical joint that an actuator holds, a
# spring at rest, a slide at its limit, and one with dry friction that sticks.
CORNERS = """
<mujoco>
  <option timestep="0.005"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1" contype="1" conaffinity="1"/>
    <body pos="0 0 .0997"><freejoint/>
      <geom size=".1" mass="1" contype="1" conaffinity="1"/>
      <body><joint name="ball" type="ball" stiffness="2" damping=".001"/>
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
    <general joint="ball" biastype="affine" biasprm="0 -3 0" gear="1 2 0"/>
  </actuator>
</mujoco>"""


def everything(sys, state, ctrl):
    """A step as a function of `q`, `qd`, the control and all masses, in one vector; and
    that vector."""
    parts = (state.q, state.qd, ctrl, sys.links.mass)
    cuts = np.cumsum([x.size for x in parts])[:-1]

    def step(x):
        q, qd, ctrl, mass = jnp.split(x, cuts)
        robot = eqx.tree_at(lambda s: s.links.mass, sys, mass)
        start = eqx.tree_at(lambda s: (s.q, s.qd), state, (q, qd))
        new = Mjx().step(robot, start, ctrl)
        return jnp.concatenate([new.q, new.qd])

    return step, jnp.concatenate(parts)


def check(fn, x, eps=1e-7, rtol=2e-6):
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


def test_at_rest_in_contact_and_at_limits():
    """Where a derivative of MJX by itself is zero or none: at rest, with neutral
    rotations, touching, at a limit, and stuck by dry friction."""
    sys = eqsim.load_mjcf(CORNERS)
    state = Mjx().init(sys, sys.joints.ref.at[-2].set(1e-4))
    step, x = everything(sys, state, jnp.array([0.5, 0.0]))
    matrix = check(step, x)
    turns = matrix[8:11, sys.nq + 6 : sys.nq + 9]
    assert np.all(np.diagonal(turns) > 0.2 * float(sys.dt))


@pytest.mark.slow
@pytest.mark.parametrize("touches", [False, True], ids=["in the air", "on the ground"])
def test_ant(models, touches):
    """All of `q`, `qd`, the control, and the masses."""
    sys, rng = eqsim.load_mjcf(models / "ant.xml"), np.random.default_rng(1)
    legs = jnp.array([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])
    q = sys.joints.ref.at[7:].set(legs + 0.1 * rng.normal(size=8))
    q = q.at[2].set(2.0).at[3:7].set(jnp.array([0.9, 0.1, -0.3, 0.3]))
    if touches:
        low = q.at[2].set(0.1)
        found = Mjx().contacts(sys, Mjx().init(sys, low), jnp.zeros(sys.nu))
        q = low.at[2].add(-0.0107 - found.dist[0])
    state = Mjx().init(sys, q, jnp.asarray(rng.normal(size=sys.nv)))
    ctrl = jnp.asarray(rng.uniform(-0.9, 0.9, sys.nu))
    touching = Mjx().contacts(sys, state, ctrl).force
    assert bool(jnp.any(touching != 0.0)) is touches
    step, x = everything(sys, state, ctrl)
    matrix = check(step, x)
    # No column is zero: `q'` and `qd'` depend on `q` and `qd`.
    assert np.all(np.max(np.abs(matrix), axis=0) > 1e-9)


def test_through_a_rollout():
    """Reverse mode through a loop of steps is that of the closed form: see
    `eqsim.envs.PointMass`."""
    env = eqsim.make("point_mass", pipeline=Mjx())
    sys, pipeline = env.sys, env.pipeline

    def end(mass):
        robot = eqx.tree_at(lambda s: s.links.mass, sys, mass)
        push = lambda state, _: (pipeline.step(robot, state, jnp.ones(1)), None)
        return eqsim.scan(push, pipeline.init(robot), length=4)[0].qd[0]

    slope = jax.jit(jax.grad(end))(jnp.array([2.0]))
    assert jnp.allclose(slope, -4 * 0.1 * 3.0 / 2.0**2)
