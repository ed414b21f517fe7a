"""Loops that compute once what stays the same in every pass."""

import functools as ft
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun, Literal


def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    """`jax.lax.scan`, in which what does not depend on the carry or on `xs` is computed
    once, before the loop.

    A step of a pipeline first derives constants from the robot, such as the inverse
    weights of its joints. XLA leaves that inside the loop, and reverse mode goes
    through it once per step. Here it is done once, and so is its derivative.

    **Arguments:** as the first four of `jax.lax.scan`; carry and `xs` hold arrays, and
    `xs` at least one row.

    - `checkpoint_every`: for reverse mode, keep only the carry before every so many
        passes, which must divide their number, and compute what lies between a second
        time. By default all that reverse mode needs of each pass is kept.

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
    """A loop over segments of `size` passes, each of which reverse mode repeats."""
    length = jtu.tree_leaves(xs)[0].shape[0] if length is None else length
    if size < 1 or length % size:
        raise ValueError(
            f"`checkpoint_every` is {size}: a divisor of the length {length} is expected, "
            f"for instance {_middle_divisor(length)}."
        )
    # Inside a loop nothing is eliminated across the boundary of a checkpoint.
    segment = jax.checkpoint(
        lambda carry, xs: lax.scan(body, carry, xs, size), prevent_cse=False
    )
    cut = lambda x: x.reshape(length // size, size, *x.shape[1:])
    last, out = lax.scan(segment, init, jtu.tree_map(cut, xs), length // size)
    return last, jtu.tree_map(lambda x: x.reshape(length, *x.shape[2:]), out)


def _middle_divisor(n: int) -> int:
    """The divisor of `n` that is nearest to its square root."""
    return min(
        (k for k in range(1, n + 1) if n % k == 0), key=lambda k: abs(k - n**0.5)
    )


def _split(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """What does not depend on the arguments, and the rest, whose first arguments are
    the outputs of the former.

    What depends on nothing at all stays: XLA places constants best itself.
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
    # The names of arguments and results no longer fit.
    info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    split = ft.partial(jaxpr.replace, debug_info=info)
    first = split(eqns=before, invars=[], outvars=fixed)
    rest = split(eqns=after, constvars=[], invars=[*fixed, *jaxpr.invars])
    return ClosedJaxpr(first, closed.consts), ClosedJaxpr(rest, ())


def _variables(atoms) -> list:
    return [atom for atom in atoms if not isinstance(atom, Literal)]
