"""Sums over lists: values, derivatives of any mode and order, batches, and their kernels."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from eqsim import _kernels as kernels
from eqsim._batching import batch_last
from eqsim._lists import each
from eqsim._primitive import rows_together


SIZE, CAPACITY = 10, 20


def summed(count, rows, table, shared):
    """A sum, and a table of sums, of terms of the rows that are used."""

    def term(row, columns, entries, shared):
        (x,), (number,) = entries, columns
        value = (
            jnp.sin(x * shared[:1]) + x**2 * shared[1:2] + 0.1 * number.astype(x.dtype)
        )
        return value, value * shared[:1]

    columns, targets = [range(SIZE)], [None, (0, SIZE)]
    total, spread = each(term, count[0], rows, columns, [(table, 0)], shared, targets)
    return jnp.concatenate([total, spread])


def reference(count, rows, table, shared):
    used = jnp.arange(CAPACITY, dtype=jnp.int32) < count[0]
    x = table[rows]
    value = jnp.sin(x * shared[0]) + x**2 * shared[1] + 0.1 * rows.astype(x.dtype)
    value = jnp.where(used, value, 0.0)
    spread = jnp.zeros(SIZE).at[rows].add(value * shared[0])
    return jnp.concatenate([jnp.sum(value)[None], spread])


ours = batch_last(summed)


def arguments(key, batch=()):
    keys = jr.split(key, 4)
    count = jr.randint(keys[0], (*batch, 1), 0, CAPACITY + 1, jnp.int32)
    rows = jr.randint(keys[1], (*batch, CAPACITY), 0, SIZE, jnp.int32)
    return count, rows, jr.normal(keys[2], (*batch, SIZE)), jr.normal(keys[3], (2,))


@pytest.mark.parametrize("number", (2, 3))
@pytest.mark.quick_cases("2")
def test_derivatives(number):
    given = arguments(jr.key(0))
    with kernels.recorded_fallbacks() as fallbacks:
        np.testing.assert_allclose(ours(*given), reference(*given), rtol=1e-12)
        expected = jax.jacrev(reference, number)(*given)
        for jacobian in (jax.jacfwd, jax.jacrev):
            found = jacobian(ours, number)(*given)
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not fallbacks


@pytest.mark.slow
def test_second_derivatives():
    *given, shared = arguments(jr.key(1))
    weights = jnp.arange(1.0 + SIZE)
    of = lambda fn: lambda x: fn(*given, x) @ weights
    expected = jax.hessian(of(reference))(shared)
    np.testing.assert_allclose(jax.hessian(of(ours))(shared), expected, rtol=1e-11)


def test_batches():
    """Each environment has its own number of rows, none included."""
    *given, shared = arguments(jr.key(2), (37,))
    given[0] = given[0].at[:3].set(0)
    weights = jnp.arange(1.0 + SIZE)

    def gradients(fn):
        loss = lambda count, rows, table, shared: (
            fn(count, rows, table, shared) @ weights
        )
        one = jax.grad(loss, (2, 3))
        return jax.vmap(one, (0, 0, 0, None))(*given, shared)

    for found, expected in zip(gradients(ours), gradients(reference), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_rows_that_are_not_used():
    """What lies in unused rows does not matter, whatever it is."""
    _, rows, table, shared = arguments(jr.key(3))
    count = jnp.array([4], jnp.int32)
    table = table.at[0].set(jnp.nan)
    rows = rows.at[:4].set(5).at[4:].set(0)
    assert np.isfinite(ours(count, rows, table, shared)).all()
    one = lambda x: jnp.sum(ours(count, rows, x, shared))
    assert np.isfinite(jax.grad(one)(table)).all()


def test_in_groups():
    """Without kernels, several rows at a time give the same."""
    given = arguments(jr.key(4))
    expected = summed(*given)
    with rows_together():
        np.testing.assert_allclose(summed(*given), expected, rtol=1e-12)
        gradient = jax.jit(jax.grad(lambda *xs: jnp.sum(summed(*xs)), 3))(*given)
    slope = jax.grad(lambda *xs: jnp.sum(reference(*xs)), 3)(*given)
    np.testing.assert_allclose(gradient, slope, rtol=1e-11)
