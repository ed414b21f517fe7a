"""Observations that are normalized, stacked, selected, noisy, or privileged."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, strategies as st
from toys import push, Rail, steps

import eqsim
from eqsim import randomize
from eqsim.wrappers import (
    AutoReset,
    DomainRandomization,
    episode_robot,
    NoisyObservation,
    NormalizeObservation,
    PrivilegedObservation,
    RunningStatistics,
    SelectObservation,
    StackObservation,
    TimeLimit,
)


ENV = Rail()
NONE = RunningStatistics(jnp.ones(()), jnp.zeros(4), jnp.ones(4))


def of(values) -> RunningStatistics:
    out = NONE
    for x in values:
        out = out.with_one(x)
    return out


@given(count=st.integers(1, 30), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_statistics(count, scale, seed):
    """Mean and variance by NumPy, of the observations and the one to begin with."""
    x = scale * (3.0 + np.random.default_rng(seed).normal(size=(count, 4)))
    got = of(jnp.asarray(x))
    mean = x.sum(0) / (count + 1)
    np.testing.assert_allclose(got.mean, mean, rtol=1e-10)
    square = 1.0 + (x**2).sum(0) - (count + 1) * mean**2
    np.testing.assert_allclose(got.variance, square / (count + 1), rtol=1e-9)
    assert float(got.count) == count + 1


def test_merged_statistics():
    """Those of parts are those of the whole, but for what each began with."""
    x = np.random.default_rng(0).normal(2.0, 3.0, size=(3, 50, 4))
    parts = jax.vmap(
        lambda x: jax.lax.scan(lambda s, o: (s.with_one(o), None), NONE, x)[0]
    )
    merged = parts(jnp.asarray(x)).merged()
    whole = np.concatenate([x.reshape(-1, 4), np.zeros((3, 4))])
    np.testing.assert_allclose(merged.mean, whole.mean(0), rtol=1e-10)
    square = ((whole - whole.mean(0)) ** 2).sum(0) + 3.0
    np.testing.assert_allclose(merged.variance, square / 153, rtol=1e-10)
    assert merged.count.shape == () and float(merged.count) == 153.0


def test_normalize():
    env = NormalizeObservation(AutoReset(TimeLimit(ENV, 3)))
    state, first = env.reset(jr.key(0))
    actions = jr.uniform(jr.key(1), (8, 2))
    plain_state, plain = env.env.reset(jr.key(0))
    _, raw = steps(env.env, plain_state, actions)
    _, seen = steps(env, state, actions)
    statistics = NONE
    for a, b in zip([plain, *raw], [first, *seen], strict=True):
        statistics = statistics.with_one(a.obs)
        np.testing.assert_allclose(b.obs, statistics.normalize(a.obs), rtol=1e-12)
        expected = statistics.normalize(a.final_obs)
        np.testing.assert_allclose(b.final_obs, expected, rtol=1e-12)
        assert np.array_equal(a.reward, b.reward)


def test_frozen():
    """What was learnt by many is used by one, and stays as it is."""
    env = NormalizeObservation(AutoReset(TimeLimit(ENV, 5)))
    out = eqsim.rollout(env, push, jr.split(jr.key(0), 8), 40)
    statistics = out.last[0].statistics.merged()
    frozen = AutoReset(TimeLimit(NormalizeObservation(ENV, statistics, frozen=True), 5))
    fixed = eqsim.rollout(frozen, push, jr.split(jr.key(1), 8), 40)
    assert fixed.last[0].inner.inner.statistics is None
    obs = np.asarray(fixed.timestep.obs).reshape(-1, 4)
    assert np.all(np.abs(obs.mean(0)) < 0.3)
    assert np.all((0.4 < obs.std(0)) & (obs.std(0) < 1.1))
    with pytest.raises(ValueError, match="`frozen` statistics must be given"):
        NormalizeObservation(ENV, frozen=True)
    with pytest.raises(ValueError, match=r"shape \(8, 4\).*merged"):
        NormalizeObservation(ENV, out.last[0].statistics)


@pytest.mark.parametrize("number", (1, 3))
@pytest.mark.quick_cases("3")
def test_stack(number):
    env = StackObservation(ENV, number)
    state, first = env.reset(jr.key(0))
    plain, begin = ENV.reset(jr.key(0))
    actions = jr.uniform(jr.key(1), (5, 2))
    _, raw = steps(ENV, plain, actions)
    _, seen = steps(env, state, actions)
    history = [begin.obs] * number
    assert np.array_equal(first.obs, jnp.concatenate(history))
    for a, b in zip(raw, seen, strict=True):
        history = [*history[1:], a.obs]
        assert np.array_equal(b.obs, jnp.concatenate(history))
    with pytest.raises(ValueError, match="number.*got 0"):
        StackObservation(ENV, 0)


def test_select():
    """The entries in their order, also of what an episode ended with."""
    env = AutoReset(SelectObservation(TimeLimit(ENV, 2), [3, 0]))
    whole = AutoReset(TimeLimit(ENV, 2))
    still = lambda obs, key: jnp.ones(2)
    found, full = (eqsim.rollout(e, still, jr.key(0), 5) for e in (env, whole))
    for name in ("obs", "final_obs"):
        expected = np.asarray(vars(full.timestep)[name])[:, [3, 0]]
        assert np.array_equal(vars(found.timestep)[name], expected)
    assert np.array_equal(found.obs, full.obs[:, np.array([3, 0])])
    for wrong in ((), (4,), (-1,), (1, 1)):
        with pytest.raises(ValueError, match="different integers from 0 to 3"):
            SelectObservation(ENV, wrong)
    with pytest.raises(ValueError, match="SelectObservation"):
        SelectObservation(AutoReset(TimeLimit(ENV, 2)), (0,))


def test_history_ends_with_the_episode():
    env = AutoReset(StackObservation(TimeLimit(ENV, 2), 3))
    policy = lambda obs, key: push(obs[-4:], key)
    out = eqsim.rollout(env, policy, jr.key(0), 6)
    obs, done = np.asarray(out.timestep.obs), np.asarray(out.timestep.done)
    assert np.sum(done) == 3
    first = obs[done].reshape(3, 3, 4)
    assert np.array_equal(first[:, 0], first[:, 2])
    final = np.asarray(out.timestep.final_obs)[done].reshape(3, 3, 4)
    assert not np.array_equal(final[:, 0], final[:, 2])


def test_noise():
    """Zero mean, the given deviations; the bias stays through an episode."""
    env = NoisyObservation(ENV, jnp.array([0.1, 0.2, 0.0, 0.4]), 0.3)
    policy = lambda obs, key: jnp.zeros(2)
    out = eqsim.rollout(env, policy, jr.split(jr.key(0), 600), 8)
    state = jnp.concatenate([out.state.inner.q, out.state.inner.qd], axis=-1)
    noise = np.asarray(out.obs - state)
    bias = noise.mean(axis=1)
    np.testing.assert_allclose(np.std(noise[..., 2], axis=1), 0.0, atol=1e-12)
    within = np.std(noise - bias[:, None], axis=(0, 1)) * np.sqrt(8 / 7)
    np.testing.assert_allclose(within, [0.1, 0.2, 0.0, 0.4], rtol=0.05, atol=1e-12)
    assert np.std(bias[:, 2]) == pytest.approx(0.3, rel=0.1)
    assert np.all(np.abs(noise.mean(axis=(0, 1))) < 0.06)
    # Rewards and the robot do not feel it.
    plain = eqsim.rollout(ENV, policy, jr.key(0), 8)
    assert np.all(plain.timestep.terms["ctrl"] == out.timestep.terms["ctrl"][0])


def test_noise_is_a_number():
    compiled = eqx.filter_jit(lambda env, key: env.reset(key)[1].obs)
    seen = [compiled(NoisyObservation(ENV, scale), jr.key(0)) for scale in (0.0, 0.1)]
    assert compiled._cached._cache_size() == 1
    assert not np.array_equal(*seen)
    with pytest.raises(ValueError, match="`NoisyObservation.noise` must be at least 0"):
        NoisyObservation(ENV, -0.1)
    with pytest.raises(
        ValueError, match=r"noise` must .* 4 entries .* got shape \(3,\)"
    ):
        NoisyObservation(ENV, jnp.zeros(3))


def test_statistics_do_not_saturate():
    """In single precision, one more than 2^24 is 2^24."""
    with jax.enable_x64(False):
        long = RunningStatistics(*map(jnp.asarray, (2.0**24, [0.0], [2.0**24])))
        obs = 2.0 + jr.normal(jr.key(0), (2**20, 1))
        add = lambda k, statistics: statistics.with_one(obs[k % 2**20])
        seen = jax.jit(lambda s: jax.lax.fori_loop(0, 2**23, add, s))(long)
        np.testing.assert_allclose(seen.variance, 1.0, rtol=0.1)
        np.testing.assert_allclose(seen.mean, 2.0, rtol=0.01)


def truth(sys, state):
    return jnp.concatenate([state.q, state.qd, sys.links.mass])


MASSES = randomize.masses(0.5, 2.0)


def test_privileged_observations_are_those_of_the_episode():
    """Of each state and of the robot that was drawn, without the noise of the rest."""
    noisy = NoisyObservation(DomainRandomization(Rail(), MASSES), 0.1)
    env = AutoReset(TimeLimit(PrivilegedObservation(noisy, truth), 4))
    act = lambda obs, key: push(obs["obs"], key)
    out = eqsim.rollout(env, act, jr.split(jr.key(0), 3), 6)
    sys = jax.vmap(jax.vmap(lambda state: episode_robot(env, state)))(out.state)
    physics = env.physics(out.state)
    plain = jnp.concatenate([physics.q, physics.qd], axis=-1)
    expected = jnp.concatenate([plain, sys.links.mass], axis=-1)
    np.testing.assert_array_equal(out.obs["privileged"], expected)
    off = np.abs(np.asarray(out.obs["obs"] - plain))
    assert np.all(off.max(axis=-1) > 0.0)
    # The time limit of 4 steps: the robot of the next episode is another.
    masses = np.asarray(sys.links.mass[..., 0])
    assert np.all(masses[:, 0] != masses[:, -1]) and len(set(masses[:, 0])) == 3


def test_privileged_joins_a_dictionary_and_refuses_a_second_one():
    both = PrivilegedObservation(PrivilegedObservation(Rail(), truth), truth)
    with pytest.raises(ValueError, match="already has a part `privileged`"):
        both.reset(jr.key(0))
    with pytest.raises(ValueError, match=r"Write `AutoReset\(PrivilegedObservation"):
        PrivilegedObservation(AutoReset(TimeLimit(Rail(), 3)), truth)


def test_parts_of_observations_are_refused():
    text = (
        r"needs observations of one array each.*\['obs'\], \['privileged'\]. Leave out"
    )
    for wrap in (
        NormalizeObservation,
        lambda env: NoisyObservation(env, 0.1),
        lambda env: SelectObservation(env, (0,)),
        lambda env: DomainRandomization(env, MASSES, observe_context=True),
    ):
        with pytest.raises(ValueError, match=text):
            wrap(PrivilegedObservation(Rail(), truth))
