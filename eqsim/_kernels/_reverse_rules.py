"""Reverse mode of arithmetic, of movements of elements, and of loops."""

import functools
from typing import Any

import numpy as np

from . import _arrays as arrays
from ._arrays import INDEX, Index, index_node, is_large, loop_param, minus, Value
from ._control_flow import Carry, elements, finish, row_of, stacked_rows
from ._derivatives import (
    active_arguments,
    wanted_arguments,
    wanted_results,
)
from ._graph import Loop
from ._jax_primitives import are_known, elementwise, gathered, window_of
from ._operations import convert, Element, PARTIALS, select, SMOOTH
from ._reductions import balanced
from ._reverse import Cotangents, Passes, Reverse, reverse_rule
from ._translation import dtype_of, RULES, scan_dependence, scan_sizes


# Primitives.


@reverse_rule(*SMOOTH)
def _elementwise(reverse: Reverse, eqn, operands, active, *_):
    partials, aval = PARTIALS[eqn.primitive.name], eqn.outvars[0].aval
    pairs = list(zip(eqn.invars, partials, active, strict=True))
    if any(on and (p is None or v.aval.shape != aval.shape) for v, p, on in pairs):
        return None
    (out,) = reverse.walk.apply(eqn, operands)
    graph, dtype = reverse.graph, dtype_of(aval)

    def pull(cotangents: Cotangents) -> Cotangents:
        given = (cotangents[0], *reverse.kept([out, *operands]))

        def of(partial: Any) -> Value:
            at = lambda ct, out, *x: partial(
                Element(graph, dtype, eqn.params, x, out), ct
            )
            return elementwise(reverse.walk, aval.shape, dtype, given, at)

        return [of(partial) if on else None for _, partial, on in pairs]

    return [out], pull


@reverse_rule("select_n")
def _select(reverse: Reverse, eqn, operands, active, *_):
    if dtype_of(eqn.invars[0].aval) != "b1":
        return None
    (out,) = reverse.walk.apply(eqn, operands)
    graph, aval = reverse.graph, eqn.outvars[0].aval
    dtype = dtype_of(aval)
    zero = graph.constant(0, dtype)

    def pull(cotangents: Cotangents) -> Cotangents:
        def of(case: int) -> Value:
            pair = lambda ct: (zero, ct) if case else (ct, zero)
            at = lambda which, ct: select(graph, which, *pair(ct))
            given = *reverse.kept(operands[:1]), cotangents[0]
            return elementwise(reverse.walk, aval.shape, dtype, given, at)

        return [None, *(of(k) if on else None for k, on in enumerate(active[1:]))]

    return [out], pull


@reverse_rule("convert_element_type")
def _convert(reverse: Reverse, eqn, operands, active, *_):
    results = reverse.walk.apply(eqn, operands)
    aval, graph = eqn.invars[0].aval, reverse.graph
    dtype = dtype_of(aval)
    back = lambda ct: convert(graph, ct, dtype)
    pull = lambda cotangents: [
        elementwise(reverse.walk, aval.shape, dtype, (cotangents[0],), back)
    ]
    return results, pull


@reverse_rule("copy", "copy_p", "optimization_barrier", "once", "name")
def _identity(reverse: Reverse, eqn, operands, active, *_):
    return list(operands), lambda cotangents: cotangents


# Small arrays: what moves elements moves their numbers, too, which tells from where each
# element comes.


_MOVES = (
    *("reshape", "expand_dims", "squeeze", "broadcast_in_dim", "transpose", "rev"),
    *("slice", "split", "unstack", "concatenate", "stack", "tile"),
)


@reverse_rule(*_MOVES)
def _move(reverse: Reverse, eqn, operands, active, *_):
    if not _are_small(eqn, operands):
        return None
    rule = RULES[eqn.primitive.name]
    numbers, start = [], 0
    for x in operands:
        numbers.append(np.arange(start, start + x.size).reshape(x.shape))
        start += x.size
    places = rule(reverse.walk, eqn, *numbers)
    return reverse.walk.apply(eqn, operands), _from_places(reverse, eqn, places, active)


@reverse_rule("gather")
def _gather(reverse: Reverse, eqn, operands, active, *_):
    x, indices = operands
    graph = reverse.graph
    batched = eqn.params["dimension_numbers"].operand_batching_dims
    if batched or not _are_small(eqn, operands) or not are_known(graph, indices):
        return None
    numbers = np.arange(x.size).reshape(x.shape)
    places = gathered(graph, eqn, numbers, indices, window_of(eqn))
    results = reverse.walk.apply(eqn, operands)
    return results, _from_places(reverse, eqn, [places], active)


def _are_small(eqn, operands) -> bool:
    """Return whether all operands and results are unrolled."""
    unrolled = all(isinstance(x, np.ndarray) for x in operands)
    return unrolled and not any(is_large(var.aval.shape) for var in eqn.outvars)


def _from_places(reverse: Reverse, eqn, places, active):
    """Return the pull-back of an equation that moves elements.

    **Arguments:**

    - `places`: for each result, the index of the source of each element among all elements
        of all operands; negative if there is no source.
    """
    graph = reverse.graph

    def pull(cotangents: Cotangents) -> Cotangents:
        terms: dict[int, list[int]] = {}
        for own, cotangent in zip(places, cotangents, strict=True):
            if cotangent is None:
                continue
            assert isinstance(cotangent, np.ndarray), "small arrays are unrolled"
            pairs = zip(own.reshape(-1).tolist(), cotangent.reshape(-1).tolist())
            for place, node in pairs:
                terms.setdefault(place, []).append(node)
        found, start = [], 0
        for var, on in zip(eqn.invars, active, strict=True):
            shape, dtype = var.aval.shape, dtype_of(var.aval)
            size = int(np.prod(shape))
            if on:
                zero = [graph.constant(0, dtype)]
                own = [terms.get(k, zero) for k in range(start, start + size)]
                nodes = [balanced(graph, "add", entry, dtype) for entry in own]
                found.append(np.array(nodes, np.int64).reshape(shape))
            else:
                found.append(None)
            start += size
        return found

    return pull


@reverse_rule("reduce_sum")
def _reduce_sum(reverse: Reverse, eqn, operands, active, *_):
    (x,) = operands
    if not isinstance(x, np.ndarray):
        return None
    results, axes = reverse.walk.apply(eqn, operands), tuple(eqn.params["axes"])

    def pull(cotangents: Cotangents) -> Cotangents:
        ct = cotangents[0]
        assert isinstance(ct, np.ndarray), "small arrays are unrolled"
        return [np.broadcast_to(np.expand_dims(ct, axes), x.shape)]

    return results, pull


# Loops.


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
