"""Linear models of a control step, beside finite differences of `env.step`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from jax.flatten_util import ravel_pytree
from parity.reference import quick_compile

import eqsim
from eqsim import kinematics, State
from eqsim.control import linearize_step


ANT = eqsim.make("ant", include_cfrc_ext_in_observation=False)
HOPPER = eqsim.make("hopper")
# A hopper of two links, of which one can touch the ground.
SHORT = eqsim.make(
    "hopper",
    sys=eqsim.load_mjcf("""
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 .3"><joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1"/><joint axis="0 1 0" damping=".1"/>
      <geom type="box" size=".1 .1 .05" contype="0" conaffinity="0"/>
      <body pos="0 0 -.1"><joint name="hip" axis="0 1 0" damping=".1"/>
        <geom type="sphere" size=".05" pos="0 0 -.15"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="hip" gear="5"/></actuator>
</mujoco>"""),
)
STEP = eqx.filter_jit(lambda env, state, action: env.step(state, action))


def low(env, height, lowered, seed=0):
    """Tilted, near the ground, moving; and an action."""
    key_q, key_v, key_u = jr.split(jr.key(seed), 3)
    sys = env.sys
    q = sys.joints.ref.at[height].add(-lowered)
    turn = 0.2 * jr.normal(key_q, (sys.nv,)).at[height].set(0.0)
    q = kinematics.integrate(sys, q, turn)
    state = env.pipeline.init(sys, q, 0.5 * jr.normal(key_v, (sys.nv,)))
    return state, 0.5 * jr.normal(key_u, (sys.nu,))


def ant_state(seed=0):
    return low(ANT, 2, 0.3, seed)


def hopper_state(seed=0):
    return low(HOPPER, 1, 0.1, seed)


def short_state(seed=0):
    return low(SHORT, 1, 0.05, seed)


def differences(env, state, action, eps=1e-6):
    """The four matrices by central differences, from the definition."""
    sys = env.sys
    end, _ = STEP(env, state, action)
    sizes = np.cumsum([sys.nv, sys.nv, sys.na])
    columns = []
    for row in np.eye(sizes[-1] + sys.nu):
        sides = []
        for sign in (1, -1):
            shift, rate, act, push = np.split(sign * eps * row, sizes)
            q = kinematics.integrate(sys, state.q, jnp.asarray(shift))
            moved = State(q, state.qd + rate, state.act + act)
            new, timestep = STEP(env, moved, action + push)
            change = kinematics.difference(sys, end.q, new.q)
            sides.append(np.concatenate([change, new.qd, new.act, timestep.obs]))
        columns.append((sides[0] - sides[1]) / (2 * eps))
    full, nx = np.stack(columns, 1), sizes[-1]
    return full[:nx, :nx], full[:nx, nx:], full[nx:, :nx], full[nx:, nx:]


@pytest.mark.parametrize(
    "env, draw",
    (
        pytest.param(SHORT, short_state, id="short"),
        pytest.param(HOPPER, hopper_state, id="hopper", marks=pytest.mark.slow),
        pytest.param(ANT, ant_state, id="ant", marks=pytest.mark.slow),
    ),
)
def test_is_the_derivative_of_a_control_step(env, draw):
    """Of a batch of states under `filter_vmap`: each has its own."""
    batch = [draw(seed) for seed in range(2)]
    states, actions = jax.tree.map(lambda *x: jnp.stack(x), *batch)
    many = eqx.filter_vmap(eqsim.linearize, in_axes=(None, 0, 0))
    found = eqx.filter_jit(many)(env, states, actions)
    for k, (state, action) in enumerate(batch):
        expected = differences(env, state, action)
        for name, got, want in zip(found._fields, found, expected, strict=True):
            assert got[k].shape == want.shape
            largest = np.max(np.abs(want))
            np.testing.assert_allclose(got[k], want, rtol=1e-5, atol=2e-6 * largest)
            assert np.count_nonzero(got[k]) > 0, name
    touching = eqx.filter_jit(env.pipeline.contacts)
    assert any(np.any(touching(env.sys, *x).force[:, 2] != 0.0) for x in batch)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ("generalized", "spring", "positional"))
def test_jacobian_of_the_ant(pipeline):
    """`jax.jacobian` of coordinates and observation, as a user first tries it."""
    hidden = {"include_cfrc_ext_in_observation": False}
    env = eqsim.make("ant", pipeline=pipeline, **hidden)
    state, action = ant_state(1)
    options = {"compiler_options": quick_compile()}
    step = jax.jit(lambda *args: env.step(*args), **options)
    found = [
        jax.jit(jax.jacobian(seen, argnums=(0, 1)), **options)(state, action)
        for seen in (
            lambda s, a: env.step(s, a)[0].q,
            lambda s, a: env.step(s, a)[1].obs,
        )
    ]
    flat, build = ravel_pytree((state, action))
    for k in range(0, flat.size, 2):
        sides = []
        for sign in (1, -1):
            new, timestep = step(*build(flat.at[k].add(sign * 1e-6)))
            sides.append((new.q, timestep.obs))
        for jacobian, one, two in zip(found, *sides, strict=True):
            got = columns(jacobian)[:, k]
            slope = (one - two) / 2e-6
            np.testing.assert_allclose(got, slope, rtol=1e-5, atol=1e-5)
            # Where it is in the plane of the ground is not observed.
            assert np.any(got != 0) or (k < 2 and got.size == timestep.obs.size)
    assert all(np.all(np.isfinite(columns(jacobian))) for jacobian in found)


def columns(jacobian):
    """A Jacobian by `(state, action)` as one matrix."""
    return np.concatenate([x for x in jax.tree.leaves(jacobian)], axis=1)


# A cart with a pole that meets neither limits nor the ground: nothing is solved for.
CART = eqsim.load_mjcf("""
<mujoco>
  <option timestep="0.02" integrator="RK4"/>
  <default><geom type="capsule" size=".05" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><joint name="rail" type="slide" axis="1 0 0"/><geom fromto="-.2 0 0 .2 0 0"/>
      <body><joint axis="0 1 0" damping=".1"/><geom fromto="0 0 0 0 0 .6"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="rail" gear="100"/></actuator>
