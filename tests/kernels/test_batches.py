"""A batch of any size gives what its environments give one by one."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings, strategies as st
from jax import lax
from kernels.harness import WIDTH

from eqsim import _kernels as kernels
from eqsim._batching import batch_last


# Named, as the width depends on the machine.
SIZES = [
    pytest.param(size, id=name)
    for name, size in {
        "one": 1,
        "two": 2,
        "half": WIDTH // 2 - 1,
        "less": WIDTH - 1,
        "width": WIDTH,
        "more": WIDTH + 1,
        "three": 3 * WIDTH,
        "many": 1_000,
    }.items()
]


def model(shape, x):
    """With a loop per lane, a matrix that is solved, and an index that is computed;
    `shape` has shape (3, *batch), `x` has shape (4, *batch)."""
    body = lambda _, c: 0.5 * (c + shape[0] / c)
    root = lax.fori_loop(0, 3, body, 1.0 + 0.0 * (x[0] * shape[0]))
    halves = _halves(lax.stop_gradient(root + x[1]))
    y = jnp.sin(x) * shape[1:2] + root[None] * halves[None]
    first = lax.fori_loop(0, 4, lambda k, c: c + y[k] * shape[2], 0.0 * (y[0] + root))
    return y, first[None]


def _halves(x):
    """`x`, halved until it is below 1/2: as often as a lane needs."""
    test = lambda y: jnp.any(y >= 0.5)
    return lax.while_loop(test, lambda y: jnp.where(y >= 0.5, 0.5 * y, y), x)


wrapped = batch_last(model)


def arguments(seed: int, *sizes: tuple[int, ...], dtype=np.float32):
    """Positive numbers for `model`, with batch axes in front."""
    generator = np.random.default_rng(seed)
    pairs = zip((3, 4), sizes, strict=True)
    return [generator.uniform(0.5, 2.0, (*n, k)).astype(dtype) for k, n in pairs]


def check(function, *args, rtol=1e-5) -> None:
    """Kernels and XLA agree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EQSIM_KERNELS", "on")
        got = jax.jit(lambda *xs: function(*xs))(*args)
        patch.setenv("EQSIM_KERNELS", "off")
        expected = jax.jit(lambda *xs: function(*xs))(*args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = np.abs(b).max() if b.size else 1.0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.quick_cases("one", "more", "many")
def test_sizes(size):
    check(jax.vmap(wrapped), *arguments(0, (size,), (size,)))
    check(jax.vmap(wrapped, (None, 0)), *arguments(1, (), (size,)))


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.quick_cases("one-float32", "more-float64", "many-float32")
def test_sums_over_the_batch(size, dtype):
    """Gradients by what the batch shares."""

    def loss(shape, x):
        return sum(out.sum() for out in jax.vmap(wrapped, (None, 0))(shape, x))

    rtol = 2e-5 if dtype == np.float32 else 1e-12
    check(jax.grad(loss, (0, 1)), *arguments(3, (), (size,), dtype=dtype), rtol=rtol)


def nested(axes):
    """`model` under one `vmap` for each pair of axes, the outermost first."""
    return ft.reduce(lambda fn, pair: jax.vmap(fn, pair), reversed(axes), wrapped)


@settings(max_examples=examples(25))
@given(
    axes=st.lists(st.sampled_from([(0, 0), (None, 0), (0, None)]), max_size=3),
    sizes=st.lists(st.integers(1, 2 * WIDTH + 1), min_size=3, max_size=3),
    seed=st.integers(0, 9),
)
def test_ranks(axes, sizes, seed):
    """Any number of batch axes, each shared by any of the arguments."""
    own = [
        tuple(size for size, pair in zip(sizes, axes) if pair[k] == 0) for k in (0, 1)
    ]
    given = arguments(seed, *own)
    function = nested(axes)
    check(function, *given)
    total = lambda *xs: sum(out.sum() for out in function(*xs))
    check(jax.grad(total, (0, 1)), *given, rtol=3e-5)


def test_three_axes_that_arguments_do_not_share():
    """Some arguments are repeated; the kernel stays. Derivatives and sums as well."""
    many = jax.vmap(jax.vmap(jax.vmap(wrapped, (0, None)), (None, 0)), (0, None))
    args = arguments(3, (5, 3), (4,), dtype=np.float64)
    pushed = lambda *xs: jax.jvp(many, list(xs), [jnp.cos(x) for x in xs])[1]
    total = lambda *xs: sum(jnp.sum(jnp.sin(y)) for y in many(*xs))
    for function in (many, pushed, jax.grad(total, (0, 1))):
        with kernels.recorded_fallbacks() as fallbacks:
            check(function, *args, rtol=1e-12)
        assert not fallbacks


def test_results_do_not_depend_on_threads():
    """Sums over the batch are added up in one order."""
    shape, x = arguments(5, (), (20_000,))
    loss = lambda s: sum(out.sum() for out in jax.vmap(wrapped, (None, 0))(s, x))
    gradient = jax.jit(jax.grad(loss))
    first = np.asarray(gradient(shape))
    assert all(np.array_equal(first, gradient(shape)) for _ in range(20))


@pytest.mark.parametrize("size", [SIZES[0], *SIZES[-3:]])
@pytest.mark.quick_cases("more")
def test_a_batch_gives_what_one_gives(size):
    """Every environment of a batch equals a batch of copies of it, bit for bit."""
    shape, x = arguments(6, (size,), (size,))
    whole = jax.jit(jax.vmap(wrapped))(shape, x)
    for k in {0, size // 2, size - 1}:
        copies = [jnp.broadcast_to(a[k], a.shape) for a in (shape, x)]
        own = jax.jit(jax.vmap(wrapped))(*copies)
        for a, b in zip(whole, own, strict=True):
            assert np.array_equal(a[k], b[0])
