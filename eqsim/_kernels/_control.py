"""Calls, loops and branches.

A loop or branch whose predicate differs between lanes goes on, or is entered, as long as
any lane needs it. Lanes that do not are frozen: what they carry is kept by selection,
so a result never depends on the other lanes of its tile.
"""

import math

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._arrays import is_large, Pulled, Value
from ._counting import loop_param
from ._graph import Branch, Graph, LANE, Loop
from ._indices import clamped, flat, INDEX, Index, index_node, minus
from ._scalarize import (
    called,
    dependence,
    dtype_of,
    rule,
    scan_dependence,
    Translation,
    Unsupported,
    while_dependence,
    written_arguments,
)


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


_LEAST_WRITTEN = 8
"""Elements from which arrays that a loop writes at computed indices stay in memory."""


class Carry:
    """How arrays travel through a loop: element by element, or in memory.

    **Arguments:**

    - `written`: for each array, true if the loop writes it at computed indices.
    """

    def __init__(self, walk: Translation, avals, written: list[bool] | None = None):
        self.graph, self.avals = walk.graph, avals
        written = written or [False] * len(avals)
        self.in_memory = [
            is_large(aval.shape) or (own and math.prod(aval.shape) >= _LEAST_WRITTEN)
            for aval, own in zip(avals, written, strict=True)
        ]

    def flatten(self, values: list[Value], own: list[int] | None = None) -> list[int]:
        """The nodes of all values. `own` are those that a loop carries into its pass: an
        array that becomes another one of them is copied."""
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
        """The values of nodes."""
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
        """One entry per node, of one per value."""
        found = []
        pairs = zip(self.avals, deps, self.in_memory, strict=True)
        for aval, dep, whole in pairs:
            found += [dep] * (1 if whole else math.prod(aval.shape))
        return found


def _deps(graph: Graph, values) -> list[int]:
    """`Graph.dep` of each value as a whole."""
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


def _materialized(walk: Translation, values) -> list[Value]:
    return [arrays.materialized(walk.graph, value) for value in values]


@rule("while")
def _while(walk, eqn, *operands):
    graph, params = walk.graph, eqn.params
    operands = _materialized(walk, operands)
    cut = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    of_test, of_body, init = (
        operands[: cut[0]],
        operands[cut[0] : cut[1]],
        operands[cut[1] :],
    )
    deps = while_dependence(params, _deps(graph, operands))
    by_lane = _predicate_dep(params, graph, of_test, deps) & LANE
    written = written_arguments(params["body_jaxpr"].jaxpr)[params["body_nconsts"] :]
    carry = Carry(walk, [var.aval for var in eqn.outvars], written)
    start, old_mask = carry.flatten(init), walk.mask
    spread = carry.spread(deps)
    with graph.block(branch=False) as depth:
        entries = [loop_param(graph, n, d) for n, d in zip(start, spread, strict=True)]
        mask = graph.source("param", "b1", LANE) if by_lane else None
        values = carry.restore(entries)
        body = params["body_jaxpr"].jaxpr
        for k, (old, out) in enumerate(
            zip(body.invars[cut[1] - cut[0] :], body.outvars)
        ):
            values[k] = init[k] if old is out else values[k]
        (going,) = walk.closed(params["cond_jaxpr"], [*of_test, *values])
        going = int(np.asarray(going).reshape(-1)[0])
        test = going
        if mask is not None:
            going = algebra.apply(graph, "and", (mask, going), "b1")
            test = algebra.any_lane(graph, going)
            walk.mask = going
        new = walk.closed(params["body_jaxpr"], [*of_body, *values])
        outs = carry.flatten(_materialized(walk, new), entries)
        walk.mask = old_mask
        if mask is not None:
            outs = [_blend(graph, going, a, b) for a, b in zip(entries, outs)]
            outs, entries = [*outs, going], [*entries, mask]
            start.append(_everyone(walk) if old_mask is None else old_mask)
            spread.append(LANE)
    loop = Loop(depth, None, entries, outs, test, None, [])
    _, results = finish(graph, start, spread, loop)
    if mask is not None and old_mask is not None:
        graph.freeze(old_mask, start, results)
    return carry.restore(results[: len(start) - bool(by_lane)])


def _predicate_dep(params, graph, of_test, carry_deps) -> int:
    given = [*_deps(graph, of_test), *carry_deps]
    return dependence(params["cond_jaxpr"].jaxpr, given)[0]


def _everyone(walk: Translation) -> int:
    return walk.graph.constant(True, "b1")


def _blend(graph: Graph, which: int, old: int, new: int) -> int:
    """`new` in the lanes where `which` holds, else `old`; of scalars or of arrays."""
    if not graph.rows[old]:
        return algebra.select(graph, which, old, new)
    if old == new or graph.keeps(which, old, new):
        return new
    rows, dtype = graph.rows[old], graph.dtype[old]
    return graph.pure("blend", (which, old, new), dtype, None, rows)


def finish(
    graph: Graph, start: list[int], deps: list[int], loop: Loop, dep: int = 0
) -> tuple[int, list[int]]:
    """A loop as a node, and what it carries at the end. `dep`: `Graph.dep` of values that
    the loop may store later."""
    control = graph.control("loop", tuple(start), loop)
    graph.dep[control] |= dep
    results = list(start)
    for k, (param, out) in enumerate(zip(loop.params, loop.outs, strict=True)):
        if param != out:
            dtype, rows = graph.dtype[param], graph.rows[param]
            results[k] = graph.get(control, k, dtype, deps[k], rows)
    return control, results


