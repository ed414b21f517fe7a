"""Lists of all environments side by side: every row is visited once, in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsim._lists import for_lanes, lanes_per_chunk, where_needed


CAPACITY = 5
# Chunks within a list, of several environments, and of all rows at once.
each_shape = pytest.mark.parametrize(
    "batch, size", (((), 2), ((4,), 3), ((3, 2), 5), ((3, 2), 64))
)


def lists(batch):
    """Lists of numbers, and how many of each are used."""
    rng = np.random.default_rng(0)
    count = rng.integers(0, CAPACITY + 1, batch).astype(np.int32)
    rows = rng.integers(0, 9, (CAPACITY, *batch)).astype(np.int32)
    used = np.arange(CAPACITY).reshape(-1, *(1 for _ in batch)) < count
    return jnp.asarray(count), jnp.asarray(rows), used


@each_shape
def test_sums(batch, size):
    """Sums for each environment, for all, and for the entries of a table."""
    count, rows, used = lists(batch)
    table = jnp.arange(9.0) ** 2

    def visit(totals, lanes):
        number = lanes.read(rows, lanes.row[None])
        value = lanes.read(table.reshape(-1, *(1 for _ in batch)), number)
        own, spread = totals
        return lanes.add(own, value), lanes.add(spread, value, number)

    start = jnp.zeros((1, *batch)), jnp.zeros((9, *batch))
    own, spread = jax.jit(lambda: for_lanes(count, size, visit, start))()
    values = np.where(used, np.asarray(table)[rows], 0.0)
    np.testing.assert_array_equal(own[0], values.sum(0))
    np.testing.assert_array_equal(spread.sum(0), values.sum(0))
    for entry in range(9):
        mine = np.where(rows == entry, values, 0.0).sum(0)
        np.testing.assert_array_equal(spread[entry], mine)


@each_shape
def test_lists(batch, size):
    """Rows that are chosen are appended to other lists in their order."""
    count, rows, used = lists(batch)

    def visit(carry, lanes):
        kept, number = carry
        value = lanes.read(rows, lanes.row[None])
        places, number = lanes.places(number, (value % 2 == 0) & lanes.used[None])
        return lanes.write(kept, places, value), number

    start = jnp.full((CAPACITY, *batch), -1, jnp.int32), jnp.zeros_like(count)
    kept, number = jax.jit(lambda: for_lanes(count, size, visit, start))()
    for env in np.ndindex(*batch):
        at = (slice(None), *env)
        own = np.asarray(rows)[at][used[at]]
        own = own[own % 2 == 0]
        assert int(number[env]) == len(own)
        np.testing.assert_array_equal(kept[at][: len(own)], own)


@pytest.mark.parametrize("share", (0.0, 0.3, 1.0))
def test_where_needed(share, monkeypatch):
    monkeypatch.setattr("eqsim._lists.MOST_IN_NEED", 3)
    rng = np.random.default_rng(1)
    when, x = jnp.asarray(rng.random((1, 20)) < share), jnp.arange(20.0)[None]
    offset = jnp.ones((1, 1))

    def visit(given, table, due):
        value, offset = given
        assert value.shape == due.shape
        return {"square": value**2 + offset + table[0], "flag": due}

    def run(x):
        otherwise = {"square": -x, "flag": ~when}
        return where_needed(when, visit, (x, offset), np.ones(1), otherwise)

    found = jax.jit(run)(x)
    np.testing.assert_array_equal(found["square"], jnp.where(when, x**2 + 2.0, -x))
    assert bool(jnp.all(found["flag"]))
    slope = jax.jit(jax.grad(lambda x: jnp.sum(run(x)["square"])))(x)
    np.testing.assert_array_equal(slope, jnp.where(when, 2.0 * x, -1.0))


def test_chunks_have_an_axis_of_lanes():
    assert lanes_per_chunk(1, ()) == 2
    assert lanes_per_chunk(7, (3, 2)) == 42
