"""Forward mode: the Jacobian-vector product of a jaxpr, straight into the lane graph.

Each equation is translated with its tangents, in one walk. Linear primitives are
applied to tangents directly; element-wise primitives have partial derivatives
(`_derivatives.py`); tangents of carried values travel beside them through loops; an
equation without a rule is differentiated by JAX.

The tangent of a value is None if it does not depend on the differentiated arguments, or if
no result needs it.
"""

import functools
from collections.abc import Callable, Sequence
from operator import or_
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from . import _arrays as arrays
from ._arrays import Value
from ._control_flow import (
    Carry,
    dependences,
    materialized,
    Scan,
    scan_loop,
    stops_by_lane,
    switch,
    While,
    while_keeps,
    while_loop,
    while_operands,
    while_writes,
)
from ._derivatives import (
    AbstractWalk,
    active_arguments,
    active_results,
    CALLS,
    Derivatives,
    is_flat,
    is_float,
    restricted,
    shapes_of,
    Vectors,
    wanted_arguments,
    wanted_results,
    wanted_variables,
)
from ._jax_primitives import elementwise
from ._operations import Element, PARTIALS, SMOOTH
from ._translation import (
    called,
    dtype_of,
    scan_dependence,
    scan_sizes,
    while_dependence,
)


Tangents = Vectors

FORWARD: dict[str, Callable[..., tuple[list[Value], Tangents] | None]] = {}


def forward_rule(*names: str):
    """Register the forward mode of primitives: a function `(forward, eqn, operands,
    tangents, wanted) -> results, tangents`, or None where JAX must differentiate."""

    def register(function):
        for name in names:
            FORWARD[name] = function
        return function

    return register


class Forward(AbstractWalk):
    """One walk over a jaxpr with tangents."""

    def closed(
        self,
        closed: ClosedJaxpr,
        args: Sequence[Value],
        tangents: Sequence[Value | None],
        wanted: Sequence[bool] | None = None,
    ) -> tuple[list[Value], Tangents]:
        """Return the results of a jaxpr and their tangents.

        **Arguments:**

        - `wanted`: flags of the results that need tangents; None for all floats.
        """
        jaxpr = closed.jaxpr
        if wanted is None:
            wanted = [True] * len(jaxpr.outvars)
        wants = wanted_variables(jaxpr, tuple(wanted))
        env: dict[Any, Value] = {}
        moving: dict[Any, Value] = {}

        def read(atom) -> Value:
            if isinstance(atom, Literal):
                return self.walk.constant(np.asarray(atom.val, dtype_of(atom.aval)))
            return env[atom]

        def rate(atom) -> Value | None:
            return None if isinstance(atom, Literal) else moving.get(atom)

        def put(variables, rates: Sequence[Value | None]) -> None:
            for var, value in zip(variables, rates, strict=True):
                if value is not None:
                    moving[var] = value

        for var, const in zip(jaxpr.constvars, closed.consts, strict=True):
            env[var] = self.walk.constant(const)
        env.update(zip(jaxpr.invars, args, strict=True))
        put(jaxpr.invars, tangents)
        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            rates = [rate(atom) for atom in eqn.invars]
            own = [var in wants for var in eqn.outvars]
            still = all(x is None for x in rates)
            if still or not any(own) or is_flat(eqn):
                results = self.walk.apply(eqn, operands, jaxpr)
            else:
                results, rates = self._equation(eqn, operands, rates, own)
                put(eqn.outvars, rates)
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars], [*map(rate, jaxpr.outvars)]

    def _equation(
        self, eqn, operands, tangents, wanted
    ) -> tuple[list[Value], Tangents]:
        rule = FORWARD.get(eqn.primitive.name)
        if rule is not None:
            found = rule(self, eqn, operands, tangents, wanted)
            if found is not None:
                return found
        return _by_jax(self, eqn, operands, tangents)


