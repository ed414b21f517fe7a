"""Values carried through loops and branches."""

import math

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._arrays import is_large, LEAST_WRITTEN, Pulled, Value
from ._graph import Graph, Loop
from ._scalarize import dtype_of, Translation


class Carry:
    """Arrays carried through a loop: element by element, or in memory.

    **Arguments:**

    - `written`: flags of the arrays that the loop writes at computed indices.
    """

    def __init__(self, walk: Translation, avals, written: list[bool] | None = None):
        self.graph, self.avals = walk.graph, avals
        written = written or [False] * len(avals)
        self.in_memory = [
            is_large(aval.shape) or (own and math.prod(aval.shape) >= LEAST_WRITTEN)
            for aval, own in zip(avals, written, strict=True)
        ]

    def flatten(self, values: list[Value], own: list[int] | None = None) -> list[int]:
        """Return the nodes of all values. `own`: nodes that a loop carries into its
        pass; an array that becomes another one of them is copied."""
        found: list[int] = []
        for value, whole in zip(values, self.in_memory, strict=True):
            if whole:
                node = arrays.in_memory(self.graph, value)
                if own and node != own[len(found)] and self.graph.op[node] == "param":
                    node = arrays.copied(self.graph, value)
                found.append(node)
            else:
                found += np.asarray(value).reshape(-1).tolist()
        return found

    def restore(self, entries: list[int]) -> list[Value]:
        """Return the values of nodes."""
        values, at = [], 0
        for aval, whole in zip(self.avals, self.in_memory, strict=True):
            shape = tuple(aval.shape)
            if whole:
                dtype = dtype_of(aval)
                values.append(arrays.stored(entries[at], shape, dtype, self.graph))
                at += 1
                continue
            size = math.prod(shape)
            values.append(arrays.nodes(entries[at : at + size], shape))
            at += size
        return values

    def spread(self, deps: list[int]) -> list[int]:
        """Repeat entries: one per node, from one per value."""
        found = []
        pairs = zip(self.avals, deps, self.in_memory, strict=True)
        for aval, dep, whole in pairs:
            found += [dep] * (1 if whole else math.prod(aval.shape))
        return found


def dependences(graph: Graph, values) -> list[int]:
    """Return `Graph.dep` of each value as a whole."""
    found = []
    for value in values:
        dep = 0
        if isinstance(value, Pulled):
            dep = graph.dep[arrays.in_memory(graph, value)]
        else:
            for node in value.reshape(-1).tolist():
                dep |= graph.dep[node]
        found.append(dep)
    return found


def materialized(walk: Translation, values) -> list[Value]:
    return [arrays.materialized(walk.graph, value) for value in values]


def finish(
    graph: Graph, start: list[int], deps: list[int], loop: Loop, dep: int = 0
) -> tuple[int, list[int]]:
    """Return a loop as a node, and the values that it carries at the end. `dep`:
    `Graph.dep` of values that the loop may store later."""
    control = graph.control("loop", tuple(start), loop)
    graph.dep[control] |= dep
    results = list(start)
    for k, (param, out) in enumerate(zip(loop.params, loop.outs, strict=True)):
        if param != out:
            dtype, rows = graph.dtype[param], graph.rows[param]
            results[k] = graph.get(control, k, dtype, deps[k], rows)
    return control, results


def union(graph: Graph, entries) -> int:
    dep = 0
    for node in entries:
        dep |= graph.dep[node]
    return dep


def blend(graph: Graph, which: int, old: int, new: int) -> int:
    """Select `new` in the lanes where `which` holds, else `old`; for scalars or arrays."""
    if not graph.rows[old]:
        return algebra.select(graph, which, old, new)
    if old == new or graph.keeps(which, old, new):
        return new
    rows, dtype = graph.rows[old], graph.dtype[old]
    return graph.pure("blend", (which, old, new), dtype, None, rows)
