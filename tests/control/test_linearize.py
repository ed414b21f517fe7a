"""Linear models of a control step, beside finite differences of `env.step`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose

import eqsim
from eqsim import kinematics, State
from eqsim.control import linearize_step


ANT = eqsim.make("ant")
STEP = eqx.filter_jit(lambda env, state, action: env.step(state, action))


def ant_state(seed=0):
    """Tilted, near the ground, moving; and an action."""
    key_q, key_v, key_u = jr.split(jr.key(seed), 3)
    sys = ANT.sys
    q = sys.joints.ref.at[2].set(0.45)
    q = kinematics.integrate(sys, q, 0.2 * jr.normal(key_q, (sys.nv,)).at[2].set(0.0))
    state = ANT.pipeline.init(sys, q, 0.5 * jr.normal(key_v, (sys.nv,)))
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


def test_is_the_derivative_of_a_control_step():
    """Of a batch of states under `filter_vmap`: each has its own."""
    batch = [ant_state(seed) for seed in range(2)]
    states, actions = jax.tree.map(lambda *x: jnp.stack(x), *batch)
    many = eqx.filter_vmap(eqsim.linearize, in_axes=(None, 0, 0))
    found = eqx.filter_jit(many)(ANT, states, actions)
    for k, (state, action) in enumerate(batch):
        expected = differences(ANT, state, action)
        for name, got, want in zip(found._fields, found, expected, strict=True):
            assert got[k].shape == want.shape
            largest = np.max(np.abs(want))
            np.testing.assert_allclose(got[k], want, rtol=1e-5, atol=2e-6 * largest)
            assert np.count_nonzero(got[k]) > 0, name
    contacts = ANT.pipeline.contacts(ANT.sys, *batch[0])
    assert np.any(contacts.force[:, 2] != 0.0)


@pytest.mark.slow
def test_jacobian_of_the_ant():
    """`jax.jacobian` of coordinates and observation, as a user first tries it."""
    state, action = ant_state(1)

    def step(state, action):
        new, timestep = ANT.step(state, action)
        return new.q, timestep.obs

    found = jax.jit(jax.jacobian(step, argnums=(0, 1)))(state, action)
    eps, sys = 1e-6, ANT.sys
    moves = [
        (lambda d: State(state.q + d, state.qd, state.act), sys.nq, "q"),
        (lambda d: State(state.q, state.qd + d, state.act), sys.nv, "qd"),
    ]
    for moved, size, name in moves:
        for k in range(0, size, 3):
            shift = eps * jnp.eye(size)[k]
            (new1, seen1), (new0, seen0) = (
                STEP(ANT, moved(sign * shift), action) for sign in (1, -1)
            )
            slopes = (new1.q - new0.q), (seen1.obs - seen0.obs)
            for (by_state, by_action), slope in zip(found, slopes, strict=True):
                got = getattr(by_state, name)[:, k]
                np.testing.assert_allclose(got, slope / (2 * eps), rtol=1e-5, atol=1e-5)
                assert np.any(got != 0) and np.all(np.isfinite(by_action))
                assert np.any(by_action != 0)


def test_all_ways_to_a_jacobian():
    """Forward and reverse mode, of arrays and of modules."""
    env = eqsim.make("inverted_pendulum")
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
