"""Loops: `scan` with loop-invariant code motion, loops over rows of arrays that do not
depend on each other, and values that no compiler evaluates twice."""

import functools as ft
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun, Literal, Primitive
from jax.interpreters import ad, batching, mlir

from ._errors import check_count
from ._primitive import are_rows_together


def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    """Run `jax.lax.scan`, but compute what does not depend on the carry or `xs` only
    once, before the loop.

    A step of a pipeline first derives constants from the robot, such as inverse weights
    of joints. XLA leaves this computation inside the loop, and reverse mode repeats it
    in every step. Here it is moved out of the loop, and so is its derivative.

    **Arguments:** the first four are those of `jax.lax.scan`. Carry and `xs` contain
    arrays, and the axis of `xs` has at least one entry.

    - `checkpoint_every`: number of iterations between stored carries for reverse mode;
        the iterations in between are recomputed. It must divide the length. By default,
        reverse mode stores the values that it needs of every iteration.

    **Returns:** the last carry, and the stacked second outputs of `fn`.

    **Raises:** `ValueError` if `checkpoint_every` does not divide the length.
    """
    first = jtu.tree_map(lambda x: x[0], xs)
    abstract = jtu.tree_map(jax.typeof, (init, first))
    closed, out = jax.make_jaxpr(fn, return_shape=True)(*abstract)
    treedef = jtu.tree_structure(out)
    before, after = _split(closed)
    fixed = jaxpr_as_fun(before)()

    def body(carry, x):
        leaves = jtu.tree_leaves((carry, x))
        return jtu.tree_unflatten(treedef, jaxpr_as_fun(after)(*fixed, *leaves))

    if checkpoint_every is None:
        return lax.scan(body, init, xs, length)
    return _segmented(body, init, xs, length, checkpoint_every)


