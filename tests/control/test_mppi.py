"""Plans by sampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from eqsim import testing
from eqsim.control import MPPI
from eqsim.testing import probes


MPPI_SLOW = MPPI(samples=256, iterations=40, std=0.3, temperature=0.05)


def planned(planner, cost, start, key=None, **options):
    key = jr.key(0) if key is None else key
    run = eqx.filter_jit(lambda p, s, k: p.plan(cost, s, k, **options))
    return run(planner, start, key)


def test_finds_the_best_plan():
    """Of a convex cost whose minimum is known."""
    best = jr.normal(jr.key(1), (3, 2))
    cost = lambda plan: jnp.sum((plan - best) ** 2)
    plan, found = planned(MPPI_SLOW, cost, jnp.zeros((3, 2)))
    np.testing.assert_allclose(plan, best, atol=0.1)
    np.testing.assert_allclose(found, cost(plan))
    assert found < 0.02 * cost(jnp.zeros((3, 2)))


def test_is_the_weighted_mean():
    """One iteration against plain sums over the plans that were tried."""
    planner, start = MPPI(samples=9, iterations=1, smoothing=0.6), jnp.ones((3, 2))
    cost = lambda plan: jnp.sum(plan**2) + plan[0, 0]
    key = jr.key(4)
    plan, _ = planner.plan(cost, start, key)
    normal = jr.normal(jr.split(key, 1)[0], (8, 3, 2)) * 0.5
    before, noise = np.zeros((8, 2)), np.zeros((8, 3, 2))
    for t in range(3):
        before = 0.6 * np.asarray(normal[:, t]) + 0.4 * before
        noise[:, t] = before
    plans = np.concatenate([np.zeros((1, 3, 2)), noise]) + 1.0
    costs = np.array([cost(p) for p in plans])
    weights = np.exp(-(costs - costs.min()) / (0.1 * (np.median(costs) - costs.min())))
    expected = (weights[:, None, None] * plans).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(plan, expected, rtol=1e-9)


def test_does_not_care_for_the_scale_of_the_cost():
    cost = lambda plan: jnp.sum((plan - 1.0) ** 2)
    scaled = lambda plan: 1e3 * cost(plan) - 50.0
    start = jnp.zeros((2, 1))
    one, two = (planned(MPPI(), c, start)[0] for c in (cost, scaled))
    assert testing.tree_allclose(one, two, rtol=1e-6)


def test_equal_costs():
    """All plans count the same, and nothing is divided by zero."""
    plan, _ = planned(
        MPPI(samples=1000, iterations=1), lambda p: jnp.zeros(()), jnp.ones((2, 1))
    )
    np.testing.assert_allclose(plan, 1.0, atol=0.05)


def test_broken_costs():
    """What is not finite is not followed; if nothing is, the plan stays."""
    cost = lambda plan: jnp.where(plan[0, 0] > 0.1, jnp.nan, -plan[0, 0])
    plan, found = planned(MPPI_SLOW, cost, jnp.zeros((1, 1)))
    assert jnp.isfinite(found)
    assert 0.0 < plan[0, 0] <= 0.1
    start = jnp.full((2, 1), 0.3)
    stay, _ = planned(MPPI(), lambda plan: jnp.asarray(jnp.inf), start)
    assert jnp.array_equal(stay, start)


def test_diverged_plans():
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


def test_projected():
    best = jnp.array([[2.0, -0.5]])
    cost = lambda plan: jnp.sum((plan - best) ** 2)
    clip = lambda u: jnp.clip(u, -1.0, 1.0)
    plan, _ = planned(MPPI_SLOW, cost, jnp.zeros((1, 2)), project=clip)
    assert jnp.max(jnp.abs(plan)) <= 1.0
    np.testing.assert_allclose(plan, [[1.0, -0.5]], atol=0.1)


def test_controls_an_environment():
    """With its own step as the model it is planned with, again and again."""
    env, goal = probes.PointMass(), jnp.array([0.4, -0.3])
    clip = lambda u: jnp.clip(u, -1.0, 1.0)

    def cost_from(state):
        def cost(plan):
            step = lambda state, u: (env.step(state, u)[0], None)
            end, _ = jax.lax.scan(step, state, plan)
            return jnp.sum((end.q - goal) ** 2)

        return cost

    @eqx.filter_jit
    def drive(key):
        state, _ = env.reset(key)

        def turn(now, key):
            state, plan = now
            plan, _ = MPPI(samples=256, iterations=8, std=0.3).plan(
                cost_from(state), plan, key, project=clip
            )
            state, _ = env.step(state, plan[0])
            return (state, jnp.concatenate([plan[1:], plan[-1:]])), None

        (state, _), _ = jax.lax.scan(
            turn, (state, jnp.zeros((3, 2))), jr.split(key, 12)
        )
        return state.q

    np.testing.assert_allclose(drive(jr.key(0)), goal, atol=0.05)


def test_batches_of_planners():
    """Its numbers are arrays."""
    cost = lambda plan: jnp.sum((plan - 1.0) ** 2)
    planners = eqx.filter_vmap(lambda std: MPPI(std=std))(jnp.array([0.1, 0.5]))
    both = eqx.filter_vmap(lambda p: p.plan(cost, jnp.zeros((2, 1)), jr.key(0))[1])
    alone = [
        MPPI(std=s).plan(cost, jnp.zeros((2, 1)), jr.key(0))[1] for s in (0.1, 0.5)
    ]
    assert testing.tree_allclose(both(planners), jnp.stack(alone), rtol=1e-6)


@pytest.mark.parametrize("name", ("samples", "iterations"))
@pytest.mark.quick_cases("samples")
def test_refuses(name):
    with pytest.raises(
        ValueError, match=rf"`MPPI.{name}` must be an integer of at least 1, got 0"
    ):
        MPPI(**{name: 0})
