"""Forward mode: the Jacobian-vector product of a jaxpr, straight into the lane graph.

Each equation is translated with its tangents, in one walk. Linear primitives are
applied to tangents directly; element-wise primitives have partial derivatives (`_partials.py`); an
equation without a rule is differentiated by JAX.

The tangent of a value is None if it does not depend on the differentiated arguments, or if
no result needs it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from ._arrays import Value
from ._equations import Derivatives, restricted, shapes_of
from ._scalarize import dtype_of
from ._smooth import is_flat, is_float, wanted_variables
from ._vectors import AbstractWalk, Vectors


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
                results = self.walk.apply(eqn, operands)
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
