"""The checks that all other tests rely on find what they are there to find."""

import jax
import jax.numpy as jnp
import pytest
from helpers import check_gradients, tree_allclose


@jax.custom_jvp
def cube(x):
    return x**3


@cube.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return x**3, 3 * jax.lax.stop_gradient(x) ** 2 * t


def test_check_gradients_of_trees():
    fn = lambda a, b, n: {"out": jnp.sin(a["in"]) * b, "n": n}
    largest = check_gradients(fn, {"in": jnp.ones((2, 3))}, 0.5, 3, order=2)
    assert set(largest) == {"[0]['in']", "[1]"}
    assert all(size > 0 for size in largest.values())


def test_check_gradients_reports_a_gradient_that_is_cut_off():
    largest = check_gradients(lambda x, y: x * jnp.sign(y), 1.0, 2.0)
    assert largest["[0]"] > 0 and largest["[1]"] == 0


def test_check_gradients_finds_nan():
    with pytest.raises(AssertionError, match=r"by \[0\].*\n.*nan against"):
        check_gradients(jnp.linalg.norm, jnp.zeros(3))


def test_check_gradients_finds_a_wrong_second_derivative():
    check_gradients(cube, jnp.ones(3))
    with pytest.raises(AssertionError, match="against differences"):
        check_gradients(cube, jnp.ones(3), order=2)


def test_check_gradients_finds_a_wrong_small_derivative():
    fn = lambda big, small: 1e3 * jnp.sin(big) + jax.lax.stop_gradient(small)
    with pytest.raises(AssertionError, match=r"by \[1\]"):
        check_gradients(fn, 1.0, 1.0)


def test_check_gradients_needs_double_precision():
    with pytest.raises(TypeError, match="double precision"):
        check_gradients(jnp.sin, jnp.ones(3, jnp.float32))


@pytest.mark.parametrize(
    "other, difference",
    (
        ({"a": jnp.array([1.0, 1.1]), "b": 1}, "1 of 2 differ, the first at"),
        ({"a": jnp.ones(2, jnp.float32), "b": 1}, "float64"),
        ({"a": jnp.ones(2), "b": 2}, "1 != 2"),
        ({"a": jnp.ones(2)}, "structures differ"),
    ),
)
def test_tree_allclose(other, difference):
    tree = {"a": jnp.ones(2), "b": 1}
    assert tree_allclose(tree, tree)
    comparison = tree_allclose(tree, other)
    assert not comparison
    assert difference in repr(comparison)


def test_getkey_is_reproducible(getkey):
    expected = jax.random.key_data(getkey())
    assert not jnp.array_equal(expected, jax.random.key_data(getkey()))
