"""What a dataset holds is what it was made of, wherever it is, however it is drawn from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, strategies as st
from toys import Rail
from zoo.datasets import (
    ABOUT,
    assert_same,
    BOUNDS,
    created,
    dictionaries,
    recorded,
    vectors,
)

from eqsim.wrappers import ScaleAction
from eqsim_zoo.data import (
    About,
    check_fits,
    Dataset,
    HostArray,
    joined,
    with_scaled_rewards,
)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4),
    st.sets(st.integers(0, 11)),
    st.sampled_from([vectors, dictionaries]),
)
def test_packing_is_lossless(trajectories, breaks, make):
    """All arrays come back; an observation that leads from step to step is there once."""
    lengths, ends = zip(*trajectories)
    given_ = recorded(lengths, ends, breaks, make)
    data = Dataset.create(**given_, bounds=BOUNDS, about=ABOUT)
    steps = data.steps()
    assert_same(steps._asdict(), given_)
    over = np.flatnonzero(given_["terminated"] | given_["truncated"])
    np.testing.assert_array_equal(data.ends(), over)
    assert [len(span) for span in data.spans()] == [*lengths]
    number = sum(lengths)
    inside = {k for k in breaks if k < number} - {*over.tolist()}
    (frames, *_) = {len(x) for x in jtu.tree_leaves(data.frames)}
    assert frames == number + len(lengths) + len(inside)


def test_zero_has_two_signs():
    obs = np.array([[0.0], [-0.0]])
    next_obs = np.array([[0.0], [1.0]])
    rest = np.zeros((2, 1)), np.zeros(2), next_obs, [False, False], [False, False]
    steps = Dataset.create(obs, *rest).steps()
    assert_same((steps.obs, steps.next_obs), (obs, next_obs))


@pytest.mark.parametrize("make", (vectors, dictionaries))
def test_rows(make):
    """Actions are between -1 and 1; masks and ends are kept apart."""
    given_ = recorded((4, 1, 3), (False, True, True), {1}, make)
    data = Dataset.create(**given_, bounds=BOUNDS)
    np.testing.assert_array_equal(data.mask, [1, 1, 1, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(data.terminal, [0, 0, 0, 1, 1, 0, 0, 1])
    index = jnp.array([[7, 0], [3, 1]])
    rows = data.rows(index)
    for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
        expected = jtu.tree_map(lambda x: x[np.asarray(index)], given_[name])
        assert_same(vars(rows)[name], expected)
    low, high = BOUNDS.T
    expected = 2.0 * (given_["action"][np.asarray(index)] - low) / (high - low) - 1.0
    np.testing.assert_allclose(rows.action, expected, rtol=1e-12, atol=1e-12)
    assert_same(data.trajectory(2), data.rows(jnp.arange(5, 8)))
    sums = [given_["reward"][span].sum() for span in (slice(0, 4), 4, slice(5, 8))]
    np.testing.assert_allclose(data.returns(), sums, rtol=1e-12)


def test_actions_in_the_middle_are_zero():
    data = Dataset.create(
        np.zeros((1, 1)), [[0.5, 0.5]], [0.0], np.zeros((1, 1)), [0], [0], bounds=BOUNDS
    )
    assert_same(data.rows(jnp.array(0)).action, np.zeros(2))


DATA = created((4, 1, 3), (False, True, False), {1}, dictionaries)


@pytest.mark.parametrize("draw", ("sample", "sample_sequences"))
@pytest.mark.quick_cases("sample")
def test_host_and_device_are_equal(draw, getkey):
    """Bit by bit: called, compiled, and for many keys at once; equal keys draw alike."""
    host, keys = DATA.on_host(), jr.split(getkey(), 3)
    assert host.is_on_host and not DATA.is_on_host
    of = lambda data, key: (
        data.sample(key, 5) if draw == "sample" else data.sample_sequences(key, 5, 3)
    )
    many = lambda data, keys: jax.vmap(lambda key: of(data, key))(keys)
    one, many = eqx.filter_jit(of), eqx.filter_jit(many)
    expected = [one(DATA, key) for key in keys]
    for data in (DATA, host):
        assert_same(of(data, keys[0]), expected[0])
        assert_same(one(data, keys[0]), expected[0])
        assert_same(many(data, keys), jtu.tree_map(lambda *x: jnp.stack(x), *expected))
    assert_same(host.on_device(), DATA)


def test_host_arrays_are_compiled_once():
    count, host = 0, DATA.on_host()

    @eqx.filter_jit
    def draw(data, key):
        nonlocal count
        count += 1
        return data.sample(key, 2)

    for k in range(3):
        draw(host, jr.key(k))
        draw(host.on_host(), jr.key(k))
    assert count == 1
    array = np.zeros(3)
    assert HostArray.of(array).array is array


def test_every_step_is_drawn(getkey):
    """About equally often, the last one too."""
    number = len(DATA)
    drawn = np.asarray(DATA.sample(getkey(), 400 * number).reward)
    values, counts = np.unique(drawn, return_counts=True)
    np.testing.assert_array_equal(values, np.unique(DATA.reward))
    assert np.all(np.abs(counts - 400) < 5 * np.sqrt(400))


def test_sequences_stay_in_their_trajectory(getkey):
    """One step after the other; behind the end the last one again, which does not count."""
    steps, there = DATA.sample_sequences(getkey(), 300, 3)
    step = np.round(1000 * (np.asarray(steps.reward) % 1.0)).astype(int)
    last, there = np.asarray(DATA.last), np.asarray(there)
    end = last[step[:, :1]]
    np.testing.assert_array_equal(step, np.minimum(step[:, :1] + np.arange(3), end))
    np.testing.assert_array_equal(there, step[:, :1] + np.arange(3) <= end)
    assert {*step[:, 0].tolist()} == {*range(len(DATA))}
    follows = there[:, 1:]
    seen = (
        steps.obs["inner"]["vector"][:, 1:],
        steps.next_obs["inner"]["vector"][:, :-1],
    )
    same = np.all(np.asarray(seen[0] == seen[1]), axis=-1)
    np.testing.assert_array_equal(same[follows], step[:, :-1][follows] != 1)


def test_subsets_and_shards():
    for data in (DATA, DATA.on_host()):
        some = data.subset([2, 0])
        assert some.is_on_host == data.is_on_host and some.about == ABOUT
        steps, whole = some.steps(), data.steps()
        index = [5, 6, 7, 0, 1, 2, 3]
        assert_same(steps, jtu.tree_map(lambda x: x[index], whole))
    shards = [DATA.shard(k, 2) for k in range(2)]
    assert [len(shard) for shard in shards] == [7, 1]
    back = joined(shards).subset([0, 2, 1])
    assert_same(back.steps(), DATA.steps())
    with pytest.raises(ValueError, match="`trajectories` is empty"):
        DATA.subset([])
    for number, count in ((0, 4), (2, 2), (-1, 2)):
        with pytest.raises(ValueError, match=f"Shard {number} of {count}, of 3"):
            DATA.shard(number, count)


def test_joined():
    one, two = created((2,), (True,)), created((3, 1), (False, False), seed=1)
    both = joined([one, two.on_host()])
    parts = zip(one.steps(), two.steps())
    assert_same(tuple(both.steps()), tuple(np.concatenate(pair) for pair in parts))
    np.testing.assert_array_equal(both.ends(), [1, 4, 5])
    assert both.about == ABOUT._replace(sources=("somebody",) * 2)
    assert joined([one, two], About("x")).about == About("x")
    other = Dataset.create(**recorded((1,), (True,)), bounds=BOUNDS, about=About("y"))
    assert joined([one, other]).about.env is None
    wider = Dataset.create(**recorded((1,), (True,)), bounds=2 * BOUNDS)
    with pytest.raises(ValueError, match="Dataset 1 has action bounds"):
        joined([one, wider])
    with pytest.raises(ValueError, match="Dataset 1 has observations"):
        joined([one, DATA])
    with pytest.raises(ValueError, match="at least one"):
        joined([])


def test_scaled_rewards():
    scaled = with_scaled_rewards(DATA)
    returns = scaled.returns()
    np.testing.assert_allclose(returns.max() - returns.min(), 1000.0, rtol=1e-12)
    ratio = np.asarray(scaled.reward[1:] / DATA.reward[1:])
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
    with pytest.raises(ValueError, match="All 1 trajectories have the return"):
        with_scaled_rewards(created((2,), (True,)))


def test_scores():
    assert [ABOUT.score(x) for x in (-10.0, 90.0, 40.0)] == [0.0, 100.0, 50.0]
    assert np.isnan(About(random_return=1.0, expert_return=1.0).score(2.0))
    with pytest.raises(ValueError, match="`expert_return` is None"):
        About(random_return=1.0).score(2.0)
    with pytest.raises(ValueError, match="`random_return` is None"):
        About(expert_return=1.0).score(2.0)


def _with(name, change):
    steps = recorded((3, 2), (False, True))
    return steps | {name: change(steps[name])}


def _put(index, value):
    def put(x):
        x = np.array(x)
        x[index] = value
        return x

    return put


# An array, its change, and words of the message.
BAD = (
    ("reward", lambda x: x[:, None], r"shape \(5, 1\); expected"),
    ("reward", lambda x: np.append(x, 0.0), "there are 6 rewards"),
    ("reward", lambda x: np.array(["a"] * 5), "`reward` has type <U1"),
    ("reward", _put(4, -np.inf), "`reward` is not finite in 1 .* in row 4: -inf"),
    ("action", lambda x: x[1:], r"`action` has shape \(4, 2\)"),
    ("action", lambda x: x[:, 0], r"expected \(5, nu\)"),
    ("action", _put((2, 1), np.nan), "`action` is not finite in 1"),
    ("terminated", lambda x: x[:, None], "`terminated` has shape"),
    ("truncated", lambda x: x[1:], "`truncated` has shape"),
    ("obs", lambda x: {}, "at least one array"),
    (
        "obs",
        _put(([1, 3], 0), np.nan),
        r"`obs` .* 2 of 5 rows, first in row 1: \[ *nan",
    ),
    ("next_obs", lambda x: {"a": x}, "`next_obs` is PyTreeDef"),
    ("next_obs", lambda x: x[:, :2], r"`next_obs` has \(5, 2\)"),
    ("next_obs", lambda x: x.astype(np.uint8), "and uint8"),
    ("next_obs", _put((4, 1), np.nan), "`next_obs` is not finite"),
    (
        "action",
        _put(([1, 2, 4], 0), 3.5),
        r"outside its bounds in 3 of 5 rows, first in row 1: \[3.5 .*, with bounds "
        r"\[\[-2.0, 3.0\], \[0.0, 1.0\]\].*`clip=True`",
    ),
)


@pytest.mark.parametrize("name, change, message", BAD)
def test_bad_steps(name, change, message):
    with pytest.raises(ValueError, match=message):
        Dataset.create(**_with(name, change), bounds=BOUNDS)


def test_no_steps():
    empty = {name: x[:0] for name, x in recorded((1,), (True,)).items()}
    with pytest.raises(ValueError, match=r"`reward` has shape \(0,\)"):
        Dataset.create(**empty, bounds=BOUNDS)


@pytest.mark.parametrize(
    "bounds", ([[-1.0, 1.0]], [[0.0, 0.0]] * 2, [[0.0, np.inf]] * 2)
)
def test_bad_bounds(bounds):
    with pytest.raises(ValueError, match="`bounds` are .* for each of the 2 entries"):
        Dataset.create(**recorded((1,), (True,)), bounds=np.array(bounds))


def test_clip():
    """Only where it is asked for; what was given stays as it was."""
    steps = _with("action", _put((1, 0), 3.5))
    data = Dataset.create(**steps, bounds=BOUNDS, clip=True)
    assert data.steps().action[1, 0] == 3.0 and steps["action"][1, 0] == 3.5
    np.testing.assert_array_equal(
        np.delete(data.steps().action, 1, 0)[:, 1],
        np.delete(steps["action"], 1, 0)[:, 1],
    )


def test_types():
    """Lists and numbers of any type; pictures stay in bytes."""
    obs = np.array([[1], [2]], np.int16)
    data = Dataset.create(obs, [[0], [1]], [1, 2], obs + 1, [0, 1], [0, 0])
    assert data.frames.dtype == data.action.dtype == data.reward.dtype == jnp.float64
    np.testing.assert_array_equal(data.frames, [[1.0], [2.0], [3.0]])
    assert DATA.frames["picture"].dtype == jnp.uint8
    assert DATA.sample(jr.key(0), 2).obs["picture"].dtype == jnp.uint8


def test_fits():
    env = Rail(2)
    rng = np.random.default_rng(0)
    steps = recorded((3,), (True,), make=lambda rng, n: rng.normal(size=(n, 4)))
    of = lambda **new: Dataset.create(
        **steps | new, bounds=np.asarray(env.action_range)
    )
    inside = {"action": rng.uniform(-1.0, 1.0, (3, 2))}
    check_fits(of(**inside), env)
    check_fits(of(**inside).on_host(), env)
    with pytest.raises(
        ValueError, match=r"has observations .*\(4,\).*but `Rail`.*\(6,\)"
    ):
        check_fits(of(**inside), Rail(3))
    with pytest.raises(ValueError, match="has action bounds .*, but `ScaleAction`"):
        check_fits(of(**inside), ScaleAction(env))
    with pytest.raises(
        ValueError, match="actions of size 2, but those of `Rail` have size 1"
    ):
        check_fits(of(**inside), Rail(2, motors=1))
