"""Forward mode of loops and branches: tangents travel beside what a loop carries."""

import functools
from collections.abc import Sequence
from operator import or_

from . import _arrays as arrays
from ._arrays import Value
from ._branches import switch
from ._carry import Carry, dependences, materialized
from ._forward import Forward, forward_rule, Tangents
from ._loops import (
    Scan,
    scan_loop,
    stops_by_lane,
    While,
    while_keeps,
    while_loop,
    while_operands,
    while_writes,
)
from ._scalarize import scan_dependence, scan_sizes, while_dependence
from ._smooth import (
    active_arguments,
    active_results,
    wanted_arguments,
    wanted_results,
)


def _moving(tangents: Tangents) -> list[bool]:
    return [rate is not None for rate in tangents]


def _settled(forward: Forward, tangents: Tangents) -> Tangents:
    graph = forward.graph
    return [None if x is None else arrays.materialized(graph, x) for x in tangents]


def _union(forward: Forward, deps: list[int], *groups) -> int:
    """Return `Graph.dep` of tangents, which may depend on everything that a loop
    computes with."""
    values = [x for group in groups for x in group if x is not None]
    return functools.reduce(or_, deps, arrays.dependence(forward.graph, *values))


class _Beside:
    """Tangents of some of the values that a loop carries.

    - `chosen`: indices of these values.
    """

    def __init__(self, forward: Forward, avals, chosen: list[int]):
        self._forward, self._avals = forward, avals
        self.count, self.chosen = len(avals), chosen
        self.avals = [*avals, *(avals[k] for k in chosen)]

    def joined(self, values, tangents: Sequence[Value | None]) -> list:
        """Return values, and the tangents of the chosen ones."""
        own = [self._avals[k] for k in self.chosen]
        rates = self._forward.filled(own, [tangents[k] for k in self.chosen])
        return [*values, *rates]

    def parted(self, values) -> tuple[list, Tangents]:
        """Invert `joined`."""
        tangents: Tangents = [None] * self.count
        for k, rate in zip(self.chosen, values[self.count :], strict=True):
            tangents[k] = rate
        return list(values[: self.count]), tangents

    def extended(self, entries: list, others) -> list:
        """Return one entry per value, and one per tangent."""
        return [*entries, *(others[k] for k in self.chosen)]


@forward_rule("while")
def _while(forward: Forward, eqn, operands, tangents, wanted):
    walk, graph, params = forward.walk, forward.graph, eqn.params
    operands = materialized(walk, operands)
    tangents = _settled(forward, tangents)
    of_test, of_body, init = while_operands(params, operands)
    _, body_rates, rates = while_operands(params, tangents)
    body, first = params["body_jaxpr"], len(of_body)
    cut = slice(first, first + len(init))
    needed = wanted_results(body.jaxpr, wanted, cut)
    active = active_arguments(body.jaxpr, _moving([*body_rates, *rates]), cut)[cut]
    chosen = [k for k, pair in enumerate(zip(active, needed)) if all(pair)]
    deps = while_dependence(eqn, dependences(graph, operands))
    beside = _Beside(forward, [var.aval for var in eqn.outvars], chosen)
    dep, writes = _union(forward, deps, operands, tangents), while_writes(params)

    def step(values):
        own, moving = beside.parted(values)
        rates = [*body_rates, *moving]
        found = forward.closed(body, [*of_body, *own], rates, needed)
        return beside.joined(*found)

    loop = While(
        carry=Carry(walk, beside.avals, beside.extended(writes, writes)),
        deps=beside.extended(deps, [dep] * len(deps)),
        kept=beside.extended(while_keeps(params), [False] * len(deps)),
        by_lane=stops_by_lane(graph, params, of_test, deps),
        test=lambda values: walk.closed(
            params["cond_jaxpr"], [*of_test, *values[: beside.count]]
        )[0],
        body=step,
    )
    return beside.parted(while_loop(walk, loop, beside.joined(init, rates)))


@forward_rule("scan")
def _scan(forward: Forward, eqn, operands, tangents, wanted):
    return _Scan(forward, eqn, operands, tangents, wanted).results()


