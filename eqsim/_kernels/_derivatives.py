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

from . import _arrays as arrays
from ._arrays import Value
from ._jax_primitives import elementwise
from ._operations import apply, FLAT, PARTIALS
from ._translation import called, dtype_of, Translation


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


_CONSTANT = frozenset({"stop_gradient", "iota", "empty"})
"""Primitives whose derivative is zero, beside element-wise ones."""
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
    name = eqn.primitive.name
    if name in _CONSTANT or PARTIALS.get(name) == FLAT:
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
        add = lambda *pair: apply(graph, "add", pair, dtype)
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