def _segmented(body, init, xs, length, size: int):
    """Loop over segments of `size` iterations, each of which reverse mode
    recomputes."""
    length = jtu.tree_leaves(xs)[0].shape[0] if length is None else length
    check_count("checkpoint_every", size)
    if length % size:
        raise ValueError(
            f"`checkpoint_every` must divide the length {length}, got {size}. Use for "
            f"instance {_middle_divisor(length)}."
        )
    # XLA does not simplify across the boundary of a checkpoint inside a loop.
    segment = jax.checkpoint(
        lambda carry, xs: lax.scan(body, carry, xs, size), prevent_cse=False
    )
    cut = lambda x: x.reshape(length // size, size, *x.shape[1:])
    last, out = lax.scan(segment, init, jtu.tree_map(cut, xs), length // size)
    return last, jtu.tree_map(lambda x: x.reshape(length, *x.shape[2:]), out)


def _middle_divisor(n: int) -> int:
    """Return the divisor of `n` that is nearest to its square root."""
    return min(
        (k for k in range(1, n + 1) if n % k == 0), key=lambda k: abs(k - n**0.5)
    )


def _split(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Split a jaxpr into the part that does not depend on the arguments, and the rest.
    The first arguments of the rest are the outputs of the first part.

    Equations without inputs stay in the rest: XLA places constants well.
    """
    jaxpr, known = closed.jaxpr, set(closed.jaxpr.constvars)
    before, after = [], []
    for eqn in jaxpr.eqns:
        read = _variables(eqn.invars)
        ready = bool(read) and known.issuperset(read) and not eqn.effects
        (before if ready else after).append(eqn)
        if ready:
            known.update(eqn.outvars)
    read = _variables([*(v for eqn in after for v in eqn.invars), *jaxpr.outvars])
    fixed = [v for v in dict.fromkeys(read) if v in known]
    # The debug names of arguments and results are no longer valid.
    info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    split = ft.partial(jaxpr.replace, debug_info=info)
    first = split(eqns=before, invars=[], outvars=fixed)
    rest = split(eqns=after, constvars=[], invars=[*fixed, *jaxpr.invars])
    return ClosedJaxpr(first, closed.consts), ClosedJaxpr(rest, ())


def _variables(atoms) -> list:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


# Rows.


MAX_GROUP_SIZE = 32
"""Maximum number of rows per vectorized group; bounds the memory."""


def each_row(visit: Callable, rows: Any) -> Any:
    """Map `visit` over the first axis of `rows`.

    By default a scan: the program is small, branches are skipped, and the data of a row
    stay in the cache of a CPU. Within `rows_together`, `jax.vmap` over groups of at most
    `MAX_GROUP_SIZE` rows, which needs fewer kernel launches on a GPU; both sides of a
    branch are then computed. Reverse mode recomputes a row or group instead of storing
    its values.
    """
    count = jtu.tree_leaves(rows)[0].shape[0]
    if not are_rows_together() or count < 2:
        return _scanned(visit, rows)
    passes = -(-count // MAX_GROUP_SIZE)
    if passes == 1:
        return jax.checkpoint(jax.vmap(visit))(rows)
    groups = jtu.tree_map(lambda x: _in_groups(x, passes, -(-count // passes)), rows)
    found = _scanned(jax.vmap(visit), groups)
    return jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found)


def _scanned(visit: Callable, rows: Any) -> Any:
    once = jax.checkpoint(lambda _, row: (None, visit(row)), prevent_cse=False)
    return lax.scan(once, None, rows)[1]


def _in_groups(x: Any, passes: int, size: int) -> Any:
    """Divide rows into groups; the last row is repeated to fill the last group."""
    missing = passes * size - x.shape[0]
    if missing:
        x = jnp.pad(x, [(0, missing), *((0, 0) for _ in x.shape[1:])], mode="edge")
    return x.reshape(passes, size, *x.shape[1:])


# Values that are evaluated once.
#
# XLA evaluates cheap operations again in each fusion that uses them, and contracts products
# and sums in each fusion in its own way. So a comparison of two numbers that are equal up to
# rounding may be true for one of its users and false for the other.
#
# An optimization barrier prevents this on GPUs, where it is removed after fusion. On CPUs,
# XLA removes it before fusion. There, the values are carried by a loop of at most one
# iteration, whose number XLA does not know.


once_p = Primitive("once")
once_p.multiple_results = True


def once(x: Any) -> Any:
    """Return `x`, evaluated once for all that use it, so that decisions based on it do not
    contradict each other.

    **Arguments:**

    - `x`: a tree of arrays.
    """
    leaves, treedef = jtu.tree_flatten(x)
    return jtu.tree_unflatten(treedef, once_p.bind(*leaves))


def _carried(*xs):
    """Return arrays as results of a loop that does not change them."""
    full = [x for x in xs if x.size > 0]
    if not full:
        return list(xs)
    entry = full[0].reshape(-1)[0]
    count = entry.astype(bool).astype(jnp.int32)

    def keep(carry):
        k, values = carry
        # Always true. XLA would move out of the loop what it does not change.
        used = k < count
        return k + 1, [jnp.where(used, x, jnp.zeros_like(x)) for x in values]

    start = jnp.zeros_like(count), list(xs)
    return lax.while_loop(lambda carry: carry[0] < count, keep, start)[1]


def _jvp_of_once(primals, tangents):
    return once_p.bind(*primals), list(tangents)


once_p.def_impl(lambda *xs: list(xs))
once_p.def_abstract_eval(lambda *avals: list(avals))
ad.primitive_jvps[once_p] = _jvp_of_once
batching.primitive_batchers[once_p] = lambda xs, axes: (once_p.bind(*xs), list(axes))
_barrier = mlir.lower_fun(lambda *xs: lax.optimization_barrier(xs), True)
mlir.register_lowering(once_p, _barrier)
mlir.register_lowering(once_p, mlir.lower_fun(_carried, True), platform="cpu")
