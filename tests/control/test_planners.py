"""Planners by sampling behind one interface, and MPC in rollouts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import eqsim
from eqsim import control
from eqsim.control import CEM, MPC, MPPI, PredictiveSampling
from eqsim.control._planners import _spline, colored_noise
from eqsim.wrappers import DelayAction


PLANNERS = (
    CEM(samples=128, iterations=20),
    PredictiveSampling(samples=128, iterations=40, knots=4, std=0.2),
    PredictiveSampling(samples=128, iterations=40, knots=4, degree=1, std=0.2),
    PredictiveSampling(samples=128, iterations=40, knots=6, degree=0, std=0.2),
    MPPI(samples=256, iterations=40, std=0.3, temperature=0.05),
)
each = pytest.mark.parametrize(
    "planner", PLANNERS, ids=("cem", "cubic", "linear", "zero", "mppi")
)


def planned(planner, cost, start, key=0, **options):
    run = eqx.filter_jit(lambda p, s, k: p.plan(cost, s, k, **options))
    return run(planner, start, jr.key(key))


@each
def test_finds_the_best_plan(planner):
    best = jnp.tile(jnp.array([0.4, -0.3]), (6, 1))
    cost = lambda plan: jnp.sum((plan - best) ** 2)
    plan, found = planned(planner, cost, jnp.zeros((6, 2)))
    np.testing.assert_allclose(plan, best, atol=0.15)
    np.testing.assert_allclose(found, cost(plan), rtol=1e-6)


@each
def test_limits_and_costs_that_are_not_finite(planner):
    """Neither left nor followed."""
    cost = lambda plan: jnp.where(plan[0, 0] > 0.3, jnp.nan, -jnp.sum(plan))
    clip = lambda u: jnp.clip(u, -0.5, 0.5)
    plan, found = planned(planner, cost, jnp.zeros((4, 1)), project=clip)
    assert jnp.isfinite(found) and jnp.max(jnp.abs(plan)) <= 0.5
    assert 0.0 < plan[0, 0] <= 0.3
    start = jnp.full((4, 1), 0.2)
    stay, _ = planned(planner, lambda plan: jnp.asarray(jnp.nan), start)
    np.testing.assert_array_equal(stay, start)


@pytest.mark.parametrize("planner", PLANNERS[:4])
def test_never_worse_than_before(planner):
    """From the optimum no other plan is followed."""
    cost = lambda plan: jnp.sum((plan - 0.3) ** 2)
    plan, found = planned(planner, cost, jnp.full((5, 1), 0.3))
    np.testing.assert_array_equal(plan, jnp.full((5, 1), 0.3))
    assert found == 0.0


@pytest.mark.parametrize("exponent", (0.0, 1.0, 2.0))
@pytest.mark.parametrize("horizon", (20, 21))
def test_colored_noise(exponent, horizon):
    """The variance is one; power falls with frequency as asked for."""
    noise = np.asarray(colored_noise(jr.key(0), (20_000, horizon, 1), exponent, float))
    np.testing.assert_allclose(noise.var(), 1.0, rtol=0.03)
    power = (np.abs(np.fft.rfft(noise[..., 0], axis=1)) ** 2).mean(0)[1:]
    power = power[:-1] if horizon % 2 == 0 else power
    frequency = np.arange(1, len(power) + 1)
    fitted = np.polyfit(np.log(frequency), np.log(power), 1)[0]
    np.testing.assert_allclose(fitted, -exponent, atol=0.05)


@pytest.mark.parametrize("degree, exact", ((0, 0), (1, 1), (3, 2)))
def test_splines(degree, exact):
    """Reproduce polynomials up to a degree, and the knots."""
    knots = np.arange(5.0)
    time = np.linspace(0.0, 4.0, 41)
    matrix = _spline(41, 5, degree)
    inner = slice(10, 31) if degree == 3 else slice(None)
    for power in range(exact + 1):
        np.testing.assert_allclose(
            (matrix @ knots**power)[inner], (time**power)[inner], atol=1e-9
        )
    np.testing.assert_allclose(matrix[::10], np.eye(5), atol=1e-9)


def test_refuses():
    for make, message in (
        (lambda: MPPI(smoothing=0.0), r"`MPPI.smoothing` must be in \(0, 1\], got 0"),
        (lambda: MPPI(temperature=-1.0), "`MPPI.temperature` must be positive, got -1"),
        (lambda: MPPI(std=-0.1), "`MPPI.std` must be at least 0"),
        (lambda: CEM(elites=0), "`CEM.elites` must be an integer of at least 1, got 0"),
        (lambda: CEM(samples=4, elites=5), "at most as many elites"),
        (lambda: CEM(momentum=1.0), r"`CEM.momentum` must be in \[0, 1\)"),
        (lambda: CEM(std=0.0), "`CEM.std` must be positive"),
        (
            lambda: PredictiveSampling(knots=0),
            "knots` must be an integer of at least 1, got 0",
        ),
        (lambda: PredictiveSampling(degree=2), "degree` must be 0, 1 or 3, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


POLE = eqsim.load_mjcf("""
<mujoco>
  <option timestep="0.02"/>
  <default><geom type="capsule" size=".05" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><joint name="slider" type="slide" axis="1 0 0"/><geom fromto="-.1 0 0 .1 0 0"/>
      <body><joint name="hinge" axis="0 1 0" damping=".1"/>
        <geom fromto="0 0 0 0 0 .6"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="slider" gear="50" ctrlrange="-1 1"/></actuator>
