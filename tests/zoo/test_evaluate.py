"""Evaluations, beside a plain loop over episodes and SciPy's statistics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from toys import Rail, Tracked
from zoo.search import Search

from eqsim_zoo import evaluate, Evaluation
from eqsim_zoo._cli._printing import console, tracking_table
from eqsim_zoo.blocks import training_env
from eqsim_zoo.runs.members import members_of
from eqsim_zoo.training import bootstrap_interval, interquartile_mean
from eqsim_zoo.training._loop import best_agent
from eqsim_zoo.training.evaluation import (
    episode_keys,
    evaluate_members,
    evaluate_tracking,
    Tracking,
)


# Pushed off the edge sooner or later, or not at all.
RAIL, AGENT, LENGTH = Rail(edge=0.7, noise=0.2), Search(), 12


@pytest.fixture(scope="module")
def state():
    members = members_of(AGENT, 0, 1)
    state = members.init(training_env(RAIL, LENGTH, 4, jax.random.key(0)))
    push = np.array([[2.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 2.0]])
    return eqx.tree_at(lambda s: s.best, state, jnp.asarray(push))


def test_is_a_plain_loop(state):
    key = jax.random.key(5)
    found = evaluate(AGENT, state, RAIL, key, episodes=8, episode_length=LENGTH)
    reset, step = eqx.filter_jit(RAIL.reset), eqx.filter_jit(RAIL.step)
    act = jax.jit(lambda obs: AGENT.act(state, obs))
    for number, one in enumerate(jax.random.split(key, 8)):
        now, timestep = reset(jax.random.split(one)[0])
        total, steps = 0.0, 0
        while steps < LENGTH and not timestep.terminated:
            now, timestep = step(now, act(timestep.obs))
            total, steps = total + float(timestep.reward), steps + 1
        np.testing.assert_allclose(found.returns[number], total, rtol=1e-9)
        assert found.lengths[number] == steps
        assert found.terminated[number] == bool(timestep.terminated)
    assert found.terminated.any() and not found.terminated.all()
    again = evaluate(AGENT, state, RAIL, key, episodes=8, episode_length=LENGTH)
    assert np.array_equal(again.returns, found.returns)


@pytest.mark.parametrize("number", (1, 2))
def test_errors_of_tracking_are_those_of_a_plain_loop(number, state):
    """A target is compared with the value after the step."""
    env = Tracked(edge=0.7, noise=0.2)
    members = members_of([AGENT, Search(rate=1.0)][:number], 0, 1)
    if number == 2:
        state = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    keys = episode_keys(members, lambda _: jax.random.key(5), 4)
    found = evaluate_tracking(members, state, env, keys, LENGTH)
    assert len(found) == number
    reset, step = eqx.filter_jit(env.reset), eqx.filter_jit(env.step)
    one = members.pick(state, 0)
    act, gaps = jax.jit(lambda obs: AGENT.act(one, obs)), []
    for row, key in enumerate(jax.random.split(jax.random.key(5), 4)):
        now, timestep = reset(jax.random.split(key)[0])
        steps = 0
        while steps < LENGTH and not timestep.terminated:
            target = now.q[0]
            now, timestep = step(now, act(timestep.obs))
            np.testing.assert_allclose(found[0].target["v, m/s"][row, steps], target)
            gaps.append(abs(float(now.qd[0] - target)))
            steps += 1
        assert found[0].valid[row].sum() == steps
    for each in found:
        np.testing.assert_allclose(each.error()["v, m/s"], np.mean(gaps), rtol=1e-6)
    assert found[0].error()["x, m"] > 0.0
    assert evaluate_tracking(members, state, RAIL, keys, LENGTH) == []


def test_errors_by_target():
    target = np.array([[-1.0, -0.6, 0.0, 0.9, 1.0, 7.0]])
    valid = np.array([[True] * 5 + [False]])
    value = target + [0.1, 0.3, 1, -2, 4, 9]
    found = Tracking({"v": target, "w": 0 * target}, {"v": value, "w": value}, valid)
    low, high, error = zip(*found.by_target(4)["v"])
    np.testing.assert_allclose(low, [-1.0, -0.5, 0.0, 0.5])
    np.testing.assert_allclose(high, [-0.5, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(error, [0.2, np.nan, 1.0, 3.0])
    np.testing.assert_allclose(found.error()["v"], 7.4 / 5)
    ((low, high, error),) = found.by_target(4)["w"]
    assert low == high == 0.0 and error == found.error()["w"]


def test_table_of_tracking(capsys):
    """One row per quantity, with the bounds of each part."""
    steps = np.array([[0.0, 0.5, 1.0]])
    value = {"v, m/s": steps + 0.25, "w, rad/s": np.full((1, 3), np.nan)}
    found = Tracking({name: steps for name in value}, value, steps >= 0.0)
    console().print(tracking_table("seed 3", found))
    head, one, two = capsys.readouterr().out.splitlines()
    assert "mean absolute error, seed 3" in head and "last fifth of targets" in head
    assert one.startswith("v, m/s") and "0.250 (0.8 to 1)" in one and "nan" in two
    assert "none (0.2 to 0.4)" in one and "nan" not in one


@pytest.mark.slow
def test_members_of_a_seed_are_evaluated_in_the_same_episodes(state):
    key = lambda seed: jax.random.key(5 + seed)
    members = members_of([Search(), Search(rate=1.0)], 0, 1)
    both = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    run = lambda members, state: evaluate_members(
        members, state, RAIL, episode_keys(members, key, 8), LENGTH
    )
    found, alone = run(members, both), run(members_of(AGENT, 0, 1), state)
    assert found.returns.shape == (2, 8) and alone.returns.shape == (1, 8)
    np.testing.assert_allclose(found.returns, np.repeat(alone.returns, 2, 0), rtol=1e-9)


def test_statistics():
    returns = np.random.default_rng(0).normal(3.0, 2.0, (2, 9))
    lengths = np.full((2, 9), 4)
    found = Evaluation(returns, lengths, lengths > 0)
    for member in range(2):
        scale = stats.sem(returns[member])
        low, high = stats.t.interval(0.95, 8, loc=returns[member].mean(), scale=scale)
        np.testing.assert_allclose(found.mean()[member], (low + high) / 2)
        np.testing.assert_allclose(found.error()[member], (high - low) / 2)
        np.testing.assert_allclose(
            found.deviation()[member], stats.tstd(returns[member])
        )
    single = Evaluation(returns[0, :1], lengths[0, :1], lengths[0, :1] > 0)
    assert single.mean() == returns[0, 0] and np.isnan(single.error())


def test_a_single_member_is_a_number():
    """Also with the axis of members that evaluations during training have."""
    returns, lengths = np.array([[1.0, 2.0, 6.0]]), np.full((1, 3), 4)
    found = Evaluation(returns, lengths, lengths > 0)
    assert float(found.mean()) == 3.0 and found.mean()[0] == 3.0
    assert f"{found.mean():.1f} {found.length():.0f}" == "3.0 4"
    assert float(found.deviation()) == np.std(returns, ddof=1)
    assert np.isfinite(float(found.error()))
    assert float(Evaluation(returns[0], lengths[0], lengths[0] > 0).mean()) == 3.0
    pair = np.tile(returns, (2, 1)), np.tile(lengths, (2, 1))
    two = Evaluation(*pair, pair[1] > 0)
    with pytest.raises(TypeError, match=r"2 members.*`evaluation.mean\(\)\[0\]`"):
        float(two.mean())
    assert np.array_equal(two.mean(), [3.0, 3.0]) and str(two.mean()) == "[3. 3.]"


@pytest.mark.parametrize(
    "alive, best",
    (
        ([0, 1, 2, 3, 4, 5], 5.0),  # Not 7, which is one lucky seed.
        ([0, 1, 2, 3, 5], 4.0),
        ([0, 2, 4], 7.0),
        ([1], 1.0),
        ([], np.nan),
    ),
)
def test_best_agent(alive, best):
    """Of three agents with two seeds each: whole ones come first."""
    means = np.array([2.0, 1.0, 4.0, 4.0, 7.0, 3.0])
    np.testing.assert_equal(best_agent(means, 2, alive), best)
    means[~np.isin(np.arange(6), alive)] = np.nan
    np.testing.assert_equal(best_agent(means, 2, [*range(6)]), best)


def test_what_makes_no_sense(state):
    key = jax.random.key(0)
    for change in ({"episodes": 0}, {"episode_length": 0}):
        with pytest.raises(ValueError, match=f"`{[*change][0]}` must be .* got 0"):
            evaluate(AGENT, state, RAIL, key, **change)


@pytest.mark.parametrize("shape", ((8,), (12, 3)))
def test_interquartile_mean(shape):
    """The mean of the middle half of all scores; of 4 n of them, 2 n."""
    scores = np.random.default_rng(0).normal(size=shape)
    n = scores.size // 4
    expected = np.sort(scores, axis=None)[n:-n].mean()
    np.testing.assert_allclose(interquartile_mean(scores), expected, rtol=1e-12)


def test_bootstrap_interval():
    """Beside SciPy's bootstrap by percentiles, within the noise of the draws."""
    scores = np.random.default_rng(1).normal(3.0, 2.0, size=10)
    own = bootstrap_interval(scores, draws=20_000)
    statistic = lambda x, axis: stats.trim_mean(x, 0.25, axis=axis)
    peer = stats.bootstrap(
        (scores,), statistic, n_resamples=20_000, method="percentile", rng=0
    ).confidence_interval
    np.testing.assert_allclose(own, peer, atol=0.1)
    assert own == bootstrap_interval(scores, draws=20_000)


def test_bootstrap_keeps_tasks_apart():
    """Tasks with constant scores leave nothing to draw."""
    scores = np.tile([1.0, 5.0, 9.0, 30.0], (6, 1))
    mean = interquartile_mean(scores)
    np.testing.assert_allclose(bootstrap_interval(scores), (mean, mean), rtol=1e-12)


def test_an_interval_needs_two_runs():
    with pytest.raises(ValueError, match="at least 2 runs, but `scores` has 1"):
        bootstrap_interval(np.zeros((1, 3)))
