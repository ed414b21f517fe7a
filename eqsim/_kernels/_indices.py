"""Indices of elements, Python integers where they are known and nodes elsewhere, and loops of
a known length over them, which rules of primitives make."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from . import _algebra as algebra
from ._graph import Graph, Loop


INDEX = "i4"


class Index(NamedTuple):
    """An index that is computed."""

    node: int


def index_node(graph: Graph, index: int | Index) -> int:
    """Return the node of an index."""
    return graph.constant(index, INDEX) if isinstance(index, int) else index.node


def as_index(graph: Graph, node: int) -> int | Index:
    """Return an integer node as an index."""
    if node in graph.value:
        return int(graph.value[node])
    dtype = graph.dtype[node]
    if dtype in ("i8", "u4", "u8"):
        # Conversion wraps around; an index far outside must stay outside.
        last = graph.constant(np.iinfo(INDEX).max, dtype)
        node = algebra.apply(graph, "min", (node, last), dtype)
    if dtype == "i8":
        first = graph.constant(np.iinfo(INDEX).min, dtype)
        node = algebra.apply(graph, "max", (node, first), dtype)
    return Index(algebra.convert(graph, node, INDEX))


def _arithmetic(op: str, fold: Callable[[int, int], int]):
    def compute(graph: Graph, x: int | Index, y: int | Index) -> int | Index:
        if isinstance(x, int) and isinstance(y, int):
            return fold(x, y)
        args = index_node(graph, x), index_node(graph, y)
        return as_index(graph, algebra.apply(graph, op, args, INDEX))

    return compute


plus = _arithmetic("add", lambda x, y: x + y)
minus = _arithmetic("sub", lambda x, y: x - y)
_times = _arithmetic("mul", lambda x, y: x * y)
divided = _arithmetic("div", lambda x, y: x // y)
modulo = _arithmetic("rem", lambda x, y: x % y)
_least = _arithmetic("min", min)
_greatest = _arithmetic("max", max)


def times(graph: Graph, x: int | Index, y: int) -> int | Index:
    """Return `x * y`. The product stays an integer if a factor is the integer 0 or 1."""
    return 0 if y == 0 else x if y == 1 else _times(graph, x, y)


def clamped(graph: Graph, index: int | Index, last: int) -> int | Index:
    """Clip an index to `0, ..., last`."""
    if last <= 0:
        return 0
    return _greatest(graph, _least(graph, index, last), 0)


def within(graph: Graph, index: int | Index, size: int) -> int:
    """Return the boolean node of `0 <= index < size`."""
    if isinstance(index, int):
        return graph.constant(0 <= index < size, "b1")
    zero, end = graph.constant(0, INDEX), graph.constant(size, INDEX)
    low = algebra.apply(graph, "ge", (index.node, zero), "b1")
    high = algebra.apply(graph, "lt", (index.node, end), "b1")
    return algebra.apply(graph, "and", (low, high), "b1")


def flat(graph: Graph, index: tuple, shape: Sequence[int]) -> int | Index:
    """Convert the index of an element to its place in row-major order."""
    place: int | Index = 0
    for i, size in zip(index, shape, strict=True):
        place = plus(graph, times(graph, place, size), i)
    return place


def unflat(graph: Graph, place: int | Index, shape: Sequence[int]) -> tuple:
    """Convert the place of an element in row-major order to its index."""
    index: list[int | Index] = []
    for k, size in reversed(list(enumerate(shape))):
        if size == 1:
            index.append(0)
        elif all(n == 1 for n in shape[:k]):
            index.append(place)
        else:
            index.append(modulo(graph, place, size))
            place = divided(graph, place, size)
    return tuple(index[::-1])


# Loops over indices.


def counted(
    graph: Graph, length: int, init: list[int], body: Callable[..., list[int]]
) -> list[int]:
    """Repeat `body(index, carried) -> carried` on nodes, `length` times."""
    control, deps = _counted(graph, length, init, body, False)
    pairs = enumerate(zip(init, deps, strict=True))
    return [
        graph.get(control, k, graph.dtype[n], dep, graph.rows[n])
        for k, (n, dep) in pairs
    ]


def collected(
    graph: Graph, length: int, init: list[int], body: Callable[..., list[int]]
) -> int:
    """Repeat a body like `counted`, and return an array of the carried values after
    each pass."""
    control, deps = _counted(graph, length, init, body, True)
    size, dtype = length * len(init), graph.dtype[init[0]]
    dep = functools.reduce(operator.or_, deps)
    return graph.get(control, len(init), dtype, dep, size)


def _counted(graph: Graph, length: int, init: list[int], body, stacks: bool):
    deps = [graph.dep[node] for node in init]
    while True:
        with graph.block(branch=False) as depth:
            index = graph.source("param", INDEX, 0)
            params = [loop_param(graph, node, dep) for node, dep in zip(init, deps)]
            outs = body(Index(index), params)
        new = [dep | graph.dep[out] for dep, out in zip(deps, outs)]
        if new == deps:
            break
        deps = new
    stacked = [outs] if stacks else []
    loop = Loop(depth, index, params, outs, None, length, stacked)
    return graph.control("loop", tuple(init), loop), deps


def loop_param(graph: Graph, like: int, dep: int) -> int:
    """Return a value that a loop carries, like a node, at the start of a pass."""
    return graph.source("param", graph.dtype[like], dep, None, graph.rows[like])