</mujoco>""")


def test_all_ways_to_a_jacobian():
    """Forward and reverse mode, of arrays and of modules."""
    env = eqsim.make("inverted_pendulum", sys=CART)
    state = env.pipeline.init(env.sys, jnp.array([0.1, 0.2]), jnp.array([0.3, -0.4]))
    obs = lambda action: env.step(state, action)[1].obs
    both = lambda u: (jax.jacfwd(obs)(u), eqx.filter_jacrev(obs)(u))
    forward, reverse = jax.jit(both)(jnp.array([0.5]))
    assert np.any(forward != 0)
    assert tree_allclose(reverse, forward, rtol=1e-9, atol=1e-12)


FREE = eqsim.load_mjcf("""
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody><body><freejoint/><geom type="box" size=".1 .2 .3"/></body></worldbody>
</mujoco>""")


@pytest.mark.slow
def test_can_be_differentiated():
    """The derivative of a linear model, in which the point itself turns."""
    nothing, q = jnp.zeros(0), FREE.joints.ref

    def turned(ang):
        qd = jnp.concatenate([jnp.zeros(3), ang])
        state = State(q, qd, nothing)
        return linearize_step(eqsim.Generalized(), FREE, state, nothing)[0][3:6]

    check_gradients(turned, jnp.array([0.3, -0.2, 0.5]))


def test_errors():
    state, action = ant_state()
    with pytest.raises(ValueError, match=r"`action` must have shape \(nu,\) = \(8,\)"):
        eqsim.linearize(ANT, state, action[:3])
    states = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    with pytest.raises(ValueError, match="eqx.filter_vmap"):
        eqsim.linearize(ANT, states, action)
