"""Loops.

A loop whose test differs between lanes runs as long as any lane needs it. Lanes that do
not are frozen: what they carry is kept by selection, so a result never depends on the
other lanes of its tile.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import _algebra as algebra
from ._arrays import Pulled, Value
from ._carry import blend, Carry, dependences, finish, materialized
from ._counting import loop_param
from ._graph import Graph, LANE, Loop
from ._indices import INDEX, Index, minus
from ._rows import elements, row_of, stacked_rows
from ._scalarize import (
    dependence,
    rule,
    scan_dependence,
    scan_sizes,
    Translation,
    Unsupported,
    while_dependence,
    written_arguments,
)


@rule("while")
def _while(walk, eqn, *operands):
    params = eqn.params
    operands = materialized(walk, operands)
    of_test, of_body, init = while_operands(params, operands)
    deps = while_dependence(eqn, dependences(walk.graph, operands))
    body = params["body_jaxpr"]
    loop = While(
        carry=Carry(walk, [var.aval for var in eqn.outvars], while_writes(params)),
        deps=deps,
        kept=while_keeps(params),
        by_lane=stops_by_lane(walk.graph, params, of_test, deps),
        test=lambda values: walk.closed(params["cond_jaxpr"], [*of_test, *values])[0],
        body=lambda values: walk.closed(body, [*of_body, *values]),
    )
    return while_loop(walk, loop, init)


class While(NamedTuple):
    """A loop that ends by a test.

    - `deps`: `Graph.dep` of all that is carried.
    - `kept`: flags of the values that no pass changes.
    - `by_lane`: true if lanes end separately.
    - `test`, `body`: functions of the values that are carried.
    """

    carry: Carry
    deps: list[int]
    kept: list[bool]
    by_lane: bool
    test: Callable[[list[Value]], Value]
    body: Callable[[list[Value]], list[Value]]


def while_operands(params, operands) -> tuple[list, list, list]:
    """Split what belongs to the test, to the body, and what is carried."""
    first = params["cond_nconsts"]
    second = first + params["body_nconsts"]
    return operands[:first], operands[first:second], operands[second:]


def while_writes(params) -> list[bool]:
    """Return for each value that is carried whether it is written at computed indices."""
    return written_arguments(params["body_jaxpr"].jaxpr)[params["body_nconsts"] :]


def while_keeps(params) -> list[bool]:
    """Return for each value that is carried whether no pass changes it."""
    body = params["body_jaxpr"].jaxpr
    own = body.invars[params["body_nconsts"] :]
    return [old is out for old, out in zip(own, body.outvars, strict=True)]


def stops_by_lane(graph: Graph, params, of_test, carry_deps) -> bool:
    """Return whether the test differs between lanes."""
    given = [*dependences(graph, of_test), *carry_deps]
    return bool(dependence(params["cond_jaxpr"].jaxpr, given)[0] & LANE)


def while_loop(walk: Translation, loop: While, init: list[Value]) -> list[Value]:
    """Return what a loop carries at the end."""
    graph, carry, old_mask = walk.graph, loop.carry, walk.mask
    start, spread = carry.flatten(init), carry.spread(loop.deps)
    with graph.block(branch=False) as depth:
        entries = [loop_param(graph, n, d) for n, d in zip(start, spread, strict=True)]
        mask = graph.source("param", "b1", LANE) if loop.by_lane else None
        values = carry.restore(entries)
        values = [a if own else b for own, a, b in zip(loop.kept, init, values)]
        going = int(np.asarray(loop.test(values)).reshape(-1)[0])
        test = going
        if mask is not None:
            graph.held.add(going)
            going = algebra.apply(graph, "and", (mask, going), "b1")
            test = algebra.any_lane(graph, going)
            walk.mask = going
        outs = carry.flatten(materialized(walk, loop.body(values)), entries)
        walk.mask = old_mask
        if mask is not None:
            # What all lanes share counts passes.
            keep = lambda a, b: blend(graph, going, a, b) if graph.dep[a] & LANE else b
            outs = [keep(a, b) for a, b in zip(entries, outs)]
            outs, entries = [*outs, going], [*entries, mask]
            start.append(_everyone(walk) if old_mask is None else old_mask)
            spread.append(LANE)
    node = Loop(depth, None, entries, outs, test, None, [])
    _, results = finish(graph, start, spread, node)
    if mask is not None and old_mask is not None:
        graph.freeze(old_mask, start, results)
    return carry.restore(results[: len(start) - loop.by_lane])


def _everyone(walk: Translation) -> int:
    return walk.graph.constant(True, "b1")


@rule("scan")
def _scan(walk, eqn, *operands):
    params, inner = eqn.params, eqn.params["jaxpr"]
    start, count = scan_sizes(params)
    operands = materialized(walk, operands)
    deps = scan_dependence(params, dependences(walk.graph, operands))
    avals = [var.aval for var in eqn.outvars]
    written = written_arguments(inner.jaxpr)[start : start + count]
    loop = Scan(
        length=params["length"],
        reverse=params["reverse"],
        carry=Carry(walk, avals[:count], written),
        deps=deps[:count],
        stacked=list(zip(avals[count:], deps[count:], strict=True)),
        body=lambda own, rows: walk.closed(inner, [*operands[:start], *own, *rows]),
    )
    stop = start + count
    return scan_loop(walk, loop, operands[start:stop], operands[stop:])


class Scan(NamedTuple):
    """A loop over rows.

    - `deps`: `Graph.dep` of all that is carried.
    - `stacked`: shape and type, and `Graph.dep`, of each array that is stacked.
    - `body`: function of what is carried and of rows; returns what is carried on, and
        rows that are stacked.
    """

    length: int
    reverse: bool
    carry: Carry
    deps: list[int]
    stacked: list[tuple[Any, int]]
    body: Callable[[list[Value], list[Value]], list[Value]]


def scan_loop(
    walk: Translation, loop: Scan, init: list[Value], xs: list[Value]
) -> list[Value]:
    """Return what a loop carries at the end, and what it stacks."""
    graph, carry, count = walk.graph, loop.carry, len(init)
    if loop.length == 0:
        raise Unsupported("a scan of length 0")
    if loop.length == 1:
        return _single(walk, loop, init, xs)
    nodes, spread = carry.flatten(init), carry.spread(loop.deps)
    with graph.block(branch=False) as depth:
        index = graph.source("param", INDEX, 0)
        place: int | Index = Index(index)
        if loop.reverse:
            place = minus(graph, loop.length - 1, place)
        entries = [loop_param(graph, n, d) for n, d in zip(nodes, spread, strict=True)]
        each = [row_of(graph, x, place) for x in xs]
        new = materialized(walk, loop.body(carry.restore(entries), each))
        outs = carry.flatten(new[:count], entries)
        stacked = [elements(graph, value) for value in new[count:]]
    node = Loop(depth, index, entries, outs, None, loop.length, stacked)
    control, results = finish(graph, nodes, spread, node)
    rows = [
        stacked_rows(graph, control, k, aval, dep, loop.reverse)
        for k, (aval, dep) in enumerate(loop.stacked)
    ]
    return [*carry.restore(results), *rows]


def _single(walk: Translation, loop: Scan, init, xs) -> list[Value]:
    """Run the body of a scan of length one, without a loop."""
    count = len(init)
    out = loop.body(list(init), [row_of(walk.graph, x, 0) for x in xs])
    out, stacked = materialized(walk, out), []
    for (aval, _), value in zip(loop.stacked, out[count:], strict=True):
        if isinstance(value, np.ndarray):
            stacked.append(value[None])
        else:
            at = lambda i, value=value: value.at(i[1:])
            stacked.append(Pulled(tuple(aval.shape), value.dtype, at, value.dep))
    return [*out[:count], *stacked]
