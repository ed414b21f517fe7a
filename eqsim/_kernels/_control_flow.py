"""Loops, branches and calls.

A loop whose test differs between lanes runs as long as any lane needs it. Lanes that do
not are frozen: what they carry is kept by selection, so a result never depends on the
other lanes of its tile. A branch whose predicate differs between lanes is entered if any lane
needs it; results of the others are kept by selection.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _arrays as arrays
from ._arrays import (
    clamped,
    flat,
    INDEX,
    Index,
    index_node,
    is_large,
    LEAST_WRITTEN,
    loop_param,
    minus,
    Pulled,
    Value,
)
from ._graph import Branch, Graph, LANE, Loop
from ._operations import any_lane, apply, convert, select
from ._translation import (
    called,
    dependence,
    dtype_of,
    rule,
    scan_dependence,
    scan_sizes,
    Translation,
    Unsupported,
    while_dependence,
    written_arguments,
)


# Carried values.


class Carry:
    """Arrays carried through a loop: element by element, or in memory.

    **Arguments:**

    - `written`: flags of the arrays that the loop writes at computed indices.
    """

    def __init__(self, walk: Translation, avals, written: Sequence[bool] | None = None):
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
        return select(graph, which, old, new)
    if old == new or graph.keeps(which, old, new):
        return new
    rows, dtype = graph.rows[old], graph.dtype[old]
    return graph.pure("blend", (which, old, new), dtype, None, rows)


# Rows that loops read and stack.


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


# Loops.


@rule("while")
def _while(walk, eqn, *operands):
    params = eqn.params
    operands = materialized(walk, operands)
    of_test, of_body, init = while_operands(params, operands)
    deps = while_dependence(eqn, dependences(walk.graph, operands), walk.around)
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


def while_writes(params) -> tuple[bool, ...]:
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
            going = apply(graph, "and", (mask, going), "b1")
            test = any_lane(graph, going)
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


# Branches.


@rule("cond")
def _cond(walk, eqn, which, *operands):
    operands, branches = materialized(walk, operands), eqn.params["branches"]
    taken = [lambda branch=branch: walk.closed(branch, operands) for branch in branches]
    return switch(walk, which, taken, [var.aval for var in eqn.outvars])


def switch(
    walk: Translation, which: Value, branches: list[Callable[[], list[Value]]], avals
) -> list[Value]:
    """Return the results of the branch that is taken."""
    graph = walk.graph
    (number,) = np.asarray(which).reshape(-1).tolist()
    number = convert(graph, number, INDEX)
    last = len(branches) - 1
    if number in graph.value:
        return branches[min(max(int(graph.value[number]), 0), last)]()
    number = index_node(graph, clamped(graph, Index(number), last))
    carry, entries = Carry(walk, avals), None
    by_lane = bool(graph.dep[number] & LANE)
    for k, branch in enumerate(branches):
        here = apply(graph, "eq", (number, graph.constant(k, INDEX)), "b1")
        entries = _branch(walk, carry, branch, here, by_lane, entries)
    assert entries is not None
    return carry.restore(entries)


def _branch(walk, carry: Carry, branch, here: int, by_lane: bool, old):
    """Return the results after a branch that is taken where `here` holds; `old` are the
    results before it."""
    graph, old_mask = walk.graph, walk.mask
    test = here
    if by_lane:
        if old_mask is not None:
            here = apply(graph, "and", (old_mask, here), "b1")
        test = any_lane(graph, here)
    with graph.block(branch=True) as depth:
        walk.mask = here if by_lane else old_mask
        new = carry.flatten(materialized(walk, branch()))
        walk.mask = old_mask
        if by_lane and old is not None:
            new = [blend(graph, here, a, b) for a, b in zip(old, new, strict=True)]
    if old is None:
        old = [_nothing(graph, node) for node in new]
    changed = [k for k, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    then, other = [new[k] for k in changed], [old[k] for k in changed]
    control = graph.control("branch", (test,), Branch(depth, then, other))
    results = list(old)
    for place, k in enumerate(changed):
        pair = new[k], old[k]
        dep = union(graph, pair) | graph.dep[test]
        dtype, rows = graph.dtype[pair[0]], graph.rows[pair[0]]
        results[k] = graph.get(control, place, dtype, dep, rows)
    return results


def _nothing(graph: Graph, like: int) -> int:
    """Return a placeholder of the type of a node, for lanes in which no branch has run
    yet."""
    dtype, rows = graph.dtype[like], graph.rows[like]
    if not rows:
        return graph.constant(0, dtype)
    zero = graph.constant(0, dtype)
    return graph.pure("pack", (zero,) * rows, dtype, None, rows)


# Calls.


@rule(
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat2",
    "remat",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
)
def _call(walk, eqn, *operands):
    inner = called(eqn)
    if inner is None:
        raise Unsupported(f"a call of `{eqn.primitive.name}` without a program")
    return walk.closed(inner, list(operands))


@rule("custom_linear_solve")
def _linear_solve(walk, eqn, *operands):
    lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    last = first + lengths.solve
    right = operands[last + lengths.transpose_solve :]
    return walk.closed(solve, [*operands[first:last], *right])
