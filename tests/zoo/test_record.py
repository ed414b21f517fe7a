"""What is recorded is what happened; and the command that records."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from toys import push, Rail
from zoo.commands import run, SHORT
from zoo.datasets import assert_same
from zoo.search import Search

import eqsim
from eqsim import AutoReset, TimeLimit
from eqsim.wrappers import ResetMode
from eqsim_zoo import evaluate
from eqsim_zoo.blocks import Squash
from eqsim_zoo.data import (
    About,
    Dataset,
    from_trajectory,
    load_data,
    noisy_policy,
    RandomPolicy,
    record,
    recording as _record,
)
from eqsim_zoo.data.recording import _fill, measured_returns
from eqsim_zoo.training.evaluation import evaluate_policy


LIMIT = 5
ENV = Rail(1, edge=0.25, noise=0.15)
RANGE = np.array([[-2.0, 3.0]])


def assert_happened(env, steps):
    """Each action, taken again where it was taken, gives the same."""

    @eqx.filter_jit
    def again(obs, action):
        def one(obs, action):
            state, _ = env.reset(jr.key(0), {"q": obs[:1], "qd": obs[1:]})
            return env.step(state, action)[1]

        return jax.vmap(one)(obs, action)

    found = again(jnp.asarray(steps.obs), jnp.asarray(steps.action))
    np.testing.assert_allclose(found.obs, steps.next_obs, rtol=1e-12)
    np.testing.assert_allclose(found.reward, steps.reward, rtol=1e-12)
    np.testing.assert_array_equal(found.terminated, steps.terminated)


def test_steps_happened():
    """Exactly as many as asked for, one after the other; episodes end at the time limit,
    at their end, and where the recording of an environment stops."""
    call = {"steps": 90.0, "num_envs": 4, "episode_length": LIMIT, "pool_size": 6}
    data = record(ENV, push, jr.key(0), name="rail", **call)
    assert len(data) == 90 and data.about == About("rail")
    np.testing.assert_array_equal(data.bounds, RANGE)
    steps = data.steps()
    assert_happened(ENV, steps)
    # 23 steps each, but 21 of the last one.
    stops = {22, 45, 68, 89}
    starts = set()
    for span in data.spans():
        inside = slice(span.start, span.stop - 1)
        after = slice(span.start + 1, span.stop)
        np.testing.assert_array_equal(steps.next_obs[inside], steps.obs[after])
        end = span.stop - 1
        assert len(span) == LIMIT or steps.terminated[end] or end in stops
        assert len(span) <= LIMIT and not steps.terminated[inside].any()
        starts.add(steps.obs[span.start].tobytes())
    assert stops <= {*data.ends().tolist()} and steps.terminated.any()
    assert len(starts) <= 6 and not np.all(data.mask == 0.0)
    assert len({x.tobytes() for x in steps.action}) == 90
    assert_same(record(ENV, push, jr.key(0), name="rail", **call), data)
    other = record(ENV, push, jr.key(1), **call)
    assert not np.array_equal(other.reward, data.reward)
    # True resets, one environment.
    few = record(ENV, push, jr.key(0), steps=12, episode_length=100, pool_size=0)
    assert_happened(ENV, few.steps())
    assert len(few) == 12


def test_pieces_make_no_difference(monkeypatch):
    """Where a recording is too long for the device."""
    policy = lambda obs, key: 2.0 * obs[:1] - 0.5
    call = {"steps": 50, "num_envs": 3, "episode_length": LIMIT, "pool_size": 4}
    whole = record(ENV, policy, jr.key(3), **call)
    # Of each of the three, two numbers of 8 bytes, three times; 4 steps at once.
    monkeypatch.setattr("eqsim_zoo.data.recording._MOST", 4 * 3 * 2 * 8 * 3)
    assert_same(record(ENV, policy, jr.key(3), **call), whole)
    expected = np.asarray(jax.vmap(policy)(whole.steps().obs, jr.split(jr.key(0), 50)))
    np.testing.assert_allclose(whole.steps().action, expected, rtol=1e-12)


def test_actions_are_taken_between_their_bounds():
    wild = lambda obs, key: 10.0 * jr.normal(key, (1,))
    steps = record(ENV, wild, jr.key(0), steps=30, episode_length=LIMIT).steps()
    assert {-2.0, 3.0} <= {*steps.action.ravel().tolist()}
    assert_happened(ENV, steps)


class Both(Rail):
    """A rail that is seen as a vector and as a small picture."""

    def observe(self, state, action):
        shade = jnp.clip(128 + 100 * state.q, 0, 255).astype(jnp.uint8)
        picture = jnp.broadcast_to(shade[:, None, None], (1, 2, 3))
        return {"vector": jnp.concatenate([state.q, state.qd]), "picture": picture}


@pytest.mark.slow
def test_dictionaries():
    env = Both(1, edge=0.25)
    policy = lambda obs, key: obs["vector"][:1]
    call = {"steps": 20, "num_envs": 2, "episode_length": LIMIT, "pool_size": 3}
    data = record(env, policy, jr.key(0), **call)
    steps = data.steps()
    pictures, vector = steps.next_obs["picture"], steps.next_obs["vector"]
    assert pictures.dtype == np.uint8 and pictures.shape == (20, 1, 2, 3)
    shade = np.clip(128 + 100 * vector[:, :1], 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(pictures[:, :, 0, 0], shade)
    trajectory = eqsim.rollout(env, policy, jr.key(0), 3)
    assert len(from_trajectory(trajectory, env)) == 3


@pytest.mark.parametrize(
    "name, value, rule",
    (
        ("steps", 1.5, "must be an integer of at least 1"),
        ("num_envs", 9, "is 9; expected .* number of steps, 8"),
        ("num_envs", 0, "must be an integer of at least 1"),
        ("episode_length", 0, "must be an integer of at least 1"),
        ("pool_size", -1, "must be an integer of at least 0"),
    ),
)
def test_refusals(name, value, rule):
    with pytest.raises(ValueError, match=f"`{name}` {rule}(, got {value})?"):
        record(ENV, push, jr.key(0), **{"steps": 8} | {name: value})


def test_environments_that_are_refused():
    with pytest.raises(
        ValueError, match="`AutoReset` is kept across episodes, but eqsim-zoo"
    ):
        record(AutoReset(TimeLimit(ENV, 3)), push, jr.key(0), steps=8)
    with pytest.raises(
        ValueError, match=r"The action bounds of `Squash` are \[\[-inf, inf"
    ):
        record(Squash(ENV), push, jr.key(0), steps=8)
    nan = lambda obs, key: jnp.full(1, jnp.nan)
    with pytest.raises(ValueError, match="is not finite in"):
        record(ENV, nan, jr.key(0), steps=4, num_envs=2, pool_size=0)


@pytest.mark.slow
def test_policies():
    """Random actions fill their bounds evenly; noise is in units of half their range, and
    an agent is asked with a key or without one."""
    keys, obs = jr.split(jr.key(0), 2000), jnp.array([0.3, 0.1])
    drawn = lambda policy: np.asarray(jax.vmap(lambda key: policy(obs, key))(keys))[
        :, 0
    ]
    bounds = jnp.asarray(RANGE)
    uniform = np.sort(drawn(RandomPolicy(bounds)))
    np.testing.assert_allclose(uniform, np.linspace(-2, 3, 2000), atol=0.2)
    still = lambda obs, key: 0.5 * jnp.ones(1)
    noisy = drawn(noisy_policy(still, bounds, 0.1))
    assert abs(noisy.mean() - 0.5) < 0.02 and abs(noisy.std() / 0.25 - 1.0) < 0.1
    assert drawn(noisy_policy(still, bounds, 10.0)).max() == 3.0
    agent = Search()
    state = agent.init(jr.key(0), AutoReset(TimeLimit(ENV, LIMIT)))
    key = keys[0]
    drawn = eqsim.agent_policy(agent, state, sample=True)
    assert_same(drawn(obs, key), agent.act(state, obs, key=key))
    assert_same(eqsim.agent_policy(agent, state)(obs, key), agent.act(state, obs))
    one = evaluate(agent, state, ENV, key, episodes=3, episode_length=LIMIT)
    two = evaluate_policy(
        eqsim.agent_policy(agent, state), ENV, key, episodes=3, episode_length=LIMIT
    )
    np.testing.assert_array_equal(one.returns, two.returns)


class Counter(eqsim.AbstractController):
    """Acts with the number of its actions in the episode."""

    def init(self, state, key):
        return jnp.zeros(1)

    def act(self, memory, state, obs, key):
        return memory + 1.0, memory


@pytest.mark.slow
def test_memory_of_a_controller(monkeypatch):
    """It begins with each episode, and lasts from one piece of a recording to the next;
    actions are clipped, with noise and without."""
    env, key = Rail(1, edge=99.0), jr.key(0)
    go = lambda policy: record(env, policy, key, steps=28, num_envs=2, episode_length=6)
    whole = go(Counter()).rows(jnp.arange(28))
    # A dataset has actions between -1 and 1.
    expected = np.tile(np.minimum(np.arange(14) % 6, 3.0) - 0.5, 2) / 2.5
    np.testing.assert_allclose(whole.action[:, 0], expected, rtol=1e-12)
    monkeypatch.setattr(_record, "_MOST", 500)
    pieces = []
    monkeypatch.setattr(_record, "_fill", lambda *x: pieces.append(_fill(*x)))
    assert_same(go(Counter()).rows(jnp.arange(28)), whole)
    assert len(pieces) > 1
    noisy = go(noisy_policy(Counter(), jnp.asarray(RANGE), 0.01)).rows(jnp.arange(28))
    difference = np.asarray(noisy.action)[:, 0] - expected
    assert 0.0 < np.std(difference) < 0.02 and noisy.action.max() == 1.0


DONE = lambda timestep: timestep.done
EPISODE = TimeLimit(ENV, LIMIT)
ROLLOUTS = {
    "one, endless": (Rail(1, edge=99.0), (), None),
    "stopped": (EPISODE, (3,), DONE),
    "not stopped": (EPISODE, (2, 2), None),
    "again and again": (AutoReset(EPISODE), (3,), None),
    "resets in steps": (AutoReset(EPISODE, mode=ResetMode.NEXT_STEP), (3,), None),
}


@pytest.mark.parametrize("env, shape, stop", ROLLOUTS.values(), ids=ROLLOUTS)
@pytest.mark.quick_cases("one, endless")
def test_from_a_trajectory(env, shape, stop):
    """By a plain loop over what was reported."""
    keys = jr.split(jr.key(2), shape) if shape else jr.key(2)
    taken = eqsim.rollout(env, push, keys, 12, stop=stop)
    data = from_trajectory(taken, env, about=About("rail"))
    steps, timestep = data.steps(), taken.timestep
    rows = [*itertools.product(*map(range, shape))]
    at, ends = 0, []
    for row in rows:
        over = False
        for t in range(12):
            k = (*row, t)
            begins = bool(timestep.first[k])
            if over and not isinstance(env, AutoReset) or begins:
                continue
            led_to = timestep.obs if timestep.final_obs is None else timestep.final_obs
            np.testing.assert_array_equal(steps.obs[at], taken.obs[k])
            np.testing.assert_array_equal(steps.action[at], taken.action[k])
            np.testing.assert_array_equal(steps.reward[at], timestep.reward[k])
            np.testing.assert_array_equal(steps.next_obs[at], led_to[k])
            assert steps.terminated[at] == timestep.terminated[k]
            over = bool(timestep.done[k])
            ends += [at] if over else []
            at += 1
        ends += [] if over else [at - 1]
    assert len(data) == at
    np.testing.assert_array_equal(data.ends(), ends)
    assert_happened(ENV if env is not ROLLOUTS["one, endless"][0] else env, steps)


@pytest.mark.parametrize("num_envs", (3000, None))
def test_returns_are_not_those_of_short_episodes(num_envs):
    """Episodes of 2 or 10 steps are equally likely. Those that end in 15 steps are not:
    long ones are cut off more often. Rewards are 1."""
    rng, envs = np.random.default_rng(0), num_envs or 64
    done = np.zeros((envs, 15 if num_envs else 1500), bool)
    for row in done:
        ends = np.cumsum(rng.choice((2, 10), size=done.shape[1])) - 1
        row[ends[ends < len(row)]] = True
    cut = ~done
    cut[:, :-1] = False
    obs, flat = np.zeros((done.size, 1)), (done.ravel(), cut.ravel())
    data = Dataset.create(obs, obs, np.ones(done.size), obs, *flat)
    found = measured_returns(data, num_envs, 10)
    error = 4.0 / np.sqrt(len(found))  # Standard error of the mean.
    assert set(found) == {2.0, 10.0} and abs(found.mean() - 6.0) < 3.0 * error
    if num_envs:
        ended = done.ravel()[data.ends()]
        assert data.returns()[ended].mean() < 6.0 - 3.0 * error


@pytest.mark.usefixtures("names")
@pytest.mark.slow
def test_the_command(capsys, tmp_path):
    """Shares of random actions and of an agent, in one file, with what is known of them;
    without a run, only random actions. Nothing is overwritten by mistake."""
    assert run(capsys, f"train search rail {SHORT} --out r")[0] == 0
    policies = "--policy random --policy r --share 1 --share 3 --noise 0.1 --drawn"
    rest = "--steps 200 --num-envs 5 --pool-size 4 --episodes 4 --expert r"
    status, out, err = run(capsys, f"record rail {policies} {rest} --out new/mixed.npz")
    assert status == 0, err
    sources = "random", "Search of r, after 120 steps, drawn, noise 0.1"
    assert f"{sources[0]} 50 5 5 " in out and f"{sources[1]} 150 15 15 " in out
    assert "all 200 20 20 " in out and "wrote new/mixed.npz: 200 steps" in out
    data = load_data(tmp_path / "new" / "mixed.npz")
    assert len(data) == 200 and data.about.env == "rail"
    assert data.about.sources == sources
    lowest, highest = data.about.random_return, data.about.expert_return
    assert (
        lowest < highest and f"actions {lowest:.4g}, of an expert {highest:.4g}" in out
    )
    np.testing.assert_array_equal(np.diff(data.ends(), prepend=-1), 10)
    (tmp_path / "data.npz").write_bytes(b"dear")
    line = "record rail --steps 24 --episode-length 8 --pool-size 0 --random-return -3"
    status, _, err = run(capsys, line)
    assert status == 2 and "'data.npz' already exists" in err and "--overwrite" in err
    assert (tmp_path / "data.npz").read_bytes() == b"dear"
    status, out, _ = run(capsys, f"{line} --overwrite --expert-return 7")
    assert status == 0 and "random 24 3 3 " in out
    assert "random actions -3, of an expert 7" in out
    assert load_data(tmp_path / "data.npz").about.score(2.0) == 50.0
    for line, message in REFUSED_WITH_RUNS.items():
        status, _, err = run(capsys, f"{line} --out x.npz")
        assert status == 2 and message in err, (line, err)
        assert not (tmp_path / "x.npz").exists()


REFUSED_WITH_RUNS = {
    "record hopper --policy r": "The run in 'r' was trained with env 'rail', not with",
    "record rail --expert r --pipeline spring": "with pipeline None, not with 'spring'",
}
WRONG = {
    "record": "ENV",
    "record rai": "Did you mean 'rail'",
    "record rail --policy r": "'r' is not the folder of a run",
    "record rail --policy random --share 1 --share 2": "Give one positive `--share`",
    "record rail --steps 0.5": "`--steps` must be an integer",
    "record rail --steps 1 --policy random --policy r": "at least one step for each of 2",
    "record rail --noise -1": "`--seed` must be at least 0",
    "record rail --best --last": "choose one of them",
    "record rail --episodes 0 --steps 2": "`--episodes` at least 1",
    "record rail --num-envs 0": "`num_envs` must be an integer of at least 1, got 0",
}


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments(capsys, tmp_path, line):
    """Status 2 and a sentence; nothing is written."""
    status, _, err = run(capsys, line)
    assert status == 2 and WRONG[line] in err, err
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("names")
def test_what_a_rollout_wrote(capsys, tmp_path):
    """`eqsim rollout` writes a file that is read as a dataset."""
    status, _, err = run(capsys, "rollout rail --num-envs 2 --length 6 --out a")
    assert status == 0, err
    data = load_data(tmp_path / "a.npz", bounds=[[-2.0, 3.0]] * 2)
    with np.load(tmp_path / "a.npz") as file:
        seen, taken = file["observations"], file["actions"]
        valid = file["valid"]
    np.testing.assert_array_equal(data.steps().obs, seen[valid])
    np.testing.assert_array_equal(data.steps().action, taken[valid])
    assert {5, 11} <= {*data.ends().tolist()}