</mujoco>""")
ENV = eqsim.make("inverted_pendulum", sys=POLE)
TARGET = ENV.pipeline.init(POLE)
COST = control.QuadraticCost(TARGET, jnp.array([0.2, 5.0, 0.05, 0.1]), 0.05, 20.0)
PROBLEM = control.ControlProblem(ENV, COST, 15, jnp.array([[-0.6, 0.6]]))


def driven(policy, env=ENV, length=50, seed=0, tilt=0.15):
    """Start with a tilt that the pole does not survive without control."""
    tilted = ENV.pipeline.init(POLE, jnp.array([0.0, tilt]))
    start = ENV.begin(tilted)
    if env is not ENV:
        start = env.reset(jr.key(0), {"q": tilted.q, "qd": tilted.qd})
    run = eqsim.rollout(env, policy, jr.key(seed), length, start=start)
    return run, np.abs(np.asarray(env.physics(run.last[0]).q)[1])


@pytest.mark.parametrize(
    "planner",
    (
        control.ILQR(max_steps=1),
        CEM(samples=48, iterations=3),
        PredictiveSampling(samples=64, iterations=2, std=0.3),
        MPPI(samples=64, iterations=3, std=0.3),
    ),
    ids=("ilqr", "cem", "predictive", "mppi"),
)
@pytest.mark.quick_cases("mppi")
def test_balances_in_a_rollout(planner):
    _, fallen = driven(lambda obs, key: jnp.zeros(1))
    assert fallen > 0.5
    run, tilt = driven(MPC(planner, PROBLEM))
    assert tilt < 0.05
    assert np.abs(np.asarray(run.action)).max() <= 0.6


# Compiles two rollouts that plan, and one step of each.
@pytest.mark.slow
def test_delay():
    """An action is known before its state is measured, and follows the prediction."""
    policy = MPC(control.ILQR(max_steps=2), PROBLEM, delay=1)
    run, tilt = driven(policy)
    assert tilt < 0.05
    # The prediction is exact here, so the plan is as good as one without delay.
    prompt, _ = driven(MPC(control.ILQR(max_steps=2), PROBLEM))
    np.testing.assert_allclose(run.action[0], prompt.action[0], atol=0.05)
    state = jax.tree.map(lambda x: x[0], run.state)
    other = ENV.pipeline.init(POLE, jnp.array([0.0, 0.1]))
    memory = eqx.filter_jit(policy.init)(state, jr.key(0))
    act = eqx.filter_jit(lambda m, x: policy.act(m, x, None, jr.key(1)))
    (one, first), (two, second) = act(memory, state), act(memory, other)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(one[1], two[1])


def test_predict():
    """The state after the pending commands is that of steps with them."""
    pending = jnp.array([[0.3], [-0.5], [0.1]])
    found, state = control.predict(ENV, TARGET, pending), TARGET
    for action in pending:
        state = ENV.transition(state, action)
    np.testing.assert_allclose(found.q, state.q, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.qd, state.qd, rtol=1e-9, atol=1e-12)
    assert control.predict(ENV, TARGET, pending[:0]) is TARGET


# Compiles three rollouts that plan.
@pytest.mark.slow
@pytest.mark.parametrize("delay, latency", ((0, 3), (2, 2)))
def test_latency(delay, latency):
    """With an exact model, a robot with latency moves like one without, from the state
    that is predicted; ignored latency makes the pole fall."""
    planner, late = control.ILQR(max_steps=1), DelayAction(ENV, latency)
    policy = MPC(planner, PROBLEM, delay=delay, latency=latency)
    run, tilt = driven(policy, late, 60, tilt=0.08)
    assert tilt < 0.05
    if delay:
        return
    tilted = ENV.pipeline.init(POLE, jnp.array([0.0, 0.08]))
    start = control.predict(ENV, tilted, jnp.zeros((latency, 1)))
    prompt = MPC(planner, PROBLEM)
    same = eqsim.rollout(ENV, prompt, jr.key(0), 57, start=ENV.begin(start))
    inner = run.state.inner
    np.testing.assert_allclose(inner.q[3:], same.state.q, rtol=1e-6, atol=1e-8)
    _, fallen = driven(prompt, late, 60, tilt=0.08)
    assert fallen > 0.5


@pytest.mark.slow
def test_memory_continues_through_pieces(capfd):
    """A rollout with a progress bar is made in pieces: with the same actions."""
    policy = MPC(MPPI(samples=8, iterations=1), PROBLEM)
    one, _ = driven(policy, length=4)
    start = ENV.begin(ENV.pipeline.init(POLE, jnp.array([0.0, 0.15])))
    two = eqsim.rollout(ENV, policy, jr.key(0), 4, start=start, progress=True)
    np.testing.assert_allclose(one.action, two.action, rtol=1e-9)


# Compiles two rollouts that plan.
@pytest.mark.slow
def test_batches_of_environments():
    policy = MPC(control.ILQR(max_steps=1), PROBLEM)
    run = eqsim.rollout(ENV, policy, jr.split(jr.key(0), 2), 5)
    alone = eqsim.rollout(ENV, policy, jr.split(jr.key(0), 2)[1], 5)
    np.testing.assert_allclose(run.action[1], alone.action, rtol=1e-6, atol=1e-9)


def test_mpc_refuses():
    with pytest.raises(ValueError, match=r"from 0 to the horizon \(15\), got 16"):
        MPC(CEM(), PROBLEM, delay=16)
    with pytest.raises(
        ValueError, match="`MPC.latency` must be an integer of at least 0, got -1"
    ):
        MPC(CEM(), PROBLEM, latency=-1)
    with pytest.raises(ValueError, match="`pending`"):
        control.predict(ENV, TARGET, jnp.zeros((3, 2)))
