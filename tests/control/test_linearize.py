"""Linear models of a control step, beside finite differences of `env.step`."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients

import eqsim
from eqsim import kinematics, State
from eqsim.control import linearize_step


ANT = eqsim.make("ant", include_cfrc_ext_in_observation=False)
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
    "env, height, lowered",
    (
        pytest.param(SHORT, 1, 0.05, id="short"),
        pytest.param(ANT, 2, 0.3, id="ant", marks=pytest.mark.slow),
    ),
)
def test_is_the_derivative_of_a_control_step(env, height, lowered):
    """Of a batch of states under `filter_vmap`: each has its own."""
    batch = [low(env, height, lowered, seed) for seed in range(2)]
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


FREE = eqsim.load_mjcf("""
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody><body><freejoint/><geom type="box" size=".1 .2 .3"/></body></worldbody>
</mujoco>""")


# Compiles derivatives of third order.
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
    state, action = low(SHORT, 1, 0.05)
    with pytest.raises(ValueError, match=r"`action` must have shape \(nu,\) = \(1,\)"):
        eqsim.linearize(SHORT, state, action[:0])
    states = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    with pytest.raises(ValueError, match="eqx.filter_vmap"):
        eqsim.linearize(SHORT, states, action)
    limited = eqsim.TimeLimit(SHORT, 5)
    with pytest.raises(TypeError, match="TimeLimitState.*Take the environment inside"):
        # Without the check of types, which tests have and users do not.
        inspect.unwrap(eqsim.linearize)(limited, limited.reset(jr.key(0))[0], action)


class _Parts(eqsim.envs.PointMass):
    """Observes a dictionary of a matrix and a vector."""

    def observe(self, state, action):
        return {"q": state.q, "a": jnp.stack([state.qd, state.q])}


def test_parts_of_observations_are_joined():
    env = _Parts()
    state, action = env.reset(jr.key(0))[0], jnp.zeros(1)
    A, B, C, D = eqsim.linearize(env, state, action)
    assert C.shape == (3, 2) and D.shape == (3, 1)
    np.testing.assert_allclose(C, A[jnp.array([1, 0, 0])])
    np.testing.assert_allclose(D, B[jnp.array([1, 0, 0])])
