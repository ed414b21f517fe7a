"""The replay is a deque of rows on the device, of which all are drawn equally often."""

import collections
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import tree_allclose
from hypothesis import given, strategies as st
from scipy import stats

from eqsim_zoo.blocks import Replay


def example():
    """One row: nested, of several types."""
    return {
        "x": jnp.zeros(2),
        "flag": jnp.zeros((), bool),
        "n": jnp.zeros((), jnp.int32),
    }


def rows_of(numbers):
    """Rows that know their number."""
    n = np.asarray(numbers, np.int32)
    return {"x": np.stack([n, -n], axis=1).astype(float), "flag": n % 3 == 0, "n": n}


def block(first, size):
    """Rows of consecutive numbers."""
    return jtu.tree_map(jnp.asarray, rows_of(np.arange(first, first + size)))


@eqx.filter_jit
def add(replay, rows):
    return replay.add(rows)


@ft.partial(jax.jit, static_argnums=2)
def sample(replay, key, number):
    return replay.sample(key, number)


# Few shapes, as each is compiled.
SHAPES = st.sampled_from([(1, 1), (3, 1), (4, 2), (5, 2), (3, 5), (6, 3)])


@given(SHAPES, st.integers(0, 9))
def test_keeps_the_latest(shape, adds):
    capacity, size = shape
    replay = Replay.create(example(), capacity, size)
    assert replay.capacity % size == 0
    assert capacity <= replay.capacity < capacity + size
    deque = collections.deque(maxlen=replay.capacity)
    for k in range(adds):
        rows = block(k * size, size)
        replay = add(replay, rows)
        deque.extend(np.asarray(rows["n"]).tolist())
    assert replay.size == len(deque)
    kept = jtu.tree_map(lambda x: np.asarray(x)[: len(deque)], replay.rows)
    assert sorted(kept["n"]) == sorted(deque)
    if adds:
        drawn = sample(replay, jr.key(adds), 64)
        assert set(np.asarray(drawn["n"])) <= set(deque)
        for rows in (kept, drawn):
            # Each row whole, and in its types.
            assert tree_allclose(rows, rows_of(rows["n"]), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("adds", (3, 7))
def test_uniform(adds, getkey):
    """Each row that there is, the last one too, is equally likely: not yet full, and
    after it began anew."""
    replay = Replay.create(example(), 8, 2)
    for k in range(adds):
        replay = add(replay, block(2 * k, 2))
    number = 8192
    drawn = np.asarray(sample(replay, getkey(), number)["n"])
    there = np.arange(max(0, 2 * adds - 8), 2 * adds)
    counts = [int(np.sum(drawn == n)) for n in there]
    assert sum(counts) == number
    assert stats.chisquare(counts).pvalue > 1e-3
    # One draw says nothing of the next.
    pairs = np.zeros((len(there), len(there)))
    np.add.at(pairs, (drawn[:-1:2] - there[0], drawn[1::2] - there[0]), 1)
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-3


def test_empty_gives_zeros():
    """And no numbers that are not finite."""
    drawn = Replay.create(example(), 4).sample(jr.key(0), 3)
    expected = jtu.tree_map(lambda x: jnp.zeros((3, *x.shape), x.dtype), example())
    assert tree_allclose(drawn, expected, rtol=0.0, atol=0.0)


def test_donated_and_nothing_copied():
    """A memory that is given away is changed in place: beside it a turn needs memory for
    a few rows, not for the ring."""
    replay = Replay.create(example(), 100_000, 4)

    def add_and_sample(replay, rows, key):
        replay = replay.add(rows)
        return replay, replay.sample(key, 8)

    turn = jax.jit(add_and_sample, donate_argnums=0)
    args = block(0, 4), jr.key(0)
    needed = turn.lower(replay, *args).compile().memory_analysis()
    ring = sum(x.nbytes for x in jtu.tree_leaves(replay.rows))
    assert needed.alias_size_in_bytes >= ring
    assert needed.temp_size_in_bytes < 0.01 * ring
    where = replay.rows["x"].unsafe_buffer_pointer()
    new, _ = turn(replay, *args)
    assert replay.rows["x"].is_deleted()
    assert new.rows["x"].unsafe_buffer_pointer() == where
    assert new.size == 4


def test_refusals():
    for capacity, size in ((0, 1), (4, 0)):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            Replay.create(example(), capacity, size)
    with pytest.raises(ValueError, match="in blocks of 2, got 3 rows"):
        Replay.create(example(), 4, 2).add(block(0, 3))