def _new_push(eqn, active: tuple[bool, ...]) -> ClosedJaxpr:
    """Return an equation with its tangents: a function of the operands and the tangents
    of the active ones, which returns the results and the tangents of the results that
    are floats."""
    chosen = [v for v, on in zip(eqn.invars, active, strict=True) if on]

    def push(xs, tangents):
        fn, at = restricted(eqn, xs, active)
        out, rates = jax.jvp(fn, at, list(tangents))
        pairs = zip(eqn.outvars, rates, strict=True)
        return [*out, *(rate for var, rate in pairs if is_float(var.aval))]

    return jax.make_jaxpr(push)(shapes_of(eqn.invars), shapes_of(chosen))


_pushed = Derivatives(_new_push)


def _by_jax(forward: Forward, eqn, operands, tangents) -> tuple[list[Value], Tangents]:
    """Compute tangents of equations without a rule, by JAX."""
    active = tuple(x is not None for x in tangents)
    given = [*operands, *(x for x in tangents if x is not None)]
    found = forward.walk.closed(_pushed(eqn, active), given)
    number = len(eqn.outvars)
    rates = iter(found[number:])
    return found[:number], [
        next(rates) if is_float(var.aval) else None for var in eqn.outvars
    ]


# Rules of primitives.


@forward_rule(*SMOOTH)
def _elementwise(forward: Forward, eqn, operands, tangents, *_):
    partials, aval = PARTIALS[eqn.primitive.name], eqn.outvars[0].aval
    moving = []
    for partial, var, rate in zip(partials, eqn.invars, tangents, strict=True):
        if rate is None:
            continue
        if partial is None or var.aval.shape != aval.shape:
            return None
        moving.append((partial, rate))
    (out,) = forward.walk.apply(eqn, operands)
    graph, dtype, count = forward.graph, dtype_of(aval), len(operands)

    def at(out, *entries):
        entry = Element(graph, dtype, eqn.params, entries[:count], out)
        pairs = zip(moving, entries[count:], strict=True)
        terms = [partial(entry, rate) for (partial, _), rate in pairs]
        return functools.reduce(lambda a, b: entry("add", a, b), terms)

    given = (out, *operands, *(rate for _, rate in moving))
    return [out], [elementwise(forward.walk, aval.shape, dtype, given, at)]


# Linear in all operands that are floats.


_LINEAR = (
    *("reshape", "expand_dims", "squeeze", "broadcast_in_dim", "transpose", "rev"),
    *("slice", "split", "unstack", "concatenate", "stack", "tile", "pad"),
    *("reduce_sum", "cumsum", "dynamic_slice", "dynamic_update_slice", "scatter-add"),
    *("copy", "copy_p", "optimization_barrier", "once", "name", "convert_element_type"),
    *("select_n", "gather", "scatter"),
)


@forward_rule(*_LINEAR)
def _linear(forward: Forward, eqn, operands, tangents, *_):
    if "FILL" in str(eqn.params.get("mode")) and eqn.primitive.name == "gather":
        # What lies outside has no tangent, whatever fills its place.
        return None
    given = []
    for var, x, rate in zip(eqn.invars, operands, tangents, strict=True):
        floats = is_float(var.aval)
        given.append(forward.zeros(var.aval) if floats and rate is None else rate)
        if not floats:
            given[-1] = x
    walk = forward.walk
    return walk.apply(eqn, operands), list(walk.apply(eqn, given))


@forward_rule("dot_general")
def _dot(forward: Forward, eqn, operands, tangents, *_):
    walk, aval = forward.walk, eqn.outvars[0].aval
    (x, y), (dx, dy) = operands, tangents
    terms = []
    if dx is not None:
        terms += walk.apply(eqn, [dx, y])
    if dy is not None:
        terms += walk.apply(eqn, [x, dy])
    add = functools.partial(forward.plus, aval)
    return walk.apply(eqn, operands), [functools.reduce(add, terms)]


@forward_rule(*CALLS)
def _call(forward: Forward, eqn, operands, tangents, wanted):
    inner = called(eqn)
    return None if inner is None else forward.closed(inner, operands, tangents, wanted)


# Loops and branches.


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

    def extended(self, entries: Sequence, others) -> list:
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
    deps = while_dependence(eqn, dependences(graph, operands), None)
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
