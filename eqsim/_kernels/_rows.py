"""Rows that loops read and stack."""

import math

import numpy as np

from . import _arrays as arrays
from ._arrays import is_large, Pulled, Value
from ._carry import union
from ._graph import Graph, Loop
from ._indices import flat, minus
from ._scalarize import dtype_of, Unsupported


def stacked_rows(
    graph: Graph, control: int, number: int, aval, dep: int, reverse: bool
) -> Value:
    """Return the stacked results of a loop, as an array of shape and type `aval`.

    **Arguments:**

    - `number`: index of the stacked result.
    - `reverse`: True if the first pass gives the last row.
    """
    loop: Loop = graph.aux[control]
    entries = loop.stacked[number]
    if not entries:
        return arrays.nodes([], aval.shape)
    size = math.prod(aval.shape)
    array = graph.get(control, len(loop.params) + number, dtype_of(aval), dep, size)
    graph.dep[array] |= union(graph, entries)
    value = arrays.stored(array, tuple(aval.shape), dtype_of(aval), graph)
    return reversed_rows(graph, value) if reverse else value


def reversed_rows(graph: Graph, value: Value) -> Value:
    """Pass `k` of a reversed scan gives row `length - 1 - k`."""
    if isinstance(value, np.ndarray):
        return value[::-1]
    last = value.shape[0] - 1
    at = lambda i: value.at((minus(graph, last, i[0]), *i[1:]))
    return Pulled(value.shape, value.dtype, at, value.dep)


def row_of(graph: Graph, x: Value, place) -> Value:
    """Return row `place` of an array."""
    shape = x.shape[1:]
    if not int(np.prod(shape)):
        return arrays.nodes([], shape)
    if isinstance(x, np.ndarray):
        whole = arrays.in_memory(graph, x)
        at = lambda i: arrays.element(graph, whole, flat(graph, i, x.shape))
        full = Pulled(x.shape, graph.dtype[whole], at, graph.dep[whole])
    else:
        full = x
    row = Pulled(shape, full.dtype, lambda i: full.at((place, *i)), full.dep)
    return row if is_large(shape) else arrays.materialized(graph, row)


def elements(graph: Graph, value: Value) -> list[int]:
    if isinstance(value, Pulled):
        if value.shape and int(np.prod(value.shape)) > 8 * arrays.LARGEST_UNROLLED:
            raise Unsupported(f"a scan that stacks arrays of shape {value.shape}")
        return [value.at(index) for index in np.ndindex(*value.shape)]
    return value.reshape(-1).tolist()
