"""Time limits, resets, repeated actions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from toys import push, Rail, steps

import eqsim
from eqsim.wrappers import (
    ActionRepeat,
    AutoReset,
    nested_envs,
    NoisyObservation,
    pool_resets,
    PooledResets,
    ResetMode,
    TimeLimit,
)


def test_time_limit():
    """Truncated, and not terminated; a length is a number, which does not recompile."""
    compiled = eqx.filter_jit(lambda env, state: env.step(state, jnp.zeros(2)))
    for length in (1, 3):
        env = TimeLimit(Rail(), length)
        state, first = env.reset(jr.key(0))
        assert not first.truncated and first.first
        for count in range(1, 5):
            state, timestep = compiled(env, state)
            assert bool(timestep.truncated) == (count >= length)
            assert not bool(timestep.terminated) and not bool(timestep.first)
    assert compiled._cached._cache_size() == 1
    env = TimeLimit(Rail(edge=1e-6), 1)
    _, timestep = env.step(env.reset(jr.key(0))[0], jnp.ones(2))
    assert timestep.terminated and not timestep.truncated
    traced = jnp.asarray(3)
    count = jax.jit(lambda key: TimeLimit(Rail(), traced).reset(key)[0].count)
    assert int(count(jr.key(0))) == 0
    for wrong in (0, 10.9, jnp.zeros(()), jnp.asarray(0)):
        with pytest.raises((ValueError, TypeError), match="length"):
            TimeLimit(Rail(), wrong)  # pyright: ignore


def test_reset_in_the_same_step():
    """Each episode begins as `reset` with the key of that step would; nothing is lost."""
    inner = TimeLimit(Rail(), 3)
    env, keys = AutoReset(inner), []
    state, first = env.reset(jr.key(0))
    assert np.array_equal(first.final_obs, first.obs)
    actions = jr.uniform(jr.key(1), (7, 2))
    for step, action in enumerate(actions, 1):
        expected_state, expected = inner.step(state.inner, action)
        keys.append(jr.key_data(jr.split(state.key)[0]))
        fresh_state, fresh = inner.reset(jr.split(state.key)[0])
        state, timestep = env.step(state, action)
        assert np.array_equal(timestep.final_obs, expected.obs)
        assert np.array_equal(timestep.reward, expected.reward)
        assert not timestep.first
        if step % 3 == 0:
            assert timestep.truncated and not timestep.terminated
            np.testing.assert_allclose(timestep.obs, fresh.obs, rtol=1e-12)
            assert tree_allclose(state.inner, fresh_state, rtol=1e-12, atol=0.0)
        else:
            assert not timestep.truncated
            assert np.array_equal(timestep.obs, expected.obs)
            assert tree_allclose(state.inner, expected_state, rtol=0.0, atol=0.0)
    assert len({tuple(np.ravel(k)) for k in keys}) == len(keys)


def test_reset_in_the_next_step():
    """The observation that ended an episode is reported as it is; then comes a step
    that only resets."""
    env = AutoReset(TimeLimit(Rail(), 2), mode=ResetMode.NEXT_STEP)
    state, _ = env.reset(jr.key(0))
    actions = jr.uniform(jr.key(1), (7, 2))
    _, reports = steps(env, state, actions)
    assert [bool(t.first) for t in reports] == [False, False, True] * 2 + [False]
    assert [bool(t.truncated) for t in reports] == [False, True, False] * 2 + [False]
    for t in reports:
        assert np.array_equal(t.obs, t.final_obs)
        assert (float(t.reward) == 0.0) == bool(t.first)
    # The action of the reset has no effect.
    _, other = steps(env, state, actions.at[2].set(9.0))
    assert tree_allclose(other, reports, rtol=0.0, atol=0.0)


def test_termination_in_a_scan():
    """`final_obs`, `terminated` and `truncated` through many episodes of a compiled loop."""
    env = AutoReset(TimeLimit(Rail(edge=0.2, noise=0.05), 15))
    out = eqsim.rollout(env, push, jr.split(jr.key(0), 4), 100)
    t = out.timestep
    assert np.any(t.terminated) and np.any(t.truncated)
    beyond = np.max(np.abs(t.final_obs[..., :2]), axis=-1) > 0.2
    assert np.array_equal(beyond, t.terminated)
    done = np.asarray(t.terminated | t.truncated)
    assert np.array_equal(t.obs[~done], t.final_obs[~done])
    # After an episode robots stand near the middle, at rest.
    assert np.all(t.obs[done][:, 2:] == 0.0) and np.all(
        np.abs(t.obs[done][:, :2]) < 0.2
    )
    starts = t.obs[done][:, 0]
    assert len(np.unique(starts)) == len(starts)
    # Observations of the trajectory are the ones that the policy saw.
    assert np.array_equal(out.obs[:, 1:], t.obs[:, :-1])
    length = np.asarray(out.episodes().length)
    assert np.all(length[np.asarray(t.truncated) & ~np.asarray(t.terminated)] == 15)
    assert np.max(length) == 15


def test_pool():
    """Starts come out of the pool, also the first; all of them in the long run."""
    inner = TimeLimit(Rail(), 2)
    pool = pool_resets(inner, jr.key(3), 5)
    assert isinstance(pool, PooledResets)
    env = AutoReset(pool)
    out = eqsim.rollout(env, push, jr.split(jr.key(0), 8), 40)
    done = np.asarray(out.timestep.truncated)
    known = np.asarray(pool.starts[1].obs)
    ends = np.asarray(out.timestep.obs)[done]
    first = np.asarray(out.obs)[:, 0]
    assert all(np.any(np.all(known == obs, axis=-1)) for obs in first)
    found = {int(np.argmin(np.abs(known - obs).max(-1))) for obs in ends}
    gaps = [np.abs(known - obs).max(-1).min() for obs in ends]
    assert max(gaps) == 0.0 and found == set(range(5))
    # Options are not drawn from it.
    given = {"q": jnp.array([0.3, 0.1]), "qd": jnp.zeros(2)}
    state, _ = pool.reset(jr.key(0), given)
    assert tree_allclose(env.env.physics(state).q, given["q"])
    with pytest.raises(ValueError, match="`size` must be .* at least 1"):
        pool_resets(inner, jr.key(3), 0)


def test_noise_of_a_pool_is_new():
    """One start, but not the same noise, from the first observation on."""
    inner = TimeLimit(NoisyObservation(Rail(noise=0.0), 0.1), 2)
    env = AutoReset(pool_resets(inner, jr.key(3), 1))
    still = lambda obs, key: jnp.zeros(2)
    out = eqsim.rollout(env, still, jr.split(jr.key(0), 3), 40)
    for obs in (out.obs, out.timestep.final_obs):
        # All entries differ by the noise alone.
        seen = np.asarray(obs)[:, 3::2, 0].ravel()
        assert len(np.unique(seen)) == len(seen)


def test_place_of_a_pool():
    """Inside all wrappers that draw in every episode, outside of all others within."""
    noisy = lambda env: NoisyObservation(env, 0.1)
    task = Rail()
    for wrap, depth in (
        (lambda env: TimeLimit(env, 2), 0),
        (lambda env: noisy(TimeLimit(env, 2)), 1),
        (lambda env: TimeLimit(noisy(env), 2), 2),
        (lambda env: noisy(TimeLimit(noisy(ActionRepeat(env, 2)), 2)), 3),
    ):
        env = pool_resets(wrap(task), jr.key(0), 3)
        kinds = [type(layer) for layer in nested_envs(env)]
        assert kinds.index(PooledResets) == depth
        without = kinds[:depth] + kinds[depth + 1 :]
        assert without == [type(layer) for layer in nested_envs(wrap(task))]
    # Starts of a robot that is drawn outside would be those of another one.
    draw = eqsim.randomize.masses(0.5, 2.0)
    outside = eqsim.DomainRandomization(noisy(task), draw)
    assert pool_resets(outside, jr.key(0), 3) is outside
    inside = noisy(eqsim.DomainRandomization(task, draw))
    assert isinstance(pool_resets(inside, jr.key(0), 3).env, PooledResets)


def test_descriptor_outlives_a_reset():
    """It is that of what the action led to."""
    task = eqsim.wrappers.TorsoPosition(Rail())
    env = AutoReset(TimeLimit(task, 1))
    state, _ = env.reset(jr.key(0))
    _, timestep = env.step(state, jnp.ones(2))
    # The first mass slides along x.
    assert np.array_equal(timestep.descriptor, [timestep.final_obs[0], 0.0])
    assert timestep.descriptor[0] != timestep.obs[0]
    assert task.descriptor_names == ("x", "y")
    assert np.array_equal(task.descriptor_range, [[-30.0, 30.0]] * 2)


def test_repeated_action():
    task, actions = Rail(edge=0.05, noise=0.0), jnp.array([[1.0, 0.5], [2.0, -1.0]])
    env = ActionRepeat(task, 3)
    assert float(env.dt) == pytest.approx(3 * float(task.dt))
    state, _ = env.reset(jr.key(0))
    for action in actions:
        expected, total, terms = state, 0.0, {"place": 0.0, "ctrl": 0.0}
        ended = False
        for _ in range(3):
            if not ended:
                expected, t = task.step(expected, action)
                total, ended = total + t.reward, bool(t.done)
                terms = {k: terms[k] + v for k, v in t.terms.items()}
        state, timestep = env.step(state, action)
        assert tree_allclose(state, expected, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(timestep.reward, total, rtol=1e-12)
        for name, value in terms.items():
            np.testing.assert_allclose(timestep.terms[name], value, rtol=1e-12)
    # The second action went over the edge, and was not held to the end.
    assert bool(timestep.terminated)
    with pytest.raises(ValueError, match="repeat.*got 0"):
        ActionRepeat(task, 0)


def test_episode_statistics():
    """Against sums by hand, with resets of both kinds and without."""
    for mode in ResetMode:
        env = AutoReset(TimeLimit(Rail(edge=0.3), 7), mode=mode)
        out = eqsim.rollout(env, push, jr.split(jr.key(2), 3), 40)
        got = jax.tree.map(np.asarray, out.episodes())
        reward, first = np.asarray(out.timestep.reward), np.asarray(out.timestep.first)
        done = np.asarray(out.timestep.done)
        for k in range(3):
            total = length = 0
            for t in range(40):
                if not first[k, t]:
                    total, length = total + reward[k, t], length + 1
                assert got.ended[k, t] == done[k, t]
                assert got.length[k, t] == length
                np.testing.assert_allclose(
                    got.returns[k, t], total, rtol=1e-9, atol=1e-12
                )
                if done[k, t]:
                    total = length = 0
        mean = out.episodes().mean()
        assert mean["episodes"] == done.sum()
        assert mean["return"] == pytest.approx(got.returns[done].mean())
        terms = sum(mean[name] for name in ("place", "ctrl"))
        assert mean["return"] == pytest.approx(terms)
    short = eqsim.rollout(Rail(), push, jr.key(0), 3).episodes().mean()
    assert short["episodes"] == 0 and np.isnan(short["return"])
