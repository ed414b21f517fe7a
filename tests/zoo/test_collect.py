"""What is collected is what single steps report, and an episode is summed once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import tree_allclose
from toys import push, Rail

from eqsim import AutoReset, TimeLimit
from eqsim.testing import probes
from eqsim.wrappers import NormalizeObservation, ResetMode
from eqsim_zoo import PPO
from eqsim_zoo.blocks.collecting import (
    add_steps,
    check_env,
    collect,
    flatten_time,
    reset_envs,
)


AGENT, NUMBER, LENGTH, LIMIT = PPO(), 4, 7, 5
ENV = AutoReset(TimeLimit(Rail(1, edge=0.25, noise=0.15), LIMIT))


@eqx.filter_jit
def start(env, key):
    return reset_envs(AGENT, env, key, NUMBER)


@eqx.filter_jit
def go(env, running, key):
    return collect(env, push, running, key, LENGTH)


@pytest.fixture(scope="module")
def collected():
    """Environments in the beginning, and what three calls gave."""
    running = start(ENV, jr.key(0))
    out = [(running, None, None)]
    for k in range(3):
        out.append(go(ENV, out[-1][0], jr.key(k + 1)))
    return out


class Tracker(Rail):
    """It is told to stay."""

    def tracking(self, state):
        return {"place, m": (jnp.zeros(()), state.q[0])}


def test_what_a_task_shows():
    """Means over the environments after the last step."""
    env = AutoReset(TimeLimit(Tracker(1, edge=0.25, noise=0.15), LIMIT))
    running, _, report = go(env, start(env, jr.key(0)), jr.key(1))
    places = jax.vmap(env.physics)(running.state).q[:, 0]
    np.testing.assert_allclose(report["task/place error, m"], np.abs(places).mean())


def of(tree, *index):
    return jtu.tree_map(lambda x: x[index], tree)


def test_transitions_are_steps(collected):
    """In a plain loop over the environment without resets, the actions that were taken
    give the same: observations before and after, rewards, and both flags."""
    step, inner_step = eqx.filter_jit(ENV.step), eqx.filter_jit(ENV.env.step)
    seen = set()
    for (running, *_), (end, steps, _) in zip(collected, collected[1:]):
        assert steps.reward.shape == (NUMBER, LENGTH)
        for i in range(NUMBER):
            state, timestep = of(running.state, i), of(running.timestep, i)
            for t in range(LENGTH):
                found, obs = of(steps, i, t), timestep.obs
                _, inner = inner_step(state.inner, found.action)
                state, timestep = step(state, found.action)
                expected = (
                    obs,
                    inner.reward,
                    inner.obs,
                    inner.terminated,
                    inner.truncated,
                )
                kept = found.obs, found.reward, found.next_obs
                flags = found.terminated, found.truncated
                assert tree_allclose((*kept, *flags), expected, rtol=1e-12)
                ends = bool(inner.done)
                assert ends == bool(found.done)
                # After an end an episode begins elsewhere.
                same = np.allclose(found.next_obs, timestep.obs, rtol=1e-9)
                assert ends != same
                seen.add((bool(found.terminated), bool(found.truncated)))
            assert tree_allclose(of(end.state, i), state, rtol=1e-12)
            assert tree_allclose(of(end.obs, i), timestep.obs, rtol=1e-12)
    assert {(True, False), (False, True), (False, False)} <= seen


def test_policy_sees_and_draws(collected):
    """It is given what was observed; each environment and each step has its own key."""
    policy = eqx.filter_jit(lambda obs, key: 2.0 * obs[:1] - obs[1:])
    again = eqx.filter_jit(collect)(ENV, policy, collected[0][0], jr.key(9), LENGTH)
    _, steps, _ = again
    expected = 2.0 * steps.obs[..., :1] - steps.obs[..., 1:]
    np.testing.assert_allclose(steps.action, expected, rtol=1e-12)
    drawn = np.concatenate([np.ravel(steps.action) for _, steps, _ in collected[1:]])
    assert len(np.unique(drawn)) == drawn.size


def test_episodes_are_summed_once(collected):
    """By a plain loop, also over the ends of calls; means stay where no episode ended, and
    are NaN before the first one has."""
    returns, lengths = np.zeros(NUMBER), np.zeros(NUMBER)
    last, longest = np.full(2, np.nan), 0
    for running, steps, report in collected[1:]:
        ended = []
        for i in range(NUMBER):
            for t in range(LENGTH):
                returns[i] += steps.reward[i, t]
                lengths[i] += 1
                if steps.terminated[i, t] or steps.truncated[i, t]:
                    ended.append((returns[i], lengths[i]))
                    returns[i] = lengths[i] = 0.0
        last = np.mean(ended, axis=0) if ended else last
        longest = max(longest, *(length for _, length in ended))
        found = report["return"], report["length"]
        np.testing.assert_allclose(found, last, rtol=1e-12)
        assert report["episodes"] == len(ended)
        assert report["steps"] == NUMBER * LENGTH
        np.testing.assert_allclose(running.returns, returns, rtol=1e-12)
        np.testing.assert_array_equal(running.lengths, lengths)
    assert longest == LIMIT


def test_no_end_keeps_the_last_means():
    env = AutoReset(TimeLimit(Rail(1, edge=1e9), 10**6))
    running = start(env, jr.key(0))
    running = eqx.tree_at(lambda r: r.last, running, jnp.array([3.0, 4.0]))
    running, _, report = go(env, running, jr.key(1))
    assert report["episodes"] == 0.0
    assert report["return"] == 3.0 and report["length"] == 4.0
    np.testing.assert_array_equal(running.lengths, LENGTH)


def test_rows(collected):
    steps = collected[1][1]
    rows = flatten_time(steps)
    for i in range(NUMBER):
        for t in range(LENGTH):
            assert tree_allclose(of(rows, i * LENGTH + t), of(steps, i, t))


@pytest.mark.parametrize("env", (ENV, probes.constant_reward()), ids=("rail", "probe"))
def test_arrays_are_apart(env):
    """Also without jit: each can be donated, and the environment stays."""
    state = AGENT.init(jr.key(0), env)
    leaves = [x for x in jtu.tree_leaves((state, env)) if eqx.is_array(x)]
    data = lambda x: (
        jr.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    )
    pointers = [data(x).unsafe_buffer_pointer() for x in leaves]
    own = len(jtu.tree_leaves(state))
    assert len(set(pointers[:own])) == own
    assert not set(pointers[:own]) & set(pointers[own:])


class Matrix(Rail):
    """Rails that are observed as a matrix."""

    def observe(self, state, action):
        return jnp.stack([state.q, state.qd])


REFUSED = {
    "no reset": (Rail(1), "`Rail` does not reset itself"),
    "no reset but a limit": (TimeLimit(Rail(1), 5), "AutoReset"),
    "statistics are no reset": (
        NormalizeObservation(TimeLimit(Rail(1), 5)),
        "does not reset itself",
    ),
    "resets in steps of their own": (
        AutoReset(TimeLimit(Rail(1), 5), mode=ResetMode.NEXT_STEP),
        "some steps are resets",
    ),
    "a matrix": (AutoReset(TimeLimit(Matrix(1), 5)), "one real vector"),
}


@pytest.mark.parametrize("env, message", REFUSED.values(), ids=REFUSED)
def test_refusals(env, message):
    with pytest.raises(ValueError, match=message):
        reset_envs(AGENT, env, jr.key(0), 2)


def test_accepted():
    check_env(AGENT, ENV)
    check_env(AGENT, NormalizeObservation(ENV))
    check_env(AGENT, probes.constant_reward())


def test_counters_saturate():
    """Where int32 would wrap around to random actions."""
    most, report = 2**31 - 1, {"steps": jnp.array(100.0)}
    for before, after in ((5, 105), (most - 100, most), (most - 3, most), (most, most)):
        found = add_steps(report, jnp.asarray(before, jnp.int32))
        assert found.dtype == jnp.int32 and int(found) == after