class _Scan:
    """A scan with tangents of what it carries, of its rows and of what it stacks."""

    def __init__(self, forward: Forward, eqn, operands, tangents, wanted):
        params, walk = eqn.params, forward.walk
        self.forward, self.params, self.inner = forward, params, params["jaxpr"]
        self.operands = materialized(walk, operands)
        self.tangents = _settled(forward, tangents)
        self.first, self.count = scan_sizes(params)
        self.last = self.first + self.count
        jaxpr, cut = self.inner.jaxpr, slice(self.first, self.last)
        self.wanted = wanted_results(jaxpr, wanted, cut)
        active = active_arguments(jaxpr, _moving(self.tangents), cut)
        useful = wanted_arguments(jaxpr, self.wanted)
        moving = [a and b for a, b in zip(active, useful, strict=True)]
        found = active_results(jaxpr, active)
        needed = [a and b for a, b in zip(found, self.wanted, strict=True)]
        chosen = lambda flags: [k for k, flag in enumerate(flags) if flag]
        self.deps = scan_dependence(params, dependences(walk.graph, self.operands))
        self.dep = _union(forward, self.deps, self.operands, self.tangents)
        avals = [var.aval for var in eqn.outvars]
        rows = [var.aval for var in eqn.invars[self.last :]]
        given = [a and b for a, b in zip(moving[cut], self.wanted)]
        self.carried = _Beside(forward, avals[: self.count], chosen(given))
        self.rows = _Beside(forward, rows, chosen(moving[self.last :]))
        shapes = [var.aval for var in jaxpr.outvars[self.count :]]
        self.row = _Beside(forward, shapes, chosen(needed[self.count :]))
        self.stacked = avals[self.count :]

    def results(self) -> tuple[list, Tangents]:
        """Return the results and their tangents."""
        deps, dep, count = self.deps, self.dep, self.count
        many = lambda entries: [dep] * len(entries)
        shapes = self.row.extended(self.stacked, self.stacked)
        stacked = self.row.extended(deps[count:], many(deps[count:]))
        loop = Scan(
            length=self.params["length"],
            reverse=self.params["reverse"],
            carry=Carry(self.forward.walk, self.carried.avals),
            deps=self.carried.extended(deps[:count], many(deps[:count])),
            stacked=list(zip(shapes, stacked, strict=True)),
            body=self._pass,
        )
        parts = slice(self.first, self.last), slice(self.last, None)
        init, xs = (
            beside.joined(self.operands[part], self.tangents[part])
            for beside, part in zip((self.carried, self.rows), parts, strict=True)
        )
        found, size = scan_loop(self.forward.walk, loop, init, xs), len(init)
        ends, rates = self.carried.parted(found[:size])
        rows, row_rates = self.row.parted(found[size:])
        return [*ends, *rows], [*rates, *row_rates]

    def _pass(self, own: list, each: list) -> list:
        values, rates = self.carried.parted(own)
        rows, row_rates = self.rows.parted(each)
        args = [*self.operands[: self.first], *values, *rows]
        tangents = [*self.tangents[: self.first], *rates, *row_rates]
        found = self.forward.closed(self.inner, args, tangents, self.wanted)
        ends, stacked = (
            beside.joined(*(x[part] for x in found))
            for beside, part in (
                (self.carried, slice(self.count)),
                (self.row, slice(self.count, None)),
            )
        )
        return [*ends, *stacked]


@forward_rule("cond")
def _cond(forward: Forward, eqn, operands, tangents, wanted):
    walk, branches = forward.walk, eqn.params["branches"]
    which, operands = operands[0], materialized(walk, operands[1:])
    tangents = _settled(forward, tangents[1:])
    moving = _moving(tangents)
    each = [active_results(branch.jaxpr, moving) for branch in branches]
    pairs = enumerate(zip(wanted, *each, strict=True))
    chosen = [k for k, (need, *flags) in pairs if need and any(flags)]
    beside = _Beside(forward, [var.aval for var in eqn.outvars], chosen)

    def taken(branch):
        return beside.joined(*forward.closed(branch, operands, tangents, wanted))

    cases = [lambda branch=branch: taken(branch) for branch in branches]
    return beside.parted(switch(walk, which, cases, beside.avals))
