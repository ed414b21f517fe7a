"""Which elements of its arguments a function varies with: the Jacobian is the reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsim._batching import influences
from eqsim._lists import read_rows, write_rows


TABLE = np.array([4, 1, 2, 1], np.int32)
KINDS = np.array([0, 1, 1, 0], np.int32)


def structure(x, y):
    """Elements move, and a factor and a branch are constants."""
    own = jnp.concatenate([x[2:4], y[::-1][:2]]) * np.array([1.0, 0.0, 2.0, 1.0])
    return jnp.where(np.arange(4) < 3, own, x[0] * own)


def switches(x, y):
    """Comparisons and rounding have no derivative."""
    sign = jnp.where(x[2] > 0.0, 1.0, -1.0)
    return sign * jnp.where(x[0] < y[0], x[1], jnp.floor(y[1]))


def loops(x, y):
    body = lambda k, total: total * y[1] + x[2]
    total = lax.fori_loop(0, 3, body, x[0])
    return total + lax.while_loop(lambda v: v < y[3], lambda v: 2 * v + 3, y[0])


def looked_up(x, y):
    """Known tables say which elements a loop reads at computed indices."""

    def visit(total, k):
        number = jnp.asarray(TABLE)[k]
        one = jnp.where(jnp.asarray(KINDS)[k] == 0, y[number], jnp.sin(x[number]))
        return total + one, None

    return lax.scan(visit, jnp.zeros(()), jnp.arange(4))[0]


def listed(x, y):
    """A list holds some numbers, as many as there are at run time."""

    def append(carry, k):
        numbers, count = carry
        here = (x[k] > -10.0) & (jnp.asarray(KINDS)[k] == 1)
        number = jnp.asarray(TABLE)[k][None]
        numbers = write_rows(numbers, count[None], number, here[None])
        return (numbers, count + here.astype(jnp.int32)), None

    def visit(carry):
        k, total = carry
        return k + 1, total + read_rows(y, read_rows(numbers, k[None]))[0]

    zero = jnp.int32(0)
    (numbers, count), _ = lax.scan(
        append, (lax.empty((4,), jnp.int32), zero), jnp.arange(4)
    )
    return lax.while_loop(lambda c: c[0] < count, visit, (zero, jnp.zeros(())))[1]


@pytest.mark.parametrize("fn", [structure, switches, loops, looked_up, listed])
def test_flags_are_the_pattern_of_the_jacobian(fn):
    rng, shape = np.random.default_rng(0), jax.ShapeDtypeStruct((5,), float)
    found = np.concatenate(influences(fn, shape, shape))
    rate = jax.jit(lambda z, along: jax.jvp(lambda z: fn(z[:5], z[5:]), (z,), (along,)))
    pattern = np.zeros(10, bool)
    for _ in range(20):
        z = jnp.asarray(rng.uniform(-1.0, 1.0, 10))
        for k, along in enumerate(jnp.eye(10)):
            pattern[k] |= bool(np.any(np.asarray(rate(z, along)[1]) != 0.0))
    np.testing.assert_array_equal(found, pattern)


def test_tables_that_are_read_where_they_lie():
    """Elements of a table that is not copied, at known and at computed places."""
    shapes = [jax.ShapeDtypeStruct((n,), float) for n in (5000, 1)]
    known = lambda table, place: table[3] + 0.0 * place
    found, _ = influences(known, *shapes)
    np.testing.assert_array_equal(np.flatnonzero(found), [3])
    computed = lambda table, place: table[jnp.clip(place, 0, 9).astype(jnp.int32)]
    found, _ = influences(computed, *shapes)
    assert found.all()


def test_programs_without_a_kernel_have_all_flags():
    fn = lambda x: jnp.linalg.eigvalsh(x)[:1]
    (flags,) = influences(fn, jax.ShapeDtypeStruct((3, 3), float))
    assert flags.all()
