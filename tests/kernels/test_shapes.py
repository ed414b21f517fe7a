"""Moving elements, reductions, products of matrices and running sums, on arrays that are
unrolled and on arrays in memory."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import examples
from hypothesis import given, HealthCheck, settings, strategies as st
from jax import lax
from kernels.harness import assert_same, compare, Kernel, WIDTH

from eqsim import _kernels as kernels


BATCH = WIDTH + 1
# A kernel per example: few of them, with many operations in each.
few = settings(
    max_examples=examples(6),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def normal(seed: int, *shape, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(BATCH, *shape)).astype(dtype)


def moved(x):
    """One of everything that moves the elements of an array."""
    order = tuple(range(x.ndim))[::-1]
    wide = lax.broadcast_in_dim(x, (2, *x.shape, 3), tuple(range(1, x.ndim + 1)))
    padding = [(1, 2, 1)] + [(-1, 1, 0)] * (x.ndim - 1)
    strides = tuple(2 if k % 2 else 1 for k in range(x.ndim))
    yield x.reshape(-1)
    yield x.reshape(x.shape[::-1])
    yield lax.transpose(x, order)
    yield lax.rev(x, order[::2])
    yield wide
    yield lax.transpose(wide, (2, 0, *range(3, x.ndim + 2), 1))
    yield lax.slice(x, (0,) * x.ndim, x.shape, strides)
    yield lax.slice_in_dim(x, x.shape[-1] - 1, x.shape[-1], axis=-1)
    yield lax.expand_dims(x, (0, x.ndim))
    yield lax.squeeze(x[:1], (0,))
    yield lax.pad(x, jnp.asarray(1, x.dtype), padding)
    for axis in range(x.ndim):
        yield lax.concatenate([x, x[::-1], x], axis)
        yield jnp.stack([x, lax.rev(x, (axis,))], axis)
        yield from lax.split(wide, (1, 2), x.ndim + 1)
    yield jnp.where(x > 0, x, jnp.zeros_like(x)).T
    yield lax.broadcasted_iota(x.dtype, x.shape, x.ndim - 1)


@few
@given(shape=shapes, dtype=st.sampled_from(("f4", "f8", "i1", "i8", "u2")))
def test_moves(size, shape, dtype):
    x = (10 * normal(0, *shape)).astype(dtype)
    compare(lambda x: tuple(moved(x)), x, exact=True)


def test_moves_of_booleans(size):
    x = normal(0, 3, 2) > 0
    compare(lambda x: (x.T, x[::-1], jnp.concatenate([x, ~x], 1), x.reshape(6)), x)


def test_moves_of_results(size):
    """Of arrays that other operations have just computed."""

    def function(x, y):
        a = jnp.concatenate([2 * x, y[None] + x[:1], x * x], 0)
        b = lax.pad(a.T, jnp.float32(1), [(0, 1, 1), (-1, 2, 0)])
        c = (b[::2] * 3)[:, ::-1].reshape(-1)[3:17]
        return a, b, c, c.reshape(2, 7).sum(0), (a @ a.T).T[1:, :2]

    compare(function, normal(0, 2, 5), normal(1, 5))


def test_no_elements(size):
    def function(x, empty):
        joined = jnp.concatenate([empty, x[:0], x, empty])
        sums = empty.sum(), empty.prod(), jnp.any(empty > 0), x[:, None] @ empty[None]
        padded = lax.pad(empty, jnp.float32(1), [(3, 4, 0)])
        none = x.at[empty.astype(int)].set(empty)
        return joined, *sums, 2 * empty, padded, jnp.cumsum(empty), none

    compare(function, normal(0, 7), normal(0, 0))


def reduced(x):
    """One of everything that reduces the elements of an array."""
    last = x.ndim - 1
    yield x.sum()
    yield x.sum(0)
    yield x.max(last)
    yield x.min()
    yield x.prod(last)
    yield (x > 0).any(0)
    yield (x > 0).all()
    for axis in range(x.ndim):
        yield lax.cumsum(x, axis)
        yield lax.cumprod(x, axis, reverse=True)
        yield lax.cummax(x, axis, reverse=axis > 0)
        yield lax.cummin(x, axis)


def bitwise(x):
    """Reductions of integers, which are exact."""
    axes = tuple(range(x.ndim))
    yield lax.reduce_or(x, axes[:1])
    yield lax.reduce_and(x, axes)
    yield lax.reduce_xor(x, axes[-1:])
    yield lax.reduce_xor(x > 0, axes)


@few
@given(shape=shapes, dtype=st.sampled_from(("f4", "f8", "i1", "i8", "u2")))
def test_reductions(size, shape, dtype):
    x = (3 * normal(0, *shape)).astype(dtype)
    compare(lambda x: tuple(reduced(x)), x)
    if dtype[0] != "f":
        compare(lambda x: tuple(bitwise(x)), x, exact=True)


def test_long_reductions():
    """Loops, beyond 256 terms."""

    def function(x, y):
        longest = x.max(), y.min(), (x > 3.0).any(), x.prod(), jnp.cumsum(x)[-1:]
        return x.sum(), x @ y, jnp.outer(y[:2], x).sum(1), *longest

    compare(function, normal(0, 300) / 9, normal(1, 300))
    compare(function, normal(0, 300) / 9, normal(1, 300)[0], shared=(1,))


def test_nan_in_reductions(size):
    x = normal(0, 3, 4)
    x[:4, 1, 2], x[2, 2, 3], x[5] = np.nan, np.nan, np.inf

    def function(x):
        best = (f(x, axis=k) for f in (jnp.argmax, jnp.argmin) for k in (0, 1))
        return x.max(0), x.min(1), lax.cummax(x, 1), lax.cummin(x, 0), *best

    compare(function, x, exact=True)


@pytest.mark.parametrize("dtype", ("f4", "i2", "u8", "?"))
def test_arg(dtype):
    """The first of equal elements wins."""
    x = np.random.default_rng(0).integers(0, 3, (BATCH, 3, 4)).astype(dtype)

    def function(x):
        for f in (lax.argmax, lax.argmin):
            for axis, index in ((0, np.int32), (1, np.int8)):
                yield f(x, axis, index)

    compare(lambda x: tuple(function(x)), x, exact=True)


PRODUCTS = {
    "vectors": ((5,), (5,), (((0,), (0,)), ((), ()))),
    "matrix and vector": ((2, 5), (5,), (((1,), (0,)), ((), ()))),
    "matrices": ((2, 5), (5, 3), (((1,), (0,)), ((), ()))),
    "transposed": ((5, 2), (3, 5), (((0,), (1,)), ((), ()))),
    "batches": ((2, 3, 4), (2, 4, 3), (((2,), (1,)), ((0,), (0,)))),
    "batches last": ((3, 4, 2), (4, 2, 5), (((1,), (0,)), ((2,), (1,)))),
    "two sums": ((2, 3, 4), (4, 3), (((1, 2), (1, 0)), ((), ()))),
    "outer": ((2,), (3,), (((), ()), ((), ()))),
}


@pytest.mark.parametrize("shared", ((), (1,)))
def test_products(size, shared):
    pairs = list(PRODUCTS.values())
    args = [normal(k, *shape) for k, (shape, _, _) in enumerate(pairs)]
    others = [normal(9 + k, *shape) for k, (_, shape, _) in enumerate(pairs)]
    count = len(pairs)

    def function(*xs):
        for k, (_, _, numbers) in enumerate(pairs):
            yield lax.dot_general(xs[k], xs[count + k], numbers)

    if shared:
        others, shared = [x[0] for x in others], tuple(range(count, 2 * count))
    compare(lambda *xs: tuple(function(*xs)), *args, *others, shared=shared)


def test_products_of_other_types(size):
    x, y = (5 * normal(0, 3, 4)).astype("i1"), (5 * normal(1, 4, 2)).astype("i1")

    def function(x, y):
        numbers = ((1,), (0,)), ((), ())
        wide = lax.dot_general(x, y, numbers, preferred_element_type=np.int32)
        real = lax.dot_general(x.astype("f4"), y.astype("f4"), numbers)
        return lax.dot(x, y), wide, real, x.astype("f8") @ y.astype("f8")

    compare(function, x, y, exact=True)


def test_extra_large():
    """Beyond what is unrolled without a test asking for it."""
    count = 1100

    def function(x, y):
        doubled = jnp.sin(x) * 2 + y[0]
        table = doubled.reshape(10, -1).T
        return doubled, table.sum(1), jnp.concatenate([x, y])[::3], table[3]

    compare(function, normal(0, count), normal(1, 30))


def test_too_long_for_a_kernel(monkeypatch):
    from eqsim._kernels import _translation

    monkeypatch.setattr(_translation, "LARGEST", 10)
    kernel = Kernel(lambda x: (jnp.sin(x) + jnp.cos(x) * x,))
    with pytest.raises(kernels.Unsupported, match="more than 10 nodes"):
        kernel(normal(0, 9))


def test_constant_tables(size):
    """Literal arrays, read where they are and at computed places."""
    table = np.random.default_rng(3).normal(size=(6, 5)).astype("f4")
    flags = table > 0

    def function(x, k):
        whole = jnp.asarray(table) * x[0], jnp.asarray(table)[k], jnp.asarray(flags)[k]
        return *whole, jnp.asarray(table)[2:4, ::2] + x[1], jnp.asarray(flags)

    k = np.random.default_rng(0).integers(0, 6, BATCH).astype(np.int32)
    got = compare(function, normal(0, 2), k)
    assert_same([got[-1]], [np.broadcast_to(flags, (BATCH, 6, 5))])
