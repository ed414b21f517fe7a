"""Springs, rewards and ends of the linear-quadratic regulator."""

import eqsim_dmc
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

import eqsim


pytest.importorskip("dm_control")

from _dm_control import Theirs


@pytest.mark.parametrize("name", ["dmc_lqr_lqr_2_1", "dmc_lqr_lqr_6_2"])
def test_springs(name):
    """A seed gives the springs that it gives in the suite, and others than another one."""
    drawn = []
    for seed in (0, 3, 123456):
        sys, model = eqsim.make(name, seed=seed).sys, Theirs(name, seed).model
        assert sys.joints.names == tuple(f"joint_{k}" for k in range(model.njnt))
        np.testing.assert_allclose(sys.joints.stiffness, model.jnt_stiffness, 1e-12)
        drawn.append(np.asarray(sys.joints.stiffness))
    assert len(np.unique(drawn)) == 3 * sys.nv
    np.testing.assert_array_equal(eqsim.make(name).sys.joints.stiffness, drawn[0])


def test_options():
    with pytest.raises(
        ValueError, match=r"`num_motors` must be from 1 .* \(2\), got 3"
    ):
        eqsim_dmc.lqr_model(2, 3)
    sys = eqsim_dmc.lqr_model(2, 1)
    with pytest.raises(ValueError, match="`seed` is 5 and `sys` has springs"):
        eqsim.make("dmc_lqr_lqr_2_1", seed=5, sys=sys)


def test_terminates():
    """Where the norm of positions and velocities is below 1e-6."""
    task, theirs, ends = eqsim.make("dmc_lqr_lqr_2_1"), Theirs("dmc_lqr_lqr_2_1"), []
    theirs.reset()
    for scale in (0.0, 1e-7, 0.9e-6, 1.1e-6, 1e-3):
        place = scale * np.array([0.6, 0.0, 0.0, 0.8])
        theirs.place(place[:2], place[2:])
        ends.append(theirs.task.get_termination(theirs.physics) is not None)
        q, qd = jnp.asarray(place[:2]), jnp.asarray(place[2:])
        _, timestep = task.reset(jr.key(0), {"q": q, "qd": qd})
        assert bool(timestep.terminated) == ends[-1]
    assert ends == [True, True, True, False, False]


def test_optimal_policy():
    r"""The policy of the Riccati equation loses its value function: from one state to
    another, $\sum (1 - r) = V(x_0) - V(x_N)$ but for the cost of both states."""
    env, steps = eqsim.make("dmc_lqr_lqr_2_1"), 60
    state, _ = env.reset(jr.key(0))
    n, rest = env.sys.nv, jnp.zeros(env.sys.nu)
    model = eqsim.linearize(env, env.pipeline.init(env.sys), rest)
    a, b, cost = (
        np.asarray(model.A),
        np.asarray(model.B),
        np.diag([1.0] * n + [0.0] * n),
    )
    control = float(env.control_cost) * np.eye(env.sys.nu)
    p = solve_discrete_are(a, b, cost, control)
    gain = jnp.asarray(np.linalg.solve(b.T @ p @ b + control, b.T @ p @ a))

    @jax.jit
    def run(state):
        def step(state, _):
            action = -gain @ jnp.concatenate([state.q, state.qd])
            new, timestep = env.step(state, action)
            return new, timestep.reward

        return jax.lax.scan(step, state, None, steps)

    last, rewards = run(state)
    left = lambda s: np.concatenate([s.q, s.qd])
    value = lambda s: 0.5 * left(s) @ (p - cost) @ left(s)
    lost = float(jnp.sum(1.0 - rewards))
    np.testing.assert_allclose(lost, value(state) - value(last), 1e-8)
    assert value(last) < 0.9 * value(state)
