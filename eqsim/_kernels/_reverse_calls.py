"""Reverse mode of calls, custom derivatives and linear solves, and of everything else, by
JAX."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from . import _arrays as arrays
from ._equations import Derivatives, restricted, shapes_of
from ._reverse import Cotangents, Reverse, reverse_rule
from ._scalarize import called, Translation
from ._smooth import CALLS, is_float


def reverse_mode(walk: Translation) -> Reverse:
    """Reverse mode with all rules."""
    return Reverse(walk, _by_jax)


@reverse_rule(*CALLS)
def _call(reverse: Reverse, eqn, operands, active, wanted):
    inner = called(eqn)
    if inner is None:
        return None
    results, _, pull = reverse.closed(inner, operands, active, wanted)
    return results, pull


# By JAX.


@dataclasses.dataclass(frozen=True)
class _Split:
    """An equation in two parts: `forward` computes the results and what `backward` needs
    beside the cotangents of those that are floats."""

    forward: ClosedJaxpr
    backward: ClosedJaxpr


def _new_split(eqn, active: tuple[bool, ...]) -> _Split:
    structure: list[Any] = []

    def forward(*xs):
        fn, chosen = restricted(eqn, xs, active)
        out, pull = jax.vjp(fn, *chosen)
        leaves, treedef = jax.tree.flatten(pull)
        structure.append(treedef)
        return [*out, *leaves]

    first = jax.make_jaxpr(forward)(*shapes_of(eqn.invars))
    number = len(eqn.outvars)

    def backward(leaves, cotangents):
        own = iter(cotangents)
        each = [
            next(own) if is_float(v.aval) else np.zeros(v.aval.shape, jax.dtypes.float0)
            for v in eqn.outvars
        ]
        return structure[0].unflatten(leaves)(each)

    kept = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in first.out_avals[number:]]
    floats = [v for v in eqn.outvars if is_float(v.aval)]
    return _Split(first, jax.make_jaxpr(backward)(kept, shapes_of(floats)))


_split = Derivatives(_new_split)


def _by_jax(reverse: Reverse, eqn, operands, active, *_):
    """Pull back through equations without a rule, by JAX."""
    split, walk = _split(eqn, tuple(active)), reverse.walk
    found = walk.closed(split.forward, operands)
    if reverse.loops:
        found = [arrays.materialized(walk.graph, x) for x in found]
    number, floats = len(eqn.outvars), [is_float(v.aval) for v in eqn.outvars]

    def pull(cotangents: Cotangents) -> Cotangents:
        avals = [v.aval for v, flag in zip(eqn.outvars, floats) if flag]
        own = [ct for ct, flag in zip(cotangents, floats) if flag]
        given = [*reverse.kept(found[number:]), *reverse.filled(avals, own)]
        back = iter(walk.closed(split.backward, given))
        return [next(back) if on else None for on in active]

    return found[:number], pull


# Custom derivatives.


@reverse_rule("custom_jvp_call")
def _custom_jvp(reverse: Reverse, eqn, operands, active, *_):
    """Pull back through the custom rule, a linear function of tangents, taken at zero."""
    results = reverse.walk.apply(eqn, operands)
    chosen = [v for v, on in zip(eqn.invars, active, strict=True) if on]

    def push(xs, tangents):
        fn, at = restricted(eqn, xs, active)
        return jax.jvp(fn, at, list(tangents))[1]

    def pull(cotangents: Cotangents) -> Cotangents:
        closed = jax.make_jaxpr(push)(shapes_of(eqn.invars), shapes_of(chosen))
        given = [*reverse.kept(operands), *(reverse.zeros(v.aval) for v in chosen)]
        flags = [False] * len(operands) + [True] * len(chosen)
        back = reverse.linear(closed, given, flags)
        found = iter(back(cotangents)[len(operands) :])
        return [next(found) if on else None for on in active]

    return results, pull


@reverse_rule("custom_linear_solve")
def _linear_solve(reverse: Reverse, eqn, operands, active, *_):
    r"""Pull back through $A x = b$: the cotangent of $b$ is $w$ with $A^T w = \bar x$,
    and that of the parameters of $A$ is that of $-w^T A x$."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    if jaxprs.transpose_solve is None:
        return None
    results = reverse.walk.apply(eqn, operands)
    first = lengths.matvec
    last = first + lengths.vecmat + lengths.solve + lengths.transpose_solve
    consts, transposed = (
        operands[:first],
        operands[last - lengths.transpose_solve : last],
    )
    avals = [var.aval for var in eqn.outvars]

    def pull(cotangents: Cotangents) -> Cotangents:
        full = reverse.filled(avals, cotangents)
        given = [*reverse.kept(transposed), *full]
        right = reverse.walk.closed(jaxprs.transpose_solve, given)
        found: Cotangents = [None] * first
        if any(active[:first]):
            flags = [*active[:first], *(False for _ in results)]
            at = reverse.kept([*consts, *results])
            *_, back = reverse.closed(jaxprs.matvec, at, flags)
            turned: Cotangents = [reverse.minus(a, w) for a, w in zip(avals, right)]
            found = back(turned)[:first]
        rest: Cotangents = [None] * (last - first)
        return [*found, *rest, *right]

    return results, pull
