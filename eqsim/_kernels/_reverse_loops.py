"""Reverse mode of loops with a known number of passes."""

import functools
from typing import Any

from . import _arrays as arrays
from ._arrays import is_large
from ._carry import Carry, finish
from ._counting import loop_param
from ._graph import Loop
from ._indices import INDEX, Index, index_node, minus
from ._reverse import Cotangents, Reverse, reverse_rule
from ._reverse_passes import Passes
from ._rows import elements, row_of, stacked_rows
from ._scalarize import scan_dependence, scan_sizes
from ._smooth import active_arguments, wanted_arguments, wanted_results


@reverse_rule("scan")
def _scan(reverse: Reverse, eqn, operands, active, wanted):
    if not eqn.params["length"] or _stacks_large_arrays(eqn):
        return None
    scan = _Scan(reverse, eqn, operands, active, wanted)
    return scan.forward(), scan.pull


def _stacks_large_arrays(eqn) -> bool:
    """Return whether the arrays that a pass reads or stacks are large."""
    start, count = scan_sizes(eqn.params)
    rows = [*eqn.invars[start + count :], *eqn.outvars[count:]]
    return any(is_large(v.aval.shape[1:]) for v in rows)


class _Scan:
    """A scan, forward and back.

    The way back carries the cotangents of what the scan carries, and sums of those of its
    constants.
    """

    def __init__(self, reverse: Reverse, eqn, operands, active, wanted):
        params = eqn.params
        self.reverse, self.graph, self.eqn = reverse, reverse.graph, eqn
        self.operands = [arrays.materialized(reverse.graph, x) for x in operands]
        self.inner, self.length = params["jaxpr"], params["length"]
        self.first, carry = scan_sizes(params)
        self.second = self.first + carry
        self.avals = [var.aval for var in self.inner.jaxpr.invars]
        carried = range(self.first, self.second)
        jaxpr, cut = self.inner.jaxpr, slice(self.first, self.second)
        self.wanted = wanted_results(jaxpr, wanted, cut)
        active = active_arguments(jaxpr, active, cut)
        needed = wanted_arguments(jaxpr, self.wanted)
        self.flags = [a and b for a, b in zip(active, needed, strict=True)]
        chosen = lambda numbers: [k for k in numbers if self.flags[k]]
        self.summed, self.carried = chosen(range(self.first)), chosen(carried)
        self.stacked = chosen(range(self.second, len(self.avals)))

    # Forward.

    def forward(self) -> list[Any]:
        """Return the results."""
        graph, walk = self.graph, self.reverse.walk
        first, second = self.first, self.second
        count = second - first
        deps = [arrays.dependence(graph, x) for x in self.operands]
        self.dep = functools.reduce(lambda a, b: a | b, deps, 0)
        deps = scan_dependence(self.eqn.params, deps)
        init = self.operands[first:second]
        carry = Carry(walk, [var.aval for var in self.eqn.outvars[:count]])
        start, spread = carry.flatten(init), carry.spread(deps[:count])
        begin = len(graph.op)
        with graph.block(branch=False) as depth:
            index = graph.source("param", INDEX, 0)
            pairs = zip(start, spread, strict=True)
            entries = [loop_param(graph, n, d) for n, d in pairs]
            place = self._row(Index(index))
            rows = [row_of(graph, x, place) for x in self.operands[second:]]
            args = [*self.operands[:first], *carry.restore(entries), *rows]
            self.reverse.loops += 1
            found = self.reverse.closed(self.inner, args, self.flags, self.wanted)
            self.reverse.loops -= 1
            new, _, self.back = found
            outs = carry.flatten(new[:count], entries)
            stacked = [elements(graph, value) for value in new[count:]]
        self.body = begin, len(graph.op)
        loop = Loop(depth, index, entries, outs, None, self.length, stacked)
        self.control, ends = finish(graph, start, spread, loop, self.dep)
        outs = zip(self.eqn.outvars[count:], deps[count:], strict=True)
        backward = self.eqn.params["reverse"]
        rows = [
            stacked_rows(graph, self.control, k, var.aval, dep, backward)
            for k, (var, dep) in enumerate(outs)
        ]
        return [*carry.restore(ends), *rows]

    def _row(self, place: Any) -> Any:
        """Return the row that a pass reads or writes."""
        last = self.length - 1
        return minus(self.graph, last, place) if self.eqn.params["reverse"] else place

    # Back.

    def pull(self, cotangents: Cotangents) -> Cotangents:
        """Return the cotangents of all operands."""
        reverse, graph = self.reverse, self.graph
        count = self.second - self.first
        given = reverse.filled([v.aval for v in self.eqn.outvars], cotangents)
        given = [arrays.materialized(graph, x) for x in given]
        chosen = [*self.summed, *self.carried]
        carry = Carry(reverse.walk, [self.avals[k] for k in chosen])
        init = [reverse.zeros(self.avals[k]) for k in self.summed]
        init += [given[k - self.first] for k in self.carried]
        start, dep = carry.flatten(init), self.dep | arrays.dependence(graph, *given)
        spread = carry.spread([dep] * len(chosen))
        outer = reverse.passes
        with graph.block(branch=False) as depth:
            index = graph.source("param", INDEX, 0)
            entries = [loop_param(graph, n, dep) for n in start]
            place = minus(graph, self.length - 1, Index(index))
            where = index_node(graph, place)
            passes = Passes(graph, self.control, *self.body, where, outer)
            reverse.passes = passes
            rows = [row_of(graph, x, self._row(place)) for x in given[count:]]
            found = self._pass(carry.restore(entries), rows)
            reverse.passes = outer
            outs = carry.flatten([found[k] for k in chosen], entries)
            stacked = [elements(graph, found[k]) for k in self.stacked]
        passes.close()
        loop = Loop(depth, index, entries, outs, None, self.length, stacked)
        control, results = finish(graph, start, spread, loop, dep)
        ends: dict[int, Any] = dict(zip(chosen, carry.restore(results), strict=True))
        # The way back begins with the last pass.
        turned = not self.eqn.params["reverse"]
        for number, k in enumerate(self.stacked):
            aval = self.eqn.invars[k].aval
            ends[k] = stacked_rows(graph, control, number, aval, dep, turned)
        return [ends.get(k) for k in range(len(self.avals))]

    def _pass(self, carried, rows) -> dict[int, Any]:
        """Return the cotangents after a backward pass."""
        reverse = self.reverse
        own = dict(zip([*self.summed, *self.carried], carried, strict=True))
        results = [own.get(k) for k in range(self.first, self.second)]
        cotangents = self.back([*results, *rows])
        found = dict(enumerate(reverse.filled(self.avals, cotangents)))
        for k in self.summed:
            found[k] = own[k]
            if cotangents[k] is not None:
                found[k] = reverse.plus(self.avals[k], own[k], cotangents[k])
        return found
