"""Values that vary smoothly, and those of them that matter."""

import functools
from collections.abc import Sequence

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ._scalarize import called


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