@rule("scan")
def _scan(walk, eqn, *operands):
    graph, params = walk.graph, eqn.params
    length, start = params["length"], params["num_consts"]
    stop = start + params["num_carry"]
    operands = _materialized(walk, operands)
    deps = scan_dependence(params, _deps(graph, operands))
    consts, init, xs = operands[:start], operands[start:stop], operands[stop:]
    count = params["num_carry"]
    carry = Carry(walk, [var.aval for var in eqn.outvars[:count]])
    if length == 0:
        raise Unsupported("a scan of length 0")
    if length == 1:
        return _single(walk, eqn, consts, init, xs)
    nodes, spread = carry.flatten(init), carry.spread(deps[:count])
    with graph.block(branch=False) as depth:
        index = graph.source("param", INDEX, 0)
        place: int | Index = Index(index)
        if params["reverse"]:
            place = minus(graph, length - 1, place)
        entries = [loop_param(graph, n, d) for n, d in zip(nodes, spread, strict=True)]
        each = [row_of(graph, x, place) for x in xs]
        args = [*consts, *carry.restore(entries), *each]
        new = _materialized(walk, walk.closed(params["jaxpr"], args))
        outs = carry.flatten(new[:count], entries)
        stacked = [elements(graph, value) for value in new[count:]]
    loop = Loop(depth, index, entries, outs, None, length, stacked)
    control, results = finish(graph, nodes, spread, loop)
    outs = zip(eqn.outvars[count:], deps[count:], strict=True)
    rows = [
        stacked_rows(graph, control, k, var.aval, dep, params["reverse"])
        for k, (var, dep) in enumerate(outs)
    ]
    return [*carry.restore(results), *rows]


def stacked_rows(
    graph: Graph, control: int, number: int, aval, dep: int, reverse: bool
) -> Value:
    """What a loop stacks, as an array of shape and type `aval`.

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


def union(graph: Graph, entries) -> int:
    dep = 0
    for node in entries:
        dep |= graph.dep[node]
    return dep


def reversed_rows(graph: Graph, value: Value) -> Value:
    """Pass `k` of a reversed scan gives row `length - 1 - k`."""
    if isinstance(value, np.ndarray):
        return value[::-1]
    last = value.shape[0] - 1
    at = lambda i: value.at((minus(graph, last, i[0]), *i[1:]))
    return Pulled(value.shape, value.dtype, at, value.dep)


def row_of(graph: Graph, x: Value, place) -> Value:
    """Row `place` of an array."""
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


def _single(walk: Translation, eqn, consts, init, xs) -> list[Value]:
    """A scan of length one is no loop."""
    graph, count = walk.graph, eqn.params["num_carry"]
    each = [row_of(graph, x, 0) for x in xs]
    out = _materialized(walk, walk.closed(eqn.params["jaxpr"], [*consts, *init, *each]))
    stacked = []
    for var, value in zip(eqn.outvars[count:], out[count:], strict=True):
        if isinstance(value, np.ndarray):
            stacked.append(value[None])
        else:
            at = lambda i, value=value: value.at(i[1:])
            shape = tuple(var.aval.shape)
            stacked.append(Pulled(shape, value.dtype, at, value.dep))
    return [*out[:count], *stacked]


@rule("cond")
def _cond(walk, eqn, which, *operands):
    graph, branches = walk.graph, eqn.params["branches"]
    operands = _materialized(walk, operands)
    (number,) = which.reshape(-1).tolist()
    number = algebra.convert(graph, number, INDEX)
    last = len(branches) - 1
    if number in graph.value:
        chosen = min(max(int(graph.value[number]), 0), last)
        return walk.closed(branches[chosen], operands)
    number = index_node(graph, clamped(graph, Index(number), last))
    carry = Carry(walk, [var.aval for var in eqn.outvars])
    by_lane = bool(graph.dep[number] & LANE)
    entries: list[int] | None = None
    for k, branch in enumerate(branches):
        here = algebra.apply(graph, "eq", (number, graph.constant(k, INDEX)), "b1")
        entries = _branch(walk, carry, branch, operands, here, by_lane, entries)
    assert entries is not None
    return carry.restore(entries)


def _branch(walk, carry: Carry, branch, operands, here: int, by_lane: bool, old):
    """The results after a branch that is taken where `here` holds, `old` before it."""
    graph, old_mask = walk.graph, walk.mask
    test = here
    if by_lane:
        if old_mask is not None:
            here = algebra.apply(graph, "and", (old_mask, here), "b1")
        test = algebra.any_lane(graph, here)
    with graph.block(branch=True) as depth:
        walk.mask = here if by_lane else old_mask
        new = carry.flatten(_materialized(walk, walk.closed(branch, operands)))
        walk.mask = old_mask
        if by_lane and old is not None:
            new = [_blend(graph, here, a, b) for a, b in zip(old, new, strict=True)]
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
    """A placeholder of the type of a node, for lanes that no branch has served yet."""
    dtype, rows = graph.dtype[like], graph.rows[like]
    if not rows:
        return graph.constant(0, dtype)
    zero = graph.constant(0, dtype)
    return graph.pure("pack", (zero,) * rows, dtype, None, rows)
