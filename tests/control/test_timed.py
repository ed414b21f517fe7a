"""Costs that depend on time: trajectories as targets of `QuadraticCost`."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import eqsim
from eqsim import control


A, B = jnp.array([[1.0, 0.1], [0.0, 1.0]]), jnp.array([[0.0], [0.1]])
CART = control.VectorDynamics(lambda sys, x, u: A @ x + B @ u, None, 2, 1)
STEPS = 8


def problem(target, action: Any = 0.0) -> control.ControlProblem:
    cost = control.QuadraticCost(target, 2.0, 0.1, 3.0, action)
    return control.ControlProblem(control.TimedDynamics(CART), cost, STEPS)


def least_squares(start, target, action):
    """Solve for all actions at once, from rows of targets and actions."""
    power = [np.linalg.matrix_power(np.asarray(A), k) for k in range(STEPS + 1)]
    effect = np.zeros((STEPS + 1, 2, STEPS))
    for t in range(STEPS + 1):
        for k in range(t):
            effect[t, :, k] = power[t - 1 - k] @ np.asarray(B)[:, 0]
    free = np.stack([p @ start for p in power])
    weight = np.sqrt([2.0] * STEPS + [3.0])[:, None]
    left = (weight[..., None] * effect).reshape(-1, STEPS)
    right = (weight * (target - free)).ravel()
    left = np.concatenate([left, np.sqrt(0.1) * np.eye(STEPS)])
    right = np.concatenate([right, np.sqrt(0.1) * action])
    return np.linalg.lstsq(left, right)[0]


@pytest.mark.parametrize("step", [0, 3, 20])
def test_targets_follow_the_time(step):
    rng = np.random.default_rng(0)
    target, action = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
    start = np.array([0.3, -0.2])
    state = control.Timed(jnp.asarray(start), jnp.asarray(step))
    own = problem(jnp.asarray(target), jnp.asarray(action))
    plan = control.ILQR(max_steps=4).solve(own, state)
    rows = np.minimum(step + np.arange(STEPS + 1), 11)
    best = least_squares(start, target[rows], action[rows[:-1], 0])
    np.testing.assert_allclose(plan.actions[:, 0], best, atol=1e-8)
    np.testing.assert_array_equal(plan.states.step, step + np.arange(STEPS + 1))


def test_a_constant_target_needs_no_time():
    target, state = jnp.array([1.0, 0.0]), control.Timed(jnp.zeros(2))
    timed = control.ILQR(max_steps=4).solve(problem(target), state)
    cost = control.QuadraticCost(target, 2.0, 0.1, 3.0)
    plain = control.ControlProblem(CART, cost, STEPS)
    expected = control.ILQR(max_steps=4).solve(plain, jnp.zeros(2))
    np.testing.assert_allclose(timed.actions, expected.actions, atol=1e-10)


def test_robots_follow_trajectories():
    sys = eqsim.load_mjcf(
        '<mujoco><option timestep="0.02"/><worldbody><body><joint name="slide" '
        'type="slide"/><geom size=".1" mass="1"/></body></worldbody>'
        '<actuator><motor joint="slide"/></actuator></mujoco>'
    )
    pipeline = eqsim.Generalized()
    height = 0.1 * jnp.sin(0.2 * jnp.arange(40.0))[:, None]
    rest = jnp.zeros((40, 0))
    speed = 0.2 / 0.02 * 0.1 * jnp.cos(0.2 * jnp.arange(40.0))[:, None]
    target = jax.vmap(eqsim.State)(height, speed, rest)
    weight = jnp.array([10.0, 0.0])
    cost = control.QuadraticCost(target, weight, 1e-8)
    dynamics = control.TimedDynamics((pipeline, sys))
    problem = control.ControlProblem(dynamics, cost, 10)
    state = control.Timed(pipeline.init(sys, target.q[0], target.qd[0]))
    plan = control.ILQR(max_steps=5).solve(problem, state)
    np.testing.assert_allclose(plan.states.state.q, height[:11], atol=1e-3)
    anneal = control.ILQR(max_steps=1, contact=control.Anneal(0.01, 0.0, 2))
    assert jnp.isfinite(anneal.solve(problem, state).value)


@pytest.mark.parametrize("latency, delay", [(0, 0), (2, 0), (1, 2)])
@pytest.mark.quick_cases("0-0", "1-2")
def test_mpc_counts_steps(latency, delay):
    """A plan of all actions, followed exactly, is what replanning at each step finds."""
    target = jnp.asarray(np.random.default_rng(1).normal(size=(30, 2)))
    own, start = problem(target), jnp.array([0.3, -0.2])
    policy = control.MPC(control.ILQR(max_steps=3), own, delay=delay, latency=latency)
    memory, x, idle = policy.init(start, jr.key(0)), start, latency + delay
    for k in range(6):
        memory, action = policy.act(memory, x, None, jr.key(0))
        plan, pending = memory
        np.testing.assert_array_equal(plan[0].step, k + idle + jnp.arange(STEPS + 1))
        now = control.Timed(x, k)
        if not idle:
            best = control.ILQR(max_steps=4).solve(own, now).actions[0]
            np.testing.assert_allclose(action, best, atol=1e-8)
        x = A @ x + B @ (action if k >= latency else 0.0 * action)


def test_errors():
    target = jnp.zeros((12, 2))
    cost = control.QuadraticCost(target, 2.0, 0.1)
    plain = control.ControlProblem(CART, cost, STEPS)
    with pytest.raises(ValueError, match="QuadraticCost.target.*TimedDynamics"):
        control.ILQR(max_steps=1).solve(plain, jnp.zeros(2))
    with pytest.raises(ValueError, match="Timed.*got State"):
        state = eqsim.State(jnp.zeros(1), jnp.zeros(1), jnp.zeros(0))
        control.ILQR(max_steps=1).solve(problem(target), state)
