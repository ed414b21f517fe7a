"""Equations as functions of arrays, for JAX to differentiate."""

from collections.abc import Callable
from typing import Any

import jax


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
