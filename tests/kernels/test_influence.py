"""Which elements of its arguments a function varies with: the Jacobian is the reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsim._batching import influences


TABLE = np.array([4, 1, 2, 1], np.int32)
KINDS = np.array([0, 1, 1, 0], np.int32)


def structure(x, y):
    """Elements move, and a factor and a branch are constants."""
    own = jnp.concatenate([x[2:4], y[::-1][:2]]) * np.array([1.0, 0.0, 2.0, 1.0])
    return jnp.where(np.arange(4) < 3, own, x[0] * own)


def switches(x, y):
    """Comparisons and rounding have no derivative."""
    return jnp.where(x[0] < y[0], x[1], jnp.floor(y[1])) + (x[2] > 0.0)


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

    return lax.scan(visit, 0.0, jnp.arange(4))[0]


def listed(x, y):
    """A list holds some numbers, as many as there are at run time."""
    append = lambda carry, k: (
        lax.cond(
            (x[k] > -10.0) & (jnp.asarray(KINDS)[k] == 1),
            lambda c: (c[0].at[c[1]].set(jnp.asarray(TABLE)[k]), c[1] + 1),
            lambda c: c,
            carry,
        ),
        None,
    )
    start = lax.empty((12,), jnp.int32), 0
    (numbers, count), _ = lax.scan(append, start, jnp.arange(4))
    visit = lambda c: (c[0] + 1, c[1] + y[numbers[c[0]]])
    return lax.while_loop(lambda c: c[0] < count, visit, (0, 0.0))[1]


@pytest.mark.parametrize("fn", [structure, switches, loops, looked_up, listed])
def test_flags_are_the_pattern_of_the_jacobian(fn):
    rng, jacobian_of = np.random.default_rng(0), jax.jit(jax.jacfwd(fn, (0, 1)))
    shapes = [jax.ShapeDtypeStruct((5,), float)] * 2
    found = influences(fn, *shapes)
    patterns = [np.zeros(5, bool), np.zeros(5, bool)]
    for _ in range(20):
        args = [jnp.asarray(rng.uniform(-1.0, 1.0, 5)) for _ in shapes]
        jacobians = jacobian_of(*args)
        for pattern, jacobian in zip(patterns, jacobians, strict=True):
            pattern |= np.any(np.reshape(np.asarray(jacobian), (-1, 5)), axis=0)
    for flags, pattern in zip(found, patterns, strict=True):
        np.testing.assert_array_equal(flags, pattern)


def test_programs_without_a_kernel_have_all_flags():
    fn = lambda x: jnp.linalg.eigvalsh(x)[:1]
    (flags,) = influences(fn, jax.ShapeDtypeStruct((3, 3), float))
    assert flags.all()
