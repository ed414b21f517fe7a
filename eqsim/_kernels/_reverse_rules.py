"""Reverse mode of arithmetic, and of what moves elements."""

from typing import Any

import numpy as np

from . import _algebra as algebra
from ._arrays import is_large, Value
from ._elementwise import elementwise
from ._indexing import are_known, gathered, window_of
from ._partials import Entry, PARTIALS
from ._reductions import balanced
from ._reverse import Cotangents, Reverse, reverse_rule
from ._scalarize import dtype_of, RULES


@reverse_rule(*PARTIALS)
def _elementwise(reverse: Reverse, eqn, operands, active, *_):
    partials, aval = PARTIALS[eqn.primitive.name], eqn.outvars[0].aval
    pairs = list(zip(eqn.invars, partials, active, strict=True))
    if any(on and (p is None or v.aval.shape != aval.shape) for v, p, on in pairs):
        return None
    (out,) = reverse.walk.apply(eqn, operands)
    graph, dtype = reverse.graph, dtype_of(aval)

    def pull(cotangents: Cotangents) -> Cotangents:
        given = (cotangents[0], *reverse.kept([out, *operands]))

        def of(partial: Any) -> Value:
            at = lambda ct, out, *x: partial(
                Entry(graph, dtype, eqn.params, out, x), ct
            )
            return elementwise(reverse.walk, aval.shape, dtype, given, at)

        return [of(partial) if on else None for _, partial, on in pairs]

    return [out], pull


@reverse_rule("select_n")
def _select(reverse: Reverse, eqn, operands, active, *_):
    if dtype_of(eqn.invars[0].aval) != "b1":
        return None
    (out,) = reverse.walk.apply(eqn, operands)
    graph, aval = reverse.graph, eqn.outvars[0].aval
    dtype = dtype_of(aval)
    zero = graph.constant(0, dtype)

    def pull(cotangents: Cotangents) -> Cotangents:
        def of(case: int) -> Value:
            pair = lambda ct: (zero, ct) if case else (ct, zero)
            at = lambda which, ct: algebra.select(graph, which, *pair(ct))
            given = *reverse.kept(operands[:1]), cotangents[0]
            return elementwise(reverse.walk, aval.shape, dtype, given, at)

        return [None, *(of(k) if on else None for k, on in enumerate(active[1:]))]

    return [out], pull


@reverse_rule("convert_element_type")
def _convert(reverse: Reverse, eqn, operands, active, *_):
    results = reverse.walk.apply(eqn, operands)
    aval, graph = eqn.invars[0].aval, reverse.graph
    dtype = dtype_of(aval)
    back = lambda ct: algebra.convert(graph, ct, dtype)
    pull = lambda cotangents: [
        elementwise(reverse.walk, aval.shape, dtype, (cotangents[0],), back)
    ]
    return results, pull


@reverse_rule("copy", "copy_p", "optimization_barrier", "name")
def _identity(reverse: Reverse, eqn, operands, active, *_):
    return list(operands), lambda cotangents: cotangents


# Small arrays: what moves elements moves their numbers, too, which tells from where each
# element comes.


_MOVES = (
    *("reshape", "expand_dims", "squeeze", "broadcast_in_dim", "transpose", "rev"),
    *("slice", "split", "unstack", "concatenate", "stack", "tile"),
)


@reverse_rule(*_MOVES)
def _move(reverse: Reverse, eqn, operands, active, *_):
    if not _are_small(eqn, operands):
        return None
    rule = RULES[eqn.primitive.name]
    numbers, start = [], 0
    for x in operands:
        numbers.append(np.arange(start, start + x.size).reshape(x.shape))
        start += x.size
    places = rule(reverse.walk, eqn, *numbers)
    return reverse.walk.apply(eqn, operands), _from_places(reverse, eqn, places, active)


@reverse_rule("gather")
def _gather(reverse: Reverse, eqn, operands, active, *_):
    x, indices = operands
    graph = reverse.graph
    batched = eqn.params["dimension_numbers"].operand_batching_dims
    if batched or not _are_small(eqn, operands) or not are_known(graph, indices):
        return None
    numbers = np.arange(x.size).reshape(x.shape)
    places = gathered(graph, eqn, numbers, indices, window_of(eqn))
    results = reverse.walk.apply(eqn, operands)
    return results, _from_places(reverse, eqn, [places], active)


def _are_small(eqn, operands) -> bool:
    """Return whether all operands and results are unrolled."""
    unrolled = all(isinstance(x, np.ndarray) for x in operands)
    return unrolled and not any(is_large(var.aval.shape) for var in eqn.outvars)


def _from_places(reverse: Reverse, eqn, places, active):
    """Return the pull-back of an equation that moves elements.

    **Arguments:**

    - `places`: for each result, the index of the source of each element among all elements
        of all operands; negative if there is no source.
    """
    graph = reverse.graph

    def pull(cotangents: Cotangents) -> Cotangents:
        terms: dict[int, list[int]] = {}
        for own, cotangent in zip(places, cotangents, strict=True):
            if cotangent is None:
                continue
            assert isinstance(cotangent, np.ndarray), "small arrays are unrolled"
            pairs = zip(own.reshape(-1).tolist(), cotangent.reshape(-1).tolist())
            for place, node in pairs:
                terms.setdefault(place, []).append(node)
        found, start = [], 0
        for var, on in zip(eqn.invars, active, strict=True):
            shape, dtype = var.aval.shape, dtype_of(var.aval)
            size = int(np.prod(shape))
            if on:
                zero = [graph.constant(0, dtype)]
                own = [terms.get(k, zero) for k in range(start, start + size)]
                nodes = [balanced(graph, "add", entry, dtype) for entry in own]
                found.append(np.array(nodes, np.int64).reshape(shape))
            else:
                found.append(None)
            start += size
        return found

    return pull


@reverse_rule("reduce_sum")
def _reduce_sum(reverse: Reverse, eqn, operands, active, *_):
    (x,) = operands
    if not isinstance(x, np.ndarray):
        return None
    results, axes = reverse.walk.apply(eqn, operands), tuple(eqn.params["axes"])

    def pull(cotangents: Cotangents) -> Cotangents:
        ct = cotangents[0]
        assert isinstance(ct, np.ndarray), "small arrays are unrolled"
        return [np.broadcast_to(np.expand_dims(ct, axes), x.shape)]

    return results, pull
