import jax.numpy as jnp
import numpy as np
from hypothesis import given, strategies as st

from eqsim.model import accumulate, put, take, take_difference


size = 6
indices = st.lists(st.integers(0, size - 1), max_size=8)


@given(indices)
def test_take(index):
    x = jnp.arange(2.0 * size).reshape(size, 2)
    assert np.array_equal(take(x, index), np.asarray(x)[np.array(index, int)])


@given(st.lists(st.tuples(*2 * [st.integers(0, size - 1)]), max_size=20))
def test_take_difference(pairs):
    x = jnp.arange(2.0 * size).reshape(size, 2) ** 2
    one, two = ([pair[k] for pair in pairs] for k in (0, 1))
    expected = np.asarray(x)[np.array(one, int)] - np.asarray(x)[np.array(two, int)]
    assert np.array_equal(take_difference(x, one, two), expected)


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


def test_accumulate_drops_only_the_world():
    """-1 and 1 look like an arithmetic progression."""
    out = accumulate(jnp.array([1.0, 2.0, 3.0]), [0, -1, 1], 2)
    assert np.array_equal(out, [1.0, 3.0])
