"""Common parts of forward and reverse mode: equations as functions of arrays, values that
vary smoothly, sums of tangents and cotangents, and partial derivatives of element-wise
primitives, as nodes.

A partial derivative $\\partial f / \\partial x_k$ is a number for each element, so that
one function serves forward mode (times a tangent) and reverse mode (times a cotangent).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from . import _algebra as algebra, _arrays as arrays
from ._algebra import power
from ._arrays import Value
from ._elementwise import elementwise
from ._graph import Graph
from ._scalarize import called, dtype_of, Translation


# Equations.


def run(eqn, xs) -> list:
    """Return the results of an equation on arrays."""
    out = eqn.primitive.bind(*xs, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def restricted(eqn, xs, active):
    """Return an equation as a function of its active operands, and these operands."""

    def fn(*chosen):
        own = iter(chosen)
        return run(eqn, [next(own) if on else x for x, on in zip(xs, active)])

    return fn, [x for x, on in zip(xs, active) if on]


def shapes_of(variables) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in variables]


class Derivatives:
    """Derivatives of equations; those of equal equations are made once, where their
    parameters can be compared.

    **Arguments:**

    - `make`: function of an equation and of which operands are active.
    """

    def __init__(self, make: Callable[[Any, tuple[bool, ...]], Any]):
        self._make = make
        self._known: dict[Any, Any] = {}

    def __call__(self, eqn, active: tuple[bool, ...]) -> Any:
        types = tuple((v.aval.shape, v.aval.dtype) for v in eqn.invars)
        try:
            params = tuple(sorted(eqn.params.items()))
            hash(params)
        except TypeError:
            return self._make(eqn, active)
        key = eqn.primitive, params, types, active
        if key not in self._known:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = self._make(eqn, active)
        return self._known[key]


_MOST = 512


# Smooth values.


FLAT = frozenset(
    {"stop_gradient", "floor", "ceil", "round", "sign", "nextafter", "iota", "empty"}
)
"""Primitives whose derivative is zero."""


CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "remat", "checkpoint")
"""Primitives that are mere calls."""


@functools.lru_cache(maxsize=256)
def wanted_variables(jaxpr: Jaxpr, wanted: tuple[bool, ...]) -> frozenset:
    """Return the variables on which wanted results depend smoothly."""
    pairs = zip(jaxpr.outvars, wanted, strict=True)
    found = {x for x, flag in pairs if flag and _can_vary(x)}
    for eqn in reversed(jaxpr.eqns):
        own = tuple(var in found for var in eqn.outvars)
        if not any(own) or is_flat(eqn):
            continue
        flags, inner = [True] * len(eqn.invars), _body(eqn)
        if inner is not None:
            flags = wanted_arguments(inner.jaxpr, own)
        pairs = zip(eqn.invars, flags, strict=True)
        found.update(x for x, flag in pairs if flag and _can_vary(x))
    return frozenset(found)


def wanted_arguments(jaxpr: Jaxpr, wanted: Sequence[bool]) -> list[bool]:
    """Return the arguments on which wanted results depend smoothly."""
    found = wanted_variables(jaxpr, tuple(wanted))
    return [var in found for var in jaxpr.invars]


@functools.lru_cache(maxsize=256)
def _active_results(jaxpr: Jaxpr, active: tuple[bool, ...]) -> tuple[bool, ...]:
    pairs = zip(jaxpr.invars, active, strict=True)
    on = {var for var, flag in pairs if flag and _can_vary(var)}
    for eqn in jaxpr.eqns:
        own = tuple(not isinstance(x, Literal) and x in on for x in eqn.invars)
        if not any(own) or is_flat(eqn):
            continue
        flags, inner = [True] * len(eqn.outvars), _body(eqn)
        if inner is not None:
            flags = active_results(inner.jaxpr, own)
        pairs = zip(eqn.outvars, flags, strict=True)
        on.update(var for var, flag in pairs if flag and _can_vary(var))
    return tuple(not isinstance(x, Literal) and x in on for x in jaxpr.outvars)


def active_results(jaxpr: Jaxpr, active: Sequence[bool]) -> list[bool]:
    """Return the results that depend smoothly on active arguments."""
    return list(_active_results(jaxpr, tuple(active)))


def _body(eqn) -> ClosedJaxpr | None:
    """Return the jaxpr of a mere call; None for calls with their own derivatives."""
    return called(eqn) if eqn.primitive.name in CALLS else None


def _can_vary(atom) -> bool:
    return not isinstance(atom, Literal) and is_float(atom.aval)


def is_float(aval) -> bool:
    """Return whether a value can have a tangent or cotangent."""
    return np.issubdtype(aval.dtype, np.floating)


def is_flat(eqn) -> bool:
    """Return whether no result of an equation varies smoothly."""
    if eqn.primitive.name in FLAT:
        return True
    return not any(is_float(var.aval) for var in eqn.outvars)


# Loops.


def active_arguments(
    jaxpr: Jaxpr, active: Sequence[bool], carried: slice
) -> list[bool]:
    """Return the arguments of a pass that are active, including those that are active
    only through earlier passes.

    **Arguments:**

    - `carried`: arguments that a pass hands to the next one: its first results.
    """
    active, count = list(active), carried.stop - carried.start
    while True:
        found = active_results(jaxpr, active)[:count]
        new = [a or b for a, b in zip(active[carried], found, strict=True)]
        if new == active[carried]:
            return active
        active[carried] = new


def wanted_results(jaxpr: Jaxpr, wanted: Sequence[bool], carried: slice) -> list[bool]:
    """Return the results of a pass that are needed, including those that only later
    passes need."""
    wanted, count = list(wanted), carried.stop - carried.start
    while True:
        needed = wanted_arguments(jaxpr, wanted)[carried]
        new = [a or b for a, b in zip(wanted[:count], needed, strict=True)]
        if new == wanted[:count]:
            return wanted
        wanted[:count] = new


# Tangents and cotangents.


Vectors = list[Value | None]
"""Tangents or cotangents of several values; None for zero."""


class AbstractWalk:
    """A walk over a jaxpr with tangents or cotangents.

    **Arguments:**

    - `walk`: translates the equations.
    """

    def __init__(self, walk: Translation):
        self.walk, self.graph = walk, walk.graph

    def plus(self, aval, x: Value, y: Value) -> Value:
        """Return a sum."""
        graph, dtype = self.graph, dtype_of(aval)
        add = lambda *pair: algebra.apply(graph, "add", pair, dtype)
        return elementwise(self.walk, aval.shape, dtype, (x, y), add)

    def filled(self, avals, vectors: Sequence[Value | None]) -> list[Value]:
        """Return vectors with zeros for those that are missing."""
        return [
            self.zeros(aval) if vector is None else vector
            for aval, vector in zip(avals, vectors, strict=True)
        ]

    def zeros(self, aval) -> Value:
        """Return a vector of zeros."""
        return arrays.constant(self.graph, np.zeros(aval.shape, dtype_of(aval)))


# Partial derivatives.


class Entry:
    """One element of an element-wise equation.

    - `x`: nodes of the operands; `out`: node of the result.
    """

    def __init__(self, graph: Graph, dtype: str, params, out: int, x: tuple[int, ...]):
        self.graph, self.dtype, self.params = graph, dtype, params
        self.out, self.x = out, x

    def __call__(self, op: str, *args: int) -> int:
        """Return the node of an operation on nodes."""
        return algebra.apply(self.graph, op, args, self.dtype)

    def number(self, value: float) -> int:
        """Return the node of a literal."""
        return self.graph.constant(value, self.dtype)

    def where(self, op: str, pair: tuple[int, ...], then: int, other: int) -> int:
        """Return `then` where a comparison holds, else `other`."""
        test = algebra.apply(self.graph, op, pair, "b1")
        return algebra.select(self.graph, test, other, then)


def _integer_power(e: Entry, ct: int) -> int:
    exponent = e.params["y"]
    if exponent == 0:
        return e.number(0)
    slope = power(e.graph, e.x[0], exponent - 1, e.dtype)
    return e("mul", ct, e("mul", e.number(exponent), slope))


def _extremum(k: int) -> Callable[[Entry, int], int]:
    """Return the partial derivative of a minimum or maximum, shared where both operands
    are equal."""

    def partial(e: Entry, ct: int) -> int:
        tied = e.where("eq", e.x, e("mul", e.number(0.5), ct), ct)
        return e.where("eq", (e.x[k], e.out), tied, e.number(0))

    return partial


def _inside(e: Entry, ct: int) -> int:
    low, x, high = e.x
    below = e.where("lt", (x, high), ct, e.number(0))
    return e.where("gt", (x, low), below, e.number(0))


def _quotient(e: Entry, ct: int) -> int:
    return e("neg", e("mul", e("div", ct, e.x[1]), e.out))


Partial = Callable[[Entry, int], int] | None
"""A function of an element and a factor that returns the factor times the derivative by
one operand; None where JAX must differentiate."""
_SAME: Partial = lambda e, ct: ct
PARTIALS: dict[str, tuple[Partial, ...]] = {
    "add": (_SAME, _SAME),
    "add_any": (_SAME, _SAME),
    "sub": (_SAME, lambda e, ct: e("neg", ct)),
    "mul": (lambda e, ct: e("mul", ct, e.x[1]), lambda e, ct: e("mul", ct, e.x[0])),
    "div": (lambda e, ct: e("div", ct, e.x[1]), _quotient),
    "neg": (lambda e, ct: e("neg", ct),),
    "square": (lambda e, ct: e("mul", ct, e("mul", e.number(2), e.x[0])),),
    "one_minus_square": (lambda e, ct: e("mul", ct, e("mul", e.number(-2), e.x[0])),),
    "integer_pow": (_integer_power,),
    "sqrt": (lambda e, ct: e("mul", ct, e("div", e.number(0.5), e.out)),),
    "sin": (lambda e, ct: e("mul", ct, e("cos", e.x[0])),),
    "cos": (lambda e, ct: e("neg", e("mul", ct, e("sin", e.x[0]))),),
    "exp": (lambda e, ct: e("mul", ct, e.out),),
    "log": (lambda e, ct: e("div", ct, e.x[0]),),
    "abs": (lambda e, ct: e.where("ge", (e.x[0], e.number(0)), ct, e("neg", ct)),),
    "max": (_extremum(0), _extremum(1)),
    "min": (_extremum(0), _extremum(1)),
    "clamp": (None, _inside, None),
}
