"""Sums over lists whose length differs between lanes, the primitive of `eqsim/_lists.py`, and
their reverse mode.

The way back is a loop over the same rows: a pass computes the function of a row again, and
pulls back through it in the same pass, so nothing is stored for each row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.core import ShapedArray

from . import _algebra as algebra, _arrays as arrays
from ._arrays import Value
from ._elementwise import elementwise
from ._graph import LANE
from ._indexing import add_element
from ._indices import as_index, clamped, INDEX
from ._loops import Carry, materialized, While, while_loop
from ._reverse import Cotangents, Reverse, reverse_rule
from ._scalarize import dtype_of, rule, Translation


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
            return arrays.nodes([algebra.apply(graph, "lt", pair, "b1")], ())

        def body(values: list[Value]) -> list[Value]:
            number = _only(values[0])
            totals = visit(number, values[1:])
            after = algebra.apply(graph, "add", (number, one), INDEX)
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
        add = lambda *pair: algebra.apply(self.graph, "add", pair, dtype)
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
