"""Jacobian-vector and vector-Jacobian products, which kernels compute without JAX.

Each function is compared with `jax.jvp` or `jax.vjp` under XLA, relative to the largest
number of a result, in double precision.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from kernels.harness import Kernel, WIDTH

from eqsim._kernels._forward import FORWARD
from eqsim._kernels._reverse import REVERSE
from eqsim._lists import each
from eqsim._loops import once


BATCH = WIDTH + 1


def normal(seed: int, *shape) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(BATCH, *shape))


def counts(seed: int, high: int, *shape) -> np.ndarray:
    numbers = np.random.default_rng(seed).integers(0, high, (BATCH, *shape))
    return numbers.astype(np.int32)


def check(mode, function, *args, shared=(), bound=1e-12, seed=7) -> None:
    """Derivatives by all arguments that are floats, along random vectors."""
    single = [x if k in shared else x[0] for k, x in enumerate(args)]
    chosen = tuple(k for k, x in enumerate(args) if x.dtype.kind == "f")
    like = [single[k] for k in chosen]
    if mode == "reverse":
        like = jax.eval_shape(lambda *xs: tuple(function(*xs)), *single)
    given = [normal(seed + k, *x.shape).astype(x.dtype) for k, x in enumerate(like)]
    which = {"pulled" if mode == "reverse" else "pushed": chosen}
    kernel = Kernel(function, shared, (), **which)
    results = kernel(*args, *given), kernel.by_xla(*args, *given)
    for got, expected in zip(*results, strict=True):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(got[~finite], expected[~finite])
        got, expected = got[finite], expected[finite]
        scale = np.max(np.abs(expected), initial=1.0)
        np.testing.assert_allclose(got, expected, rtol=0, atol=bound * scale)


both = pytest.mark.parametrize("mode", ("forward", "reverse"))


# Arithmetic.


def arithmetic(x, y):
    yield from (x + y, x - y, x * y, x / y, -x, jnp.square(x), x**3, x**-2, x**0)
    yield from (jnp.sqrt(y * y + 1), jnp.sin(x), jnp.cos(x), jnp.exp(x), jnp.abs(x))
    yield from (jnp.log(y * y + 1), jnp.maximum(x, y), jnp.minimum(x, y), x * 2.0)
    yield from (
        jnp.clip(x, -0.5, 0.5),
        jnp.where(x > y, x * y, x - y),
        jnp.floor(x) * y,
    )
    yield from (jnp.arctan2(x, y), jnp.tanh(x), jax.nn.softplus(x), jnp.sign(x) * y)
    yield from (
        lax.stop_gradient(x) * x,
        jnp.arcsin(0.9 * jnp.sin(x)),
        1.0 / (1 + y * y),
    )
    yield lax.select_n(jnp.int32(1) + (x > 0).astype(jnp.int32), x, y, x * y)
    yield x.astype(jnp.float32).astype(x.dtype) * y
    yield jax.grad(lambda x: jnp.sum(jnp.tanh(x)))(x)


@both
@pytest.mark.quick_cases("unrolled-forward", "large-reverse")
def test_arithmetic(mode, size):
    check(mode, lambda x, y: tuple(arithmetic(x, y)), normal(0, 3), normal(1, 3))


@both
@pytest.mark.quick_cases("unrolled-forward", "large-reverse")
def test_ties_and_zeros(mode, size):
    """Equal operands of extrema, zeros under roots, quotients and in powers."""
    x = np.tile([0.0, 0.5, -0.5, 1.0, 0.0], (BATCH, 1))
    y = np.tile([0.0, 0.5, 0.5, -1.0, 1.0], (BATCH, 1))

    def function(x, y):
        pair = jnp.maximum(x, y), jnp.minimum(x, y), jnp.abs(x), x**2, x**1, x**0
        return (
            *pair,
            jnp.clip(x, -0.5, 0.5),
            jnp.where(x == 0, 1.0, y / jnp.where(x == 0, 1.0, x)),
        )

    check(mode, function, x, y)


@both
def test_poles(mode, size):
    """NaN and infinities appear where they do under JAX."""
    x = np.tile([0.0, 1.0, -1.0], (BATCH, 1))
    check(mode, lambda x: (jnp.sqrt(x), 1.0 / x, jnp.log(x)), x)


@both
def test_single_precision(mode, size):
    args = (x.astype(np.float32) for x in (normal(0, 3), normal(1, 3)))
    function = lambda x, y: (x * y, x / (1 + y * y), jnp.sin(x) * jnp.cos(y))
    check(mode, function, *args, bound=1e-5)


@both
@pytest.mark.parametrize("shared", ((0,), (1,)))
@pytest.mark.quick_cases("unrolled-shared0-reverse", "large-shared1-forward")
def test_shared(mode, size, shared):
    args = [normal(0, 3), normal(1, 3)]
    args = [x[0] if k in shared else x for k, x in enumerate(args)]
    check(mode, lambda x, y: (x * y, jnp.sin(x) @ y), *args, shared=shared)


# What moves elements.


def moves(x):
    yield from (x.reshape(6), x.T, x[None], x[0], x[:, 1:], x[::-1], x[:, ::2])
    yield from (jnp.concatenate([x, 2 * x, x]), jnp.stack([x, x * x]), jnp.tile(x, 2))
    yield from (x.sum(), x.sum(0), x.sum((0, 1)), jnp.broadcast_to(x[:1], (4, 3)))
    yield from (x[jnp.array([1, 0, 1])], x[jnp.array([0, 1]), jnp.array([2, 2])])
    yield from jnp.split(x, 3, axis=1)
    yield x.at[jnp.array([5, 0])].get(mode="fill", fill_value=0.0)
    yield from (jnp.pad(x, 1), jnp.cumsum(x, 1), x @ x.T, x.max(1))
    yield from (x.at[0].set(x[1]), lax.dynamic_update_slice(x, x[:1, :2], (1, 0)))
    yield from (
        x.at[0].add(x[1]),
        x.prod(),
        jnp.linalg.norm(x),
        jnp.einsum("ij,kj", x, x),
    )


@both
@pytest.mark.quick_cases("unrolled-forward", "large-reverse")
def test_moves(mode, size):
    check(mode, lambda x: tuple(moves(x)), normal(0, 2, 3))


@both
def test_sort(mode):
    check(
        mode,
        lambda x: (jnp.sort(x, 1), lax.sort((x, x * x), num_keys=1)[1]),
        normal(0, 2, 5),
    )


@both
@pytest.mark.quick_cases("unrolled-forward", "large-reverse")
def test_computed_indices(mode, size):
    def function(x, n):
        part = lax.dynamic_slice(x, (n,), (2,))
        new = x.at[n].set(x[1] * x[2]), lax.dynamic_update_slice(x, x[:2] ** 2, (n,))
        return jnp.take(x, n), part, x.at[n].multiply(3.0), x[jnp.argmax(x)], *new

    check(mode, function, normal(0, 5), counts(1, 5))


@both
def test_results_that_are_arguments_or_constants(mode, size):
    """Also the same argument twice, results that are no floats, and an argument without
    influence."""

    def function(x, y, n):
        return x, x, jnp.ones(3), n, x > 0, jnp.float64(2.0), x * n.astype(x.dtype)

    check(mode, function, normal(0, 3), normal(1, 2), counts(2, 5, 3))


# Calls.


@jax.custom_jvp
def safe_root(x):
    return jnp.sqrt(x)


@safe_root.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return safe_root(x), t * jnp.where(x > 0.1, 0.5 / jnp.sqrt(x), 7.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def scaled(factor, x, y):
    return factor * x["a"], y


@scaled.defjvp
def _(factor, primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return scaled(factor, x, y), (factor * dx["a"] * y, dy + dx["b"])


@jax.custom_vjp
def clipped(x):
    return jnp.clip(x, -1, 1)


clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (g * jnp.cos(x),))


def solved(matrix, right):
    """A linear system, by a solver whose own derivative is wrong."""
    times = lambda v: matrix @ v
    solve = lambda _, b: lax.stop_gradient(jnp.stack([*_by_cramer(matrix, b)]))
    back = lambda _, b: lax.stop_gradient(jnp.stack([*_by_cramer(matrix.T, b)]))
    return lax.custom_linear_solve(times, right, solve, back)


def _by_cramer(m, b):
    det = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    yield (b[0] * m[1, 1] - m[0, 1] * b[1]) / det
    yield (m[0, 0] * b[1] - b[0] * m[1, 0]) / det


def calls(x):
    yield safe_root(x * x)
    yield from scaled(2.0, {"a": x, "b": x * x}, jnp.sin(x))
    yield jax.jit(lambda x: x @ x)(x)
    yield jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)))(x)
    matrix = jnp.outer(x[:2], x[1:3]) + 4 * jnp.eye(2, dtype=x.dtype)
    yield solved(matrix, x[:2])
    yield solved(lax.stop_gradient(matrix), jnp.cos(x[:2]))
    yield lax.cond(x[0] > 0, lambda x: jnp.log(1 + x * x), jnp.tanh, x)
    yield lax.switch(jnp.int32(x[1] > 0), [jnp.sin, jnp.cos], x)
    yield once({"a": jnp.sin(x)})["a"]


@both
@pytest.mark.quick_cases("unrolled-forward", "large-reverse")
def test_calls(mode, size):
    function = lambda x: tuple(calls(x))
    if mode == "reverse":
        function = lambda x: (*calls(x), clipped(2 * x) * x)
    check(mode, function, normal(0, 3))


# Loops.


def loops(x, n):
    """Loops with carry, rows, constants and stacked results; in both directions, of one
    pass, in each other, with loops of unknown length and branches inside."""
    rows = jnp.stack([x, 2 * x, x * x, jnp.sin(x)])
    pass_ = lambda c, r: (c * jnp.cos(r) / (2 + x * x), (c[0] * r, jnp.sqrt(1 + c * c)))
    for reverse in (False, True):
        yield lax.scan(pass_, x, rows, reverse=reverse)
    yield lax.scan(pass_, x, rows[:1])
    yield lax.fori_loop(0, 3, lambda i, c: c * 0.5 + x[i] / (1 + c * c), x)
    part = jax.checkpoint(lambda c, r: (c * jnp.cos(r) / (2 + c * c), c[0]))
    yield lax.scan(part, x, rows)

    def outer(c, r):
        inner = lambda d, s: (d * 0.5 + jnp.cos(s * d) / (1 + r * r), d * s)
        end, each = lax.scan(inner, c, rows[:2] * r[None])
        return end / (1 + c * c), each.sum(0) / (2 + end * end)

    yield lax.scan(outer, x, rows)

    def branched(c, r):
        halved = lambda c: lax.while_loop(lambda y: y > 1, lambda y: y / 2, c)
        steps = lax.stop_gradient(halved(jnp.abs(c).sum()))
        return lax.cond(c[0] > 0, lambda c: jnp.sin(c) * steps, lambda c: c + r, c), c

    yield lax.scan(branched, x, rows)
    yield lax.scan(lambda c, r: (c.at[n].add(r[1]) / 2, c[n]), x, rows)
    yield lax.scan(
        lambda c, _: (c + solved(jnp.eye(2) * (2 + c[0]), c), None), x[:2], rows
    )
    yield lax.scan(lambda c, r: ((c[0] + 1, c[1] * r / c[0]), c[0]), (1, x), rows)
    yield listed(x, n)
    yield lax.scan(lambda c, r: (c + listed(c * r, n)[1], listed(r, n)[0]), x, rows[:2])


def listed(x, n):
    """A sum over a list whose length differs between lanes, also in loops."""

    def term(row, columns, entries, shared):
        (y,) = entries
        value = jnp.sin(y * shared[:1]) / (2 + y * y) + columns[0].astype(y.dtype)
        return value, value * shared[1:2]

    rows, targets = jnp.array([2, 0, 2, 1], jnp.int32), [None, (0, 3)]
    return each(term, n + 1, rows, [range(3)], [(x, 0)], x, targets)


@both
@pytest.mark.quick_cases("unrolled-forward", "large-reverse")
def test_loops(mode, size):
    flat = lambda x, n: tuple(jax.tree.leaves(list(loops(x, n))))
    check(mode, flat, normal(0, 3), counts(1, 3), bound=1e-11)


def halved(x):
    """A loop that ends where its environment says."""
    return lax.while_loop(lambda y: jnp.sum(y * y) > 1, lambda y: 0.5 * y * x / x, x)


def test_loops_that_end_by_a_test(size):
    """Forward mode only. In each other, in branches, with what they carry unchanged."""

    def function(x, n):
        still = lambda c: (c[0] + 1, c[1] * jnp.cos(c[2]), c[2])
        count, end, same = lax.while_loop(lambda c: c[0] < n, still, (0, x, x * x))
        within = lambda c: (c[0] + 1, halved(c[1] + 2.0 * x))
        _, twice = lax.while_loop(lambda c: c[0] < n, within, (0, x))
        chosen = lax.cond(x[0] > 0, halved, lambda x: jnp.sin(x), 3.0 * x)
        fixed = lax.stop_gradient(halved(x))
        rows = lax.scan(lambda c, r: (c * r, halved(3.0 * c)), x, jnp.stack([x, x]))
        return halved(4.0 * x), end, same, count, twice, chosen, fixed * x, *rows

    check("forward", function, normal(0, 3), counts(1, 4))


@both
@pytest.mark.quick_cases("unrolled-forward", "large-reverse")
def test_loops_over_large_arrays(mode, size):
    big = normal(0, 20 if size == "large" else 600)

    def step(c, r):
        turned = jnp.roll(jnp.sin(c), 1) / (2 + c * c)
        inner = lambda d, s: (jnp.cos(d) * s + turned, d[:2])
        end, rows = lax.scan(inner, c, jnp.stack([r, 2 * r]))
        return turned * r + end * end, c[:3] * rows.sum()

    check(mode, lambda x: lax.scan(step, x, x[:3]), big, bound=1e-11)


@both
def test_loop_that_no_result_needs(mode, size):
    """Its way back never runs."""

    def function(x):
        end, rows = lax.scan(lambda c, r: (c * r, c), x[0], x)
        return jnp.sin(x), lax.stop_gradient(end), rows[0]

    check(mode, function, normal(0, 4))


@pytest.mark.quick_cases("large")
def test_second_derivatives(size):
    """Reverse mode of forward mode, and of reverse mode."""
    flat = lambda x: tuple(jax.tree.leaves(list(calls(x))))
    total = lambda x: sum(jnp.sum(jnp.sin(y)) for y in flat(x))
    forward = lambda x: (jax.jvp(total, (x,), (jnp.cos(x),))[1],)
    check("reverse", forward, normal(0, 3), bound=1e-11)
    check("reverse", lambda x: (jax.grad(total)(x),), normal(0, 3), bound=1e-11)


def test_all_rules_are_tested():
    """Each rule is met by a function of this file."""
    x, n = np.ones(3), np.int32(1)
    parts = [
        jax.make_jaxpr(lambda x: tuple(arithmetic(x, x)))(x),
        jax.make_jaxpr(lambda x: tuple(moves(x)))(np.ones((2, 3))),
        jax.make_jaxpr(lambda x: tuple(calls(x)))(x),
        jax.make_jaxpr(lambda x: list(loops(x, n)))(x),
    ]
    met = {name for part in parts for name in names(part.jaxpr)}
    aliases = {"pjit", "closed_call", "core_call", "remat", "checkpoint", "copy_p"}
    rare = {"add_any", "optimization_barrier", "name", "copy", "unstack", "expand_dims"}
    rare |= set() if hasattr(lax, "one_minus_square_p") else {"one_minus_square"}
    # See `test_separate.py`.
    rare |= {"separate"}
    assert set(REVERSE) - met <= aliases | rare | {"stack", "rev"}
    assert set(FORWARD) - met <= aliases | rare | {"stack", "rev"}


def names(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for value in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from names(inner)
