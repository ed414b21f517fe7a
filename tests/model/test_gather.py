import jax.numpy as jnp
import numpy as np
from hypothesis import given, strategies as st

from eqsim.model.arrays import accumulate, put, take


size = 6
indices = st.lists(st.integers(0, size - 1), max_size=8)


@given(indices)
def test_take(index):
    x = jnp.arange(2.0 * size).reshape(size, 2)
    assert np.array_equal(take(x, index), np.asarray(x)[np.array(index, int)])


@given(st.permutations(range(size)), st.integers(0, size))
def test_put(order, count):
    index = order[:count]
    x = 1.0 + jnp.arange(2.0 * count).reshape(count, 2)
    expected = np.zeros((size, 2))
    expected[index] = x
    assert np.array_equal(put(x, index, size), expected)


@given(st.lists(st.integers(-1, size - 1), max_size=8))
def test_accumulate(index):
    x = 1.0 + jnp.arange(2.0 * len(index)).reshape(len(index), 2)
    expected = np.zeros((size, 2))
    for row, place in zip(np.asarray(x), index):
        if place >= 0:
            expected[place] += row
    assert np.array_equal(accumulate(x, index, size), expected)


def test_full_range_is_the_array():
    x = jnp.arange(3.0)
    assert take(x, range(3)) is x


def test_no_targets():
    assert accumulate(jnp.ones((2, 3)), [-1, -1], 0).shape == (0, 3)
    assert put(jnp.ones((0, 3)), [], 2).shape == (2, 3)
