"""Planners by sampling behind one interface, and MPC in rollouts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import eqsim
from eqsim import control, testing
from eqsim.control import CEM, MPC, MPPI, PredictiveSampling
from eqsim.control._mpc import _spline, colored_noise
from eqsim.wrappers import DelayAction


PLANNERS = (
    CEM(samples=128, iterations=20),
    PredictiveSampling(samples=128, iterations=40, knots=4, std=0.2),
    MPPI(samples=256, iterations=40, std=0.3, temperature=0.05),
)
IDS = ("cem", "predictive", "mppi")
each = pytest.mark.parametrize("planner", PLANNERS, ids=IDS)


def planned(planner, cost, start, key=0, **options):
    run = eqx.filter_jit(lambda p, s, k: p.plan(cost, s, k, **options))
    return run(planner, start, jr.key(key))


@each
def test_finds_the_best_plan_within_limits(planner):
    """Limits are kept, and the optimum is found, also at a limit."""
    best = jnp.tile(jnp.array([0.4, -0.8]), (6, 1))
    cost = lambda plan: jnp.sum((plan - best) ** 2)
    clip = lambda u: jnp.clip(u, -0.5, 0.5)
    plan, found = planned(planner, cost, jnp.zeros((6, 2)), project=clip)
    assert jnp.max(jnp.abs(plan)) <= 0.5
    np.testing.assert_allclose(plan, clip(best), atol=0.15)
    np.testing.assert_allclose(found, cost(plan), rtol=1e-6)


@each
def test_costs_that_are_not_finite(planner):
    """They are never followed; if there are no others, the plan stays."""
    cost = lambda plan: jnp.where(plan[0, 0] > 0.3, jnp.nan, -jnp.sum(plan))
    clip = lambda u: jnp.clip(u, -0.5, 0.5)
    plan, found = planned(planner, cost, jnp.zeros((4, 1)), project=clip)
    assert jnp.isfinite(found) and 0.0 < plan[0, 0] <= 0.3
    start = jnp.full((4, 1), 0.2)
    stay, _ = planned(planner, lambda plan: jnp.asarray(jnp.nan), start)
    np.testing.assert_array_equal(stay, start)


@pytest.mark.parametrize("planner", PLANNERS[:2], ids=IDS[:2])
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


def test_mppi_is_the_weighted_mean():
    """One iteration against plain sums over the plans that were tried."""
    planner, start = MPPI(samples=9, iterations=1, smoothing=0.6), jnp.ones((3, 2))
    cost = lambda plan: jnp.sum(plan**2) + plan[0, 0]
    plan, _ = planned(planner, cost, start, key=4)
    normal = jr.normal(jr.split(jr.key(4), 1)[0], (8, 3, 2)) * 0.5
    before, noise = np.zeros((8, 2)), np.zeros((8, 3, 2))
    for t in range(3):
        before = 0.6 * np.asarray(normal[:, t]) + 0.4 * before
        noise[:, t] = before
    plans = np.concatenate([np.zeros((1, 3, 2)), noise]) + 1.0
    costs = np.array([cost(p) for p in plans])
    weights = np.exp(-(costs - costs.min()) / (0.1 * (np.median(costs) - costs.min())))
    expected = (weights[:, None, None] * plans).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(plan, expected, rtol=1e-9)


def test_mppi_does_not_care_for_the_scale_of_the_cost():
    cost = lambda plan: jnp.sum((plan - 1.0) ** 2)
    scaled = lambda plan: 1e3 * cost(plan) - 50.0
    start = jnp.zeros((2, 1))
    one, two = (planned(MPPI(), c, start)[0] for c in (cost, scaled))
    assert testing.tree_allclose(one, two, rtol=1e-6)


def test_equal_costs_of_mppi():
    """All plans count the same, and nothing is divided by zero."""
    plan, _ = planned(
        MPPI(samples=1000, iterations=1), lambda p: jnp.zeros(()), jnp.ones((2, 1))
    )
    np.testing.assert_allclose(plan, 1.0, atol=0.05)


def test_diverged_plans_of_mppi():
    """However large a cost is, and whatever else is broken, good plans count."""
    with jax.enable_x64(False):
        start = jnp.zeros((1, 1), jnp.float32)

        def cost(plan):
            x = plan[0, 0]
            bad = jnp.where(x > 0.8, jnp.inf, jnp.where(x > 0.6, 1e30, 1e10))
            return jnp.where(x > 0.4, bad, (x + 0.5) ** 2)

        plan, found = planned(MPPI(samples=256, iterations=20), cost, start)
        assert jnp.isfinite(found)
        np.testing.assert_allclose(plan, -0.5, atol=0.1)


def test_one_deviation_per_entry():
    cost = lambda plan: jnp.sum((plan - 1.0) ** 2)
    planner = MPPI(std=jnp.array([0.5, 0.0]))
    plan, _ = planned(planner, cost, jnp.zeros((2, 2)))
    np.testing.assert_allclose(plan[:, 1], 0.0)
    assert jnp.all(plan[:, 0] > 0.5)


def test_batches_of_planners():
    """Its numbers are arrays."""
    cost = lambda plan: jnp.sum((plan - 1.0) ** 2)
    planners = eqx.filter_vmap(lambda std: MPPI(std=std))(jnp.array([0.1, 0.5]))
    plan = lambda planner: planner.plan(cost, jnp.zeros((2, 1)), jr.key(0))[1]
    both, one = map(eqx.filter_jit, (eqx.filter_vmap(plan), plan))
    alone = jnp.stack([one(MPPI(std=jnp.asarray(s))) for s in (0.1, 0.5)])
    assert testing.tree_allclose(both(planners), alone, rtol=1e-6)


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


REFUSED = {
    r"`MPPI.smoothing` must be in \(0, 1\]": lambda: MPPI(smoothing=0.0),
    "`MPPI.temperature` must be positive": lambda: MPPI(temperature=-1.0),
    "`MPPI.std` must be at least 0": lambda: MPPI(std=-0.1),
    "`MPPI.samples` must be .* at least 1": lambda: MPPI(samples=0),
    "`CEM.elites` must be .* at least 1": lambda: CEM(elites=0),
    "at most as many elites": lambda: CEM(samples=4, elites=5),
    r"`CEM.momentum` must be in \[0, 1\)": lambda: CEM(momentum=1.0),
    "`CEM.std` must be positive": lambda: CEM(std=0.0),
    "knots` must be .* at least 1": lambda: PredictiveSampling(knots=0),
    "degree` must be 0, 1 or 3, got 2": lambda: PredictiveSampling(degree=2),
    r"from 0 to the horizon \(15\), got 16": lambda: MPC(CEM(), PROBLEM, delay=16),
    "`MPC.latency` must be .* at least 0": lambda: MPC(CEM(), PROBLEM, latency=-1),
    "`pending`": lambda: control.predict(ENV, TARGET, jnp.zeros((3, 2))),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refuses(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
