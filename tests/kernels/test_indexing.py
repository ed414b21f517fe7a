"""Reading and writing at indices that are literal, shared or different in each lane."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import examples
from hypothesis import given, HealthCheck, settings, strategies as st
from jax import lax
from kernels.harness import compare, Kernel, WIDTH

from eqsim import _kernels as kernels


BATCH = WIDTH + 3
few = settings(
    max_examples=examples(5),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
KINDS = ("literal", "shared", "per lane")
MODES = ("fill", "clip", "promise_in_bounds")


def normal(seed: int, *shape) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(BATCH, *shape)).astype(np.float32)


def integers(seed: int, low: int, high: int, *shape, dtype=np.int32) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.integers(low, high, (BATCH, *shape)).astype(dtype)


def at_indices(kind: str, function, indices, *args, exact=True) -> None:
    """Compares `function(*args, indices)` with indices of a kind."""
    if kind == "per lane":
        compare(function, *args, indices, exact=exact)
    elif kind == "shared":
        compare(function, *args, indices[0], shared=(len(args),), exact=exact)
    else:
        literal = indices[0]
        compare(lambda *xs: function(*xs, jnp.asarray(literal)), *args, exact=exact)


def reads(x, k):
    """`x` of shape (4, 3, 2), `k` of shape (2, 2)."""
    for mode in MODES[:2]:
        yield x.at[k].get(mode=mode)
        yield x.at[:, k].get(mode=mode)
        yield x.at[k[0], k[1]].get(mode=mode)
        yield x.at[k[0], 1:3, k[1]].get(mode=mode)
        yield x.at[k[0, 0], :, k[1, 1]].get(mode=mode, fill_value=7)
        yield (x > 0).at[k].get(mode=mode)
        yield (10 * x).astype(np.uint8).at[k].get(mode=mode)
    yield jnp.take_along_axis(x[:, 0], jnp.clip(k, 0, 3), 0)
    yield x[k[0]]
    yield x[k[0, 0]]
    yield x[2, k[0, 1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.quick_cases("unrolled-per lane", "large-shared", "large-literal")
def test_reads(size, kind):
    x, k = normal(0, 4, 3, 2), integers(1, -8, 9, 2, 2)
    at_indices(kind, lambda x, k: tuple(reads(x, k)), k, x)


WRITES = ("set", "add", "subtract", "multiply", "min", "max")


def writes(x, y, k, mode):
    """`x` of shape (4, 3, 2), `y` of shape (2, 3), `k` of shape (2, 2)."""
    for name in WRITES:
        yield getattr(x.at[k[0], :, 1], name)(y, mode=mode)
    yield x.at[k[0], k[1], k[0]].set(y[:, 0], mode=mode)
    yield x.at[k[1, 1], 1:3].add(y[0, :2], mode=mode)
    yield x.at[:, k[0, 0]].set(y[:, 1], mode=mode)
    yield (x > 0).at[k[0]].set(y[0, 0] > 0, mode=mode)
    yield (9 * x).astype(np.int8).at[k[0, 0], k[0]].add(jnp.int8(100), mode=mode)


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.quick_cases(
    "unrolled-per lane-fill", "large-shared-clip", "large-literal-fill"
)
def test_writes(size, kind, mode):
    """Also at equal places, in the order of the updates."""
    x, y, k = normal(0, 4, 3, 2), normal(1, 2, 3), integers(2, -6, 7, 2, 2)
    function = lambda x, y, k: tuple(writes(x, y, k, mode))
    at_indices(kind, function, k, x, y, exact=False)


def test_writes_in_bounds(size):
    x, y, k = normal(0, 4, 3, 2), normal(1, 2, 3), integers(2, 0, 2, 2, 2)
    function = lambda x, y, k: tuple(writes(x, y, k, "promise_in_bounds"))
    at_indices("per lane", function, k, x, y, exact=False)


def test_batched_indices(size):
    """Indices that have an axis in common with the array."""

    def function(x, y, k):
        read = jax.vmap(lambda x, k: x[k])(x, k)
        last = jax.vmap(lambda x, k: x[k], (1, 0), 1)(x, k[:3])
        put = jax.vmap(lambda x, k, y: x.at[k].set(y))(x, k, y)
        total = jax.vmap(lambda x, k, y: x.at[k].add(y), (1, 0, 0))(x, k[:3], y[:3])
        return read, last, put, total

    compare(function, normal(0, 4, 3), normal(1, 4, 2), integers(2, -4, 5, 4, 2))


@pytest.mark.parametrize("dtype", ("i1", "u1", "u4", "i8", "u8"))
@pytest.mark.quick_cases("i1", "u8")
def test_types_of_indices(dtype):
    """Indices beyond 32 bits are as far outside as they are."""
    info = np.iinfo(dtype)
    values = [0, 3, info.max, info.max - 1, info.min, info.min + 2, 2**32 + 1, 2**31]
    values = [v for v in values if info.min <= v <= info.max]
    k, x = np.resize(np.array(values, dtype), BATCH), normal(0, 6, 2)

    def function(x, k):
        read = x.at[k].get(mode="fill"), x.at[k].get(mode="clip")
        put = x.at[k].set(1.0, mode="drop"), x.at[k].add(1.0, mode="clip")
        cut = lax.dynamic_slice_in_dim(x, k, 3)
        return *read, *put, cut, lax.dynamic_update_slice_in_dim(x, x[:2], k, 0)

    compare(function, x, k, exact=True)


def slices(x, y, k):
    """`x` of shape (5, 4), `y` of shape (2, 3), `k` of shape (2,)."""
    start = k[0], k[1]
    yield lax.dynamic_slice(x, start, (2, 3))
    yield lax.dynamic_slice(x, start, (5, 1))
    yield lax.dynamic_slice(x, (k[0], jnp.zeros_like(k[0])), (1, 4))
    yield lax.dynamic_update_slice(x, y, start)
    yield lax.dynamic_update_slice(x, x[:, ::-1], start)
    yield lax.dynamic_update_slice(x > 0, y > 0, start)
    yield lax.dynamic_index_in_dim(x, k[1], 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.quick_cases("unrolled-literal", "large-per lane", "large-shared")
def test_slices(size, kind):
    x, y, k = normal(0, 5, 4), normal(1, 2, 3), integers(2, -9, 10, 2)
    at_indices(kind, lambda x, y, k: tuple(slices(x, y, k)), k, x, y)


@few
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    count=st.integers(1, 4),
    kind=st.sampled_from(KINDS),
    mode=st.sampled_from(MODES[:2]),
    seed=st.integers(0, 99),
)
@pytest.mark.quick_cases("large")
def test_any_shape(size, shape, count, kind, mode, seed):
    x, y = normal(seed, *shape), normal(seed + 1, count, shape[1])
    k = integers(seed, -2 * shape[0], 2 * shape[0], count)

    def function(x, y, k):
        read = x.at[k].get(mode=mode)
        return read, x.at[k].set(y, mode=mode), x.T.at[:, k].max(y.T, mode=mode), x[k]

    at_indices(kind, function, k, x, y)


def test_chains(size):
    """Writes to what was written, while what was there before is still read."""
    x, k = normal(0, 80), integers(1, 0, 80, 5)

    def function(x, k):
        a = x.at[k[0]].set(1.0)
        b = a.at[k[1]].set(a[k[2]] + 2.0)
        c = a.at[k[1]].set(3.0)
        total = a[3] + b[4] + c[5], a.sum(), b.sum() * c.sum()
        return a, b, c, a[k[1]], a[7] * b[7], *total

    compare(function, x, k)
    compare(function, x, k[0], shared=(1,))


def test_lanes_of_a_shared_array(size):
    """An array that all lanes share becomes one of each when lanes write to it."""

    def function(x, k, y):
        return x.at[k].set(y), x.at[k, 1].add(y[0]), x[k] * y

    args = normal(0, 9, 3)[0], integers(1, -9, 9), normal(2, 3)
    compare(function, *args, shared=(0,), exact=True)


def test_a_function_of_its_own_has_no_kernel():
    kernel = Kernel(lambda x: (x.at[1].apply(jnp.sin),))
    with pytest.raises(kernels.Unsupported, match="scatter"):
        kernel(normal(0, 3))


# Sorting.


def special(seed: int, *shape) -> np.ndarray:
    x = np.round(2 * normal(seed, *shape)) / 2
    choices = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    which = integers(seed, 0, 12, *shape)
    return np.where(which < 6, choices[which % 6], x).astype(np.float32)


def test_sort():
    """Stable; NaN comes last, and zeros of both signs are equal."""

    def function(x, y, n):
        yield jnp.sort(x, axis=0)
        yield jnp.sort(x, axis=1)
        yield jnp.argsort(x, axis=1)
        yield jnp.argsort(n[:, 0], descending=True)
        yield from lax.sort((x, y, n), dimension=0, num_keys=1)
        yield from lax.sort((n, x, y), dimension=1, num_keys=2)
        yield jnp.median(y, axis=0)
        yield jnp.sort(n > 2, axis=0)

    args = special(0, 6, 3), special(1, 6, 3), integers(2, 0, 4, 6, 3, dtype="u1")
    compare(lambda *xs: tuple(function(*xs)), *args, exact=True)


def test_sort_of_many_has_no_kernel():
    kernel = Kernel(lambda x: (jnp.sort(x),))
    with pytest.raises(kernels.Unsupported, match="`sort` of 40 elements"):
        kernel(normal(0, 40))
