"""Loops, branches and calls.

Lanes that need a loop or a branch no longer keep what they have: what a lane gets equals,
bit for bit, what all lanes get in a batch of copies of it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Literal
from kernels.harness import assert_close, assert_same, Kernel, WIDTH

from eqsim._kernels import _runtime, _translation
from eqsim._kernels._graph import LANE


BATCH = 2 * WIDTH + 1


def normal(seed: int, *shape) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(BATCH, *shape)).astype(np.float32)


def counts(seed: int, high: int, *shape) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.integers(0, high, (BATCH, *shape)).astype(np.int32)


def check(function, *args, shared=()) -> None:
    """Equal to XLA; and every lane equal to a batch of copies of it. Of what all lanes share,
    the first row is taken."""
    args = [x[0] if k in shared else x for k, x in enumerate(args)]
    kernel = Kernel(function, shared)
    got = kernel(*args)
    assert_close(got, kernel.by_xla(*args))
    for lane in (0, 3, BATCH - 1):
        copies = [
            x if k in shared else np.broadcast_to(x[lane], x.shape)
            for k, x in enumerate(args)
        ]
        own = [np.broadcast_to(x[lane], x.shape) for x in got]
        assert_same(kernel(*copies), own)


def newton(x):
    """As long as a lane needs."""

    def body(carry):
        k, y, _ = carry
        return k + 1, 0.5 * (y + x / y), y

    test = lambda carry: (carry[0] < 50) & (jnp.abs(carry[1] - carry[2]) > 1e-6 * x)
    return lax.while_loop(test, body, (jnp.int32(0), x, jnp.zeros_like(x)))


def table(x, n):
    """Arrays in the carry, written and read at computed places."""

    def body(carry):
        k, y, old, total = carry
        new = y.at[k % 7].add(y[(k + 3) % 7] + 1.0).at[0].multiply(0.5)
        return k + 1, new, y, total + y[2]

    start = jnp.int32(0), x, jnp.zeros_like(x), jnp.zeros((), x.dtype)
    return lax.while_loop(lambda carry: carry[0] < n, body, start)


def never(x, n):
    """No lane, or few, ever begin."""
    one = lax.while_loop(lambda c: c[0] < -n, lambda c: (c[0] + 1, c[1] * 2), (n, x))
    two = lax.while_loop(lambda c: c[0] > 5, lambda c: (c[0] - 1, c[1] * 2), (n, x))
    return *one, *two


@pytest.mark.parametrize("shared", ((), (1,)))
@pytest.mark.quick_cases("unrolled-shared0", "large-shared1")
def test_while(size, shared):
    x, n = normal(0, 7), counts(1, 12)
    check(lambda x: newton(jnp.abs(x[0]) + 0.1), x)
    check(table, x, n, shared=shared)
    check(never, x, n, shared=shared)


def test_environments_are_sorted_by_work(monkeypatch):
    """A kernel sorts environments by the work of the call before: what each gets stays,
    bit for bit, in a first and in a second call, and in other places of the batch."""
    # Also small loops, and compiled here.
    monkeypatch.setattr(_runtime, "WORTHWHILE", 1)
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", "")
    batch, rng = 5_003, np.random.default_rng(0)
    x = rng.normal(size=(batch, 7)).astype(np.float32)
    n = rng.integers(0, 40, batch).astype(np.int32)
    kernel = Kernel(table)
    first = kernel(x, n)
    assert_same(kernel(x, n), first)
    assert_same(kernel(x[::-1].copy(), n[::-1].copy()), [y[::-1] for y in first])
    assert_same(first, [y[::-1] for y in kernel(x[::-1].copy(), n[::-1].copy())])
    assert_same(kernel(x[:5], n[:5]), [y[:5] for y in first])


def nested(x, n, m):
    """A loop of each lane in a loop of each lane, in a scan, in a branch."""

    def inner(y, stop):
        def body(c):
            return c[0] + 1, c[1].at[c[0] % 7].add(0.5 * c[1][0])

        return lax.while_loop(lambda c: c[0] < stop, body, (jnp.int32(0), y))[1]

    def body(c):
        k, y = c
        y = lax.cond(y[1] > 0, lambda y: inner(y, m + k), lambda y: y - 0.1, y)
        return k + 1, lax.fori_loop(0, n, lambda i, z: z + y * 0.1, y)

    outer = lambda y: lax.while_loop(lambda c: c[0] < n, body, (jnp.int32(0), y))[1]
    last, rows = lax.scan(lambda y, _: (outer(y), inner(y, n)[:2]), x, None, 3)
    return last, rows, lax.cond(n > m, outer, lambda y: inner(y, m), x)


@pytest.mark.parametrize("shared", ((), (1,), (2,), (1, 2)))
@pytest.mark.quick_cases("unrolled-shared0", "large-shared3")
def test_nested_loops(size, shared):
    check(nested, normal(0, 7), counts(1, 5), counts(2, 5), shared=shared)


def branches(x, n, flag):
    cases = (
        lambda x: (x, jnp.float32(0)),
        lambda x: (jnp.sin(x), x.sum()),
        lambda x: (x[::-1], jnp.float32(2)),
        lambda x: (x.at[n % 7].set(9.0), x[n % 7]),
    )
    one = lax.switch(n - 2, cases, x)
    two = lax.cond(flag, lambda x: x * 2, lambda x: x, x)
    three = lax.cond(
        flag,
        lambda x: lax.switch(n, cases, x)[0],
        lambda x: lax.cond(n > 3, lambda x: x / 3, jnp.cumsum, x),
        x,
    )
    same = lax.cond(flag, lambda x: (x, x[0]), lambda x: (x, x[0]), x)
    return *one, two, three, *same


@pytest.mark.parametrize("shared", ((), (1,), (2,), (1, 2)))
@pytest.mark.quick_cases("unrolled-shared0", "large-shared3")
def test_branches(size, shared):
    """Numbers of branches out of range are moved into it."""
    check(branches, normal(0, 7), counts(1, 9), counts(2, 2) > 0, shared=shared)


def test_branches_guard_what_must_not_happen():
    """Both branches compute in lanes that do not need them; results are selected."""

    def function(x):
        safe = lax.cond(x > 0, lambda x: jnp.log(x), lambda x: x, x)
        found = lax.cond(x > 0, lambda x: newton(x)[1], lambda x: -x, x)
        return safe, found

    check(function, normal(0))


def scans(x, rows, k):
    def body(carry, row):
        y, total = carry
        y = y.at[k % 7].add(row[0]) * 0.9
        return (y, total + y[row.shape[0]]), (y[:2], row.sum() > 0)

    start = x, jnp.float32(0)
    yield lax.scan(body, start, rows)
    yield lax.scan(body, start, rows, reverse=True)
    yield lax.scan(body, start, rows[:1])
    yield lax.scan(body, start, rows[:1], reverse=True)
    yield lax.scan(lambda c, _: (c + 1, (c, x)), jnp.int32(0), None, length=4)
    yield lax.scan(lambda c, row: (c, row * c[1]), x, rows)
    yield lax.scan(lambda c, row: ((c[1], c[0] + 1), row), (x, 2 * x), rows)
    yield lax.map(lambda row: jnp.outer(row, row), rows)
    yield lax.fori_loop(0, 5, lambda i, c: c.at[i].set(c[i + 1] + c[0]), x)


@pytest.mark.parametrize("shared", ((), (1,), (2,), (1, 2)))
@pytest.mark.quick_cases("unrolled-shared2", "large-shared1")
def test_scans(size, shared):
    flat = lambda *xs: tuple(jax.tree.leaves(list(scans(*xs))))
    check(flat, normal(0, 7), normal(1, 5, 3), counts(2, 9), shared=shared)


def carried_arrays(x, k):
    """Every way in which what a pass overwrites may be read in the same pass."""
    wide = jnp.concatenate([x, 2 * x])

    def swap(c, i):
        a, b = c[i], c[i + 1]
        return c.at[i].set(b).at[i + 1].set(a), (a, c[0], c.sum())

    def previous(c, i):
        return (c[1], c[1].at[i].set(c[1][3] + 1)), c[0][3]

    def scalars(c, i):
        return (c[0] * 2 + c[1], c[0][3]), c[0][3] + c[0][4]

    def written(c, i):
        return (c[0].at[3].set(c[0][3] + c[1] + 1), c[0][3]), c[0][3]

    def rotate(c, i):
        return (c[1], c[2], c[0]), c[1][i]

    def kept(c, i):
        return (c[0], c[1] + c[0].at[i].set(c[1] + 1)[2] + c[0].at[2].set(c[1])[i]), i

    yield lax.scan(swap, wide, k)
    yield lax.scan(previous, (wide, wide), k)
    yield lax.scan(scalars, (wide, jnp.float32(0)), k)
    yield lax.scan(written, (wide, jnp.float32(0)), k)
    yield lax.scan(rotate, (wide, -wide, wide + 1), k)
    yield lax.scan(kept, (wide, jnp.float32(0)), k)
    before, rows = lax.scan(lambda c, i: (c.at[i].add(1.0), c[20::-1]), wide, k)
    after = lambda c, i: (c + before.at[i].set(c)[3] + rows.at[1, i].set(c)[1, 2], c)
    yield lax.scan(after, jnp.float32(0), k)
    yield before, rows


@pytest.mark.parametrize("shared", ((), (1,), (0,)))
@pytest.mark.quick_cases("unrolled-shared1", "large-shared2")
def test_carried_arrays(size, shared):
    flat = lambda *xs: tuple(jax.tree.leaves(list(carried_arrays(*xs))))
    check(flat, normal(0, 40), counts(1, 79, 5), shared=shared)


def written_in_loops(count, start, table):
    """Two small arrays that nested loops read and write at computed indices."""

    def outer(carry):
        k, x, numbers = carry

        def inner(carry):
            j, x = carry
            old, other = x[(7 * j + k) % 20], table[(j * 31 + k) % 1500]
            place = jnp.where((j + k) % 3 == 0, 20, (3 * j + k) % 20)
            return j + 1, x.at[place].set(0.5 * old + other, mode="drop")

        j, x = lax.while_loop(lambda carry: carry[0] < count - k, inner, (k * 0, x))
        x = x.at[k % 20].add(1.0)
        numbers = numbers.at[k % 12].set(j + numbers[(k + 5) % 12])
        return k + 1, x, numbers

    begin = jnp.int32(0), jnp.full(20, start), jnp.arange(12, dtype=jnp.int32)
    return lax.while_loop(lambda carry: carry[0] < count, outer, begin)


def test_large_arrays_in_loops_of_lanes(size):
    """What is frozen of an array is kept although the array is updated in place."""

    def function(x, n, k):
        def body(c):
            return c[0] + 1, c[1].at[k].add(1.0) * 1.5, c[1].at[c[0]].set(0.0)

        carry = lax.while_loop(lambda c: c[0] < n, body, (jnp.int32(0), x, x))
        put = lax.cond(n > 3, lambda y: y.at[k].set(9.0), lambda y: y.at[0].add(1), x)
        return *carry, put

    check(function, normal(0, 90), counts(1, 8), counts(2, 90))


def lists(x, n, m):
    """Lists of different sizes without values at first; lanes fill and read what they
    need."""

    def filled(size, count):
        def body(c):
            k, rows = c
            place = jnp.where(k < count, k, size)
            return k + 1, rows.at[place].set(x[k % 7] + k, mode="drop")

        return lax.while_loop(
            lambda c: c[0] < count, body, (0, lax.empty((size,), x.dtype))
        )[1]

    short, long, other = filled(10, n), filled(3000, 30 * m), filled(3100, 30 * m)

    def body(c):
        k, total = c
        pair = jnp.where(k < 30 * m, long[k] * other[k], jnp.nan)
        return k + 1, total + pair + jnp.where(k < n, short[k % 10], 0.0)

    zero = 0, jnp.zeros_like(x[0])
    return (lax.while_loop(lambda c: c[0] < 30 * m, body, zero)[1],)


def appended(x, n, m):
    """A loop within a loop appends to a list, which a later one reads; a second list is
    read after the loop within has begun with it."""

    def outer(carry, row):
        rows, other, k = carry

        def inner(c):
            j, rows, k = c
            return (
                j + 1,
                rows.at[k].set(x[j % 7] + row.astype(x.dtype), mode="drop"),
                k + 1,
            )

        count = jnp.where(row < n, m, 0)
        _, rows, k = lax.while_loop(lambda c: c[0] < count, inner, (0, rows, k))
        begin = other

        def change(c):
            j, other = c
            return j + 1, other.at[j].add(row.astype(x.dtype), mode="drop")

        _, other = lax.while_loop(lambda c: c[0] < m, change, (0, begin))
        return (rows, other - 0.5 * begin, k), begin[m - 1]

    start = jnp.zeros(40, x.dtype), jnp.arange(12, dtype=x.dtype), jnp.int32(0)
    (rows, other, k), seen = lax.scan(outer, start, jnp.arange(6, dtype=jnp.int32))
    return rows, other, k, seen


def looked_up(x, n, m):
    """A branch that a loop repeats reads a table of values from before the loop."""
    table = jnp.stack([x[k] * x[(k + 3) % 7] for k in range(7)])

    def body(c):
        k, total = c
        read = lambda: table[(k * m) % 7]
        return k + 1, total + lax.cond(k % n == 1, read, lambda: x[0])

    return (lax.while_loop(lambda c: c[0] < 3 * n, body, (0, x[0]))[1],)


@pytest.mark.parametrize("function, high", ((lists, 10), (appended, 6), (looked_up, 6)))
def test_lists_and_tables(function, high):
    check(function, normal(0, 7), counts(1, high), counts(2, high))


def test_arrays_that_loops_write():
    given = counts(0, 9), normal(1), normal(2, 1500)
    check(written_in_loops, *given, shared=(2,))


@pytest.mark.parametrize("reads", (False, True))
def test_numbers_of_passes_are_the_same_in_all_lanes(reads):
    """Unless something reads them after the loop; JAX need not mark what is not read."""
    step = lambda c: (c[0] + 1, c[1] + c[0])
    loop = lambda n: lax.while_loop(lambda c: c[0] < n, step, (0, 0))
    jaxpr = jax.make_jaxpr(loop)(jnp.int32(3)).jaxpr
    if not reads:
        jaxpr = jaxpr.replace(outvars=jaxpr.outvars[1:])
    (own,) = (eqn for eqn in jaxpr.eqns if eqn.primitive.name == "while")
    given = [0 if isinstance(x, Literal) else LANE for x in own.invars]
    number, total = _translation.while_dependence(own, given, jaxpr)
    assert bool(number & LANE) == reads and total & LANE


def test_a_scan_without_passes_falls_back():
    from eqsim import _kernels as kernels

    kernel = Kernel(lambda x: lax.scan(lambda c, _: (c, c), x, None, length=0))
    with pytest.raises(kernels.Unsupported, match="length 0"):
        kernel(normal(0))


def test_scans_of_unknown_versions_of_jax_fall_back():
    found = jax.make_jaxpr(lambda x: lax.scan(lambda c, _: (c + x, c), x, None, 3))(1.0)
    (scan,) = (eqn for eqn in found.eqns if eqn.primitive.name == "scan")
    assert _translation.scan_sizes(scan.params) == (1, 1)
    with pytest.raises(_translation.Unsupported, match="this version of JAX"):
        _translation.scan_sizes({"length": 3})


# Calls.


@jax.custom_jvp
def softplus(x):
    return jnp.log1p(jnp.exp(x))


@softplus.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return softplus(x), t * jax.nn.sigmoid(x)


@jax.custom_vjp
def clipped(x):
    return jnp.clip(x, -1, 1)


clipped.defvjp(lambda x: (clipped(x), None), lambda _, g: (g,))


def calls(x):
    matrix = jnp.outer(x[:3], x[:3]) + jnp.eye(3, dtype=x.dtype)
    solve = lambda _, b: jnp.stack([b[0] / matrix[0, 0], b[1], matrix[2] @ b])
    yield softplus(x)
    yield clipped(3 * x)
    yield jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)))(x)
    yield jax.jit(lambda x: x @ x)(x)
    yield lax.custom_linear_solve(lambda y: matrix @ y, x[:3], solve, solve)
    yield lax.stop_gradient(x) * x


def test_calls(size):
    check(lambda x: tuple(calls(x)), normal(0, 7))


# Derivatives of all of these.


def smooth(x, n):
    """A number that depends on `x` through every kind of control flow."""
    rows = jnp.stack([x, 2 * x, x * x])
    total, ys = lax.scan(lambda c, r: (c + jnp.sin(r[0] * c), c * r), x[1], rows)
    back, _ = lax.scan(lambda c, r: (c.at[n].add(r[1]), None), x, ys, reverse=True)
    branch = lax.switch(n % 3, [jnp.sin, jnp.cos, lambda x: x * x], back)
    guarded = lax.cond(x[0] > 0, lambda x: jnp.log(1 + x * x), jnp.tanh, branch)
    looped = lax.fori_loop(0, 3, lambda i, c: c * 0.5 + guarded[i], total)
    once = jax.checkpoint(lambda x: softplus(x).sum())(guarded)
    gathered = jnp.take(guarded, n) * x.at[n].multiply(2.0).max()
    return looped + once + gathered + jnp.sort(x[:3])[1] + jnp.linalg.norm(x)


def stopped(x, n):
    """Forward mode goes through loops without a bound on their passes."""
    body = lambda c: (c[0] + 1, jnp.sin(c[1]) * x + c[1].at[n].mul(0.5))
    return lax.while_loop(lambda c: c[0] < n, body, (jnp.int32(0), x))[1].sum()


def derivatives(x, n, t):
    yield jax.value_and_grad(lambda x, n: smooth(clipped(x), n))(x, n)
    yield jax.jvp(lambda x: smooth(x, n), (x,), (t,))
    yield jax.jvp(lambda x: stopped(x, n), (x,), (t,))
    yield jax.jvp(lambda x: jax.grad(smooth)(x, n), (x,), (t,))
    yield jax.jacfwd(lambda x: table(x, n)[1])(x)[:, 0]


@pytest.mark.parametrize("shared", ((), (1,)))
@pytest.mark.parametrize("double", (False, True))
@pytest.mark.quick_cases("large-True-shared1")
def test_derivatives(size, shared, double):
    """Rounding grows in second derivatives of the repeated products: it is relative to the
    largest number of a result."""
    args = [normal(0, 7), counts(1, 6), normal(2, 7)]
    cast = lambda x: x.astype(np.float64) if double and x.dtype.kind == "f" else x
    args = [cast(x[0] if k in shared else x) for k, x in enumerate(args)]
    kernel = Kernel(lambda *xs: tuple(jax.tree.leaves(list(derivatives(*xs)))), shared)
    bound = 1e-12 if double else 1e-4
    for got, expected in zip(kernel(*args), kernel.by_xla(*args), strict=True):
        assert got.dtype == expected.dtype
        scale = np.maximum(1.0, np.abs(expected).max())
        np.testing.assert_array_less(np.abs(got - expected), bound * scale)


def test_uniform_result_of_a_loop_with_lanes(size):
    """What all lanes share waits for a loop that also carries what they do not."""

    def counted(x):
        body = lambda c, _: ((c[0] + 1, c[1] * 0.5 + x[0]), c[0])
        places = lax.scan(body, (0, x[1]), None, length=3)[1]
        add = lambda c, k: (c + jnp.zeros(7, x.dtype).at[k].set(1.0), None)
        return lax.scan(add, jnp.zeros(7, x.dtype), places)[0], places, x

    check(counted, normal(0, 7))
