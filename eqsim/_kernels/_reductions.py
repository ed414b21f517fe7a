"""Sums, extrema, products of matrices, running sums, sorting, and sums over lists."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.core import ShapedArray

from . import _arrays as arrays
from ._arrays import (
    as_index,
    clamped,
    collected,
    counted,
    INDEX,
    index_node,
    is_large,
    minus,
    plus,
    pull,
    Pulled,
    stored,
    unflat,
    Value,
)
from ._control_flow import Carry, materialized, While, while_loop
from ._graph import LANE
from ._jax_primitives import add_element, elementwise
from ._operations import apply, convert, select
from ._reverse import Cotangents, Reverse, reverse_rule
from ._translation import dtype_of, rule, Translation, Unsupported


_LONGEST_SUM = 256
"""Longer reductions are loops."""


def folded(walk: Translation, op: str, length: int, first: int, term) -> int:
    """Combine `term(0), ..., term(length - 1)`; `first` is the neutral element."""
    graph = walk.graph
    dtype = graph.dtype[first]
    if length <= _LONGEST_SUM:
        terms = [term(k) for k in range(length)]
        return balanced(graph, op, terms, dtype) if terms else first

    def body(index, carried):
        return [apply(graph, op, (carried[0], term(index)), dtype)]

    return counted(graph, length, [first], body)[0]


def balanced(graph, op: str, terms: list[int], dtype: str) -> int:
    """Combine terms in four running results, which are combined at the end: short
    chains and little rounding."""
    heads = terms[:4]
    for k, node in enumerate(terms[4:]):
        heads[k % 4] = apply(graph, op, (heads[k % 4], node), dtype)
    while len(heads) > 1:
        pairs = zip(heads[::2], heads[1::2])
        odd = heads[-1:] if len(heads) % 2 else []
        heads = [apply(graph, op, pair, dtype) for pair in pairs] + odd
    return heads[0]


def _neutral(op: str, dtype: str):
    if op in ("add", "or", "xor"):
        return 0
    if op == "mul":
        return 1
    if op == "and":
        return True if dtype == "b1" else -1
    info = np.finfo(dtype) if dtype[0] == "f" else None
    if info is not None:
        return -np.inf if op == "max" else np.inf
    if dtype == "b1":
        return op == "min"
    return np.iinfo(dtype).min if op == "max" else np.iinfo(dtype).max


_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_or": "or",
    "reduce_and": "and",
    "reduce_xor": "xor",
}


@rule(*_REDUCTIONS)
def _reduce(walk, eqn, x, *_):
    graph, aval = walk.graph, eqn.outvars[0].aval
    op, dtype = _REDUCTIONS[eqn.primitive.name], dtype_of(aval)
    axes, shape = eqn.params["axes"], eqn.invars[0].aval.shape
    kept = [k for k in range(len(shape)) if k not in axes]
    inner = [shape[k] for k in axes]
    first = graph.constant(_neutral(op, dtype), dtype)
    x = arrays.settled(graph, x)

    def at(index):
        def term(number):
            place = [None] * len(shape)
            for k, i in zip(kept, index, strict=True):
                place[k] = i
            for k, i in zip(axes, unflat(graph, number, inner), strict=True):
                place[k] = i
            return arrays.read(graph, x, tuple(place))

        return folded(walk, op, math.prod(inner), first, term)

    return [_computed(graph, aval.shape, dtype, at, x)]


def _computed(graph, shape, dtype: str, at, *operands: Value) -> Value:
    dep = arrays.dependence(graph, *operands)
    return arrays.materialized(graph, Pulled(shape, dtype, at, dep))


@rule("argmax", "argmin")
def _arg(walk, eqn, x):
    graph, aval = walk.graph, eqn.outvars[0].aval
    (axis,) = eqn.params["axes"]
    dtype, length = dtype_of(aval), eqn.invars[0].aval.shape[axis]
    better = "gt" if eqn.primitive.name == "argmax" else "lt"
    x = arrays.settled(graph, x)

    def at(index):
        read = lambda k: arrays.read(graph, x, (*index[:axis], k, *index[axis:]))

        def later(k, best, found):
            new = read(k)
            wins = apply(graph, better, (new, best), "b1")
            if graph.dtype[new][0] == "f":
                wins = _or_first_nan(graph, wins, new, best)
            number = convert(graph, index_node(graph, k), dtype)
            best = select(graph, wins, best, new)
            return [best, select(graph, wins, found, number)]

        pair = [read(0), graph.constant(0, dtype)]
        if not is_large((length,)):
            for k in range(1, length):
                pair = later(k, *pair)
            return pair[1]
        body = lambda k, pair: later(plus(graph, k, 1), *pair)
        return counted(graph, length - 1, pair, body)[1]

    return [_computed(graph, aval.shape, dtype, at, x)]


def _or_first_nan(graph, wins: int, new: int, best: int) -> int:
    """Extend the condition `wins`: NaN wins against numbers, and the first NaN stays."""
    is_nan = apply(graph, "ne", (new, new), "b1")
    had_nan = apply(graph, "ne", (best, best), "b1")
    free = apply(graph, "not", (had_nan,), "b1")
    first = apply(graph, "and", (is_nan, free), "b1")
    return apply(graph, "or", (wins, first), "b1")


_MOST_RUNNING = 1024
"""Running results that one loop carries."""
_RUNNING = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


@rule(*_RUNNING)
def _running(walk, eqn, x):
    graph, aval, params = walk.graph, eqn.outvars[0].aval, eqn.params
    op, dtype, axis = _RUNNING[eqn.primitive.name], dtype_of(aval), params["axis"]
    if is_large(aval.shape):
        return [_running_in_memory(graph, x, op, axis, params["reverse"])]
    rows = np.moveaxis(x, axis, 0)
    rows = rows[::-1] if params["reverse"] else rows
    out = np.array(rows)
    for k in range(1, len(rows)):
        for i in np.ndindex(*out.shape[1:]):
            pair = int(out[k - 1][i]), int(rows[k][i])
            out[(k, *i)] = apply(graph, op, pair, dtype)
    out = out[::-1] if params["reverse"] else out
    return [np.moveaxis(out, 0, axis)]


def _running_in_memory(graph, x: Pulled, op: str, axis: int, reverse: bool) -> Value:
    """Compute running results of a large array, by a loop along the axis."""
    length, dtype = x.shape[axis], x.dtype
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    if math.prod(rest) > _MOST_RUNNING:
        raise Unsupported(f"a running sum of an array of shape {x.shape}")
    source = pull(graph, arrays.settled(graph, x))
    others = list(np.ndindex(*rest))
    first = [graph.constant(_neutral(op, dtype), dtype) for _ in others]

    def body(number, carried):
        at = minus(graph, length - 1, number) if reverse else number
        each = [source.at((*index[:axis], at, *index[axis:])) for index in others]
        pairs = zip(carried, each, strict=True)
        return [apply(graph, op, pair, dtype) for pair in pairs]

    found = collected(graph, length, first, body)
    rows = stored(found, (length, *rest), dtype, graph)

    def at(index):
        place = minus(graph, length - 1, index[axis]) if reverse else index[axis]
        return arrays.read(graph, rows, (place, *index[:axis], *index[axis + 1 :]))

    return Pulled(x.shape, dtype, at, graph.dep[found])


@rule("dot_general")
def _dot(walk, eqn, x, y):
    graph, aval = walk.graph, eqn.outvars[0].aval
    (sum_x, sum_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    dtype = dtype_of(aval)
    shapes = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
    free_x = [k for k in range(len(shapes[0])) if k not in (*sum_x, *batch_x)]
    free_y = [k for k in range(len(shapes[1])) if k not in (*sum_y, *batch_y)]
    inner = [shapes[0][k] for k in sum_x]
    first = graph.constant(0, dtype)
    x, y = arrays.settled(graph, x), arrays.settled(graph, y)

    def at(index):
        batch, rest = index[: len(batch_x)], index[len(batch_x) :]
        own = rest[: len(free_x)], rest[len(free_x) :]

        def term(number):
            summed = unflat(graph, number, inner)
            one = _place(batch_x, batch, free_x, own[0], sum_x, summed)
            two = _place(batch_y, batch, free_y, own[1], sum_y, summed)
            pair = arrays.read(graph, x, one), arrays.read(graph, y, two)
            pair = tuple(convert(graph, node, dtype) for node in pair)
            return apply(graph, "mul", pair, dtype)

        return folded(walk, "add", math.prod(inner), first, term)

    return [_computed(graph, aval.shape, dtype, at, x, y)]


def _place(*pairs) -> tuple:
    place = {}
    for axes, index in zip(pairs[::2], pairs[1::2], strict=True):
        place.update(zip(axes, index, strict=True))
    return tuple(place[k] for k in range(len(place)))


@rule("sort")
def _sort(walk, eqn, *operands):
    graph, params = walk.graph, eqn.params
    axis, keys = params["dimension"], params["num_keys"]
    shape = eqn.outvars[0].aval.shape
    if is_large(shape) or shape[axis] > 32:
        raise Unsupported(f"`sort` of {shape[axis]} elements")
    rows = [np.moveaxis(np.array(x), axis, 0) for x in operands]
    for index in np.ndindex(*rows[0].shape[1:]):
        columns = [[int(row[(k, *index)]) for k in range(shape[axis])] for row in rows]
        for k, entries in enumerate(zip(*_sorted(graph, columns, keys), strict=True)):
            for row, node in zip(rows, entries, strict=True):
                row[(k, *index)] = node
    return [np.moveaxis(row, 0, axis) for row in rows]


def _sorted(graph, columns: list[list[int]], keys: int) -> list[list[int]]:
    """Sort by odd-even transposition, which is stable."""
    length = len(columns[0])
    for turn in range(length):
        for k in range(turn % 2, length - 1, 2):
            swap = _less(graph, [(c[k + 1], c[k]) for c in columns[:keys]])
            for column in columns:
                a, b = column[k], column[k + 1]
                column[k] = select(graph, swap, a, b)
                column[k + 1] = select(graph, swap, b, a)
    return columns


def _less(graph, pairs) -> int:
    """Compare in lexicographic order; NaN is greater than all numbers."""
    found = graph.constant(False, "b1")
    for x, y in reversed(pairs):
        less = apply(graph, "lt", (x, y), "b1")
        same = apply(graph, "eq", (x, y), "b1")
        if graph.dtype[x][0] == "f":
            nan_x, nan_y = (apply(graph, "ne", (z, z), "b1") for z in (x, y))
            number = apply(graph, "not", (nan_x,), "b1")
            last = apply(graph, "and", (number, nan_y), "b1")
            less = apply(graph, "or", (less, last), "b1")
            both = apply(graph, "and", (nan_x, nan_y), "b1")
            same = apply(graph, "or", (same, both), "b1")
        tie = apply(graph, "and", (same, found), "b1")
        found = apply(graph, "or", (less, tie), "b1")
    return found


# Sums over lists whose length differs between lanes, the primitive of `eqsim/_lists.py`. The way
# back is a loop over the same rows: a pass computes the function of a row again, and pulls
# back through it in the same pass, so nothing is stored for each row.


class _List:
    """The rows of one sum.

    - `operands`: number of rows, list, tables, and shared arrays.
    """

    def __init__(self, walk: Translation, eqn, operands: Sequence[Value]):
        self.walk, self.graph = walk, walk.graph
        self.body, self.layout = eqn.params["body"], eqn.params["layout"]
        self.operands = materialized(walk, list(operands))

    def arguments(self, number: int) -> list[Value]:
        """Return the arguments of the function for a row."""
        true = self.graph.constant(True, "b1")
        own: list[Value] = [
            arrays.nodes([true], (1,)),
            self.row(self.operands[1], number),
        ]
        tables = self.operands[2 : self.layout.first_shared]
        for table, place in zip(tables, self.layout.places, strict=True):
            own.append(self.row(table, own[place]))
        return [*own, *self.operands[self.layout.first_shared :]]

    def row(self, table: Value, number) -> Value:
        """Return one entry of a table, as an array of one element."""
        node = number if isinstance(number, int) else _only(number)
        place = clamped(self.graph, as_index(self.graph, node), table.shape[0] - 1)
        return arrays.nodes([arrays.read(self.graph, table, (place,))], (1,))

    def loop(
        self, avals: Sequence[Any], written: Sequence[bool], visit, more=()
    ) -> list[Value]:
        """Return totals that begin with zero, after `visit(number, totals) -> totals`
        of each row.

        **Arguments:**

        - `avals`: shapes and types of the totals.
        - `written`: flags of the totals to which entries are added.
        - `more`: values besides the operands on which totals depend.
        """
        graph, count = self.graph, _only(self.operands[0])
        dep = arrays.dependence(graph, *self.operands, *more)
        whole = [ShapedArray((), np.dtype(np.int32)), *avals]
        one = graph.constant(1, INDEX)

        def test(values: list[Value]) -> Value:
            pair = _only(values[0]), count
            return arrays.nodes([apply(graph, "lt", pair, "b1")], ())

        def body(values: list[Value]) -> list[Value]:
            number = _only(values[0])
            totals = visit(number, values[1:])
            after = apply(graph, "add", (number, one), INDEX)
            return [arrays.nodes([after], ()), *totals]

        loop = While(
            carry=Carry(self.walk, whole, [False, *written]),
            deps=[graph.dep[count] & ~LANE, *([dep] * len(avals))],
            kept=[False] * len(whole),
            by_lane=bool(graph.dep[count] & LANE),
            test=test,
            body=body,
        )
        zeros = [arrays.constant(graph, np.zeros(x.shape, dtype_of(x))) for x in whole]
        return while_loop(self.walk, loop, zeros)[1:]

    def plus(self, aval, x: Value, y: Value) -> Value:
        """Return a sum."""
        dtype = dtype_of(aval)
        add = lambda *pair: apply(self.graph, "add", pair, dtype)
        return elementwise(self.walk, aval.shape, dtype, (x, y), add)


def _only(value: Value) -> int:
    """Return the node of an array of one element."""
    (node,) = np.asarray(value).reshape(-1).tolist()
    return node


@rule("each")
def _each(walk, eqn, *operands):
    own = _List(walk, eqn, operands)
    avals = [var.aval for var in eqn.outvars]

    def visit(number: int, totals: list[Value]) -> list[Value]:
        args = own.arguments(number)
        found = walk.closed(own.body, args)
        triples = zip(totals, found, own.layout.into, avals, strict=True)
        return [
            own.plus(aval, total, value)
            if into is None
            else add_element(walk, total, _only(args[into[0]]), _only(value))
            for total, value, into, aval in triples
        ]

    return own.loop(avals, [into is not None for into in own.layout.into], visit)


@reverse_rule("each")
def _each_back(reverse: Reverse, eqn, operands, active, wanted):
    walk = reverse.walk
    if reverse.at_zero:
        results: list[Value] = [reverse.zeros(var.aval) for var in eqn.outvars]
    else:
        results = walk.apply(eqn, operands)
    chosen = [k for k, on in enumerate(active) if on]
    layout, avals = eqn.params["layout"], [eqn.invars[k].aval for k in chosen]
    in_table = [k < layout.first_shared for k in chosen]

    def pull(cotangents: Cotangents) -> Cotangents:
        own = _List(walk, eqn, reverse.kept(operands))
        given = [
            x if x is None else arrays.materialized(walk.graph, x) for x in cotangents
        ]

        def visit(number: int, totals: list[Value]) -> list[Value]:
            args = own.arguments(number)
            back = reverse.closed(own.body, args, list(active), wanted)[2]
            pairs = zip(given, layout.into, strict=True)
            found = back(
                [
                    x if x is None or into is None else own.row(x, args[into[0]])
                    for x, into in pairs
                ]
            )
            new = []
            for k, total, aval, is_table in zip(chosen, totals, avals, in_table):
                value = found[k]
                if value is not None and is_table:
                    place = _only(args[layout.places[k - 2]])
                    total = add_element(walk, total, place, _only(value))
                elif value is not None:
                    total = own.plus(aval, total, value)
                new.append(total)
            return new

        with reverse.alone():
            more = [x for x in given if x is not None]
            totals = own.loop(avals, in_table, visit, more)
        found = dict(zip(chosen, totals, strict=True))
        return [found.get(k) for k in range(len(active))]

    return results, pull
