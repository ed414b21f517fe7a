"""Loops of a known length that rules of primitives make."""

import functools
import operator
from collections.abc import Callable

from ._graph import Graph, Loop
from ._indices import INDEX, Index


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
