"""Reverse mode: the vector-Jacobian product of a jaxpr, straight into the lane graph.

Each equation is translated once, and its rule returns how cotangents of its results
become cotangents of its operands; these functions run in reverse order. JAX would trace
and transpose every equation on its own, which takes longer than all that follows.

An operand is *active* if it depends on what is differentiated. The cotangent of what is
not active, or of what no result needs, is None. An equation without a rule here is
linearized by JAX (`_reverse_calls.py`).
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from . import _algebra as algebra, _arrays as arrays
from ._arrays import Value
from ._elementwise import elementwise
from ._reverse_passes import Passes
from ._scalarize import dtype_of, Translation
from ._smooth import is_flat, is_float, wanted_variables
from ._vectors import AbstractWalk, Vectors


Cotangents = Vectors
Pull = Callable[[Cotangents], Cotangents]
"""From cotangents of all results to cotangents of all operands."""

REVERSE: dict[str, Callable[..., tuple[list[Value], Pull] | None]] = {}


def reverse_rule(*names: str):
    """Register the reverse mode of primitives: a function `(reverse, eqn, operands,
    active, wanted) -> results, pull`, or None where JAX must linearize the equation."""

    def register(function):
        for name in names:
            REVERSE[name] = function
        return function

    return register


class Reverse(AbstractWalk):
    """One walk over a jaxpr, forward and backward.

    **Arguments:**

    - `walk`: translates the equations.
    - `by_jax`: the rule for equations that have none.

    **Attributes:**

    - `loops`: number of loops around what is translated, to which passes go back.
    - `passes`: values of the pass that pull-backs go back through; None outside loops.
    - `at_zero`: true if what is translated is linear in the active arguments, which are
        zero.
    """

    def __init__(self, walk: Translation, by_jax: Callable[..., Any]):
        AbstractWalk.__init__(self, walk)
        self.by_jax = by_jax
        self.passes: Passes | None = None
        self.loops = 0
        self.at_zero = False

    def closed(
        self,
        closed: ClosedJaxpr,
        args: list[Value],
        active: Sequence[bool],
        wanted: Sequence[bool] | None = None,
    ) -> tuple[list[Value], list[bool], Pull]:
        """Return the results of a jaxpr, flags of the active ones, and their pull-back.

        **Arguments:**

        - `active`: true for arguments to differentiate by.
        - `wanted`: results that may have cotangents; None for all floats.
        """
        jaxpr, consts = closed.jaxpr, closed.consts
        if wanted is None:
            wanted = [True] * len(jaxpr.outvars)
        env: dict[Any, Value] = {}
        on = {var for var, flag in zip(jaxpr.invars, active, strict=True) if flag}
        wants = wanted_variables(jaxpr, tuple(wanted))
        tape: list[tuple[Any, Pull]] = []

        def read(atom) -> Value:
            if isinstance(atom, Literal):
                return self.walk.constant(np.asarray(atom.val, dtype_of(atom.aval)))
            return env[atom]

        is_on = lambda atom: not isinstance(atom, Literal) and atom in on
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            env[var] = self.walk.constant(const)
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            flags = [is_on(atom) for atom in eqn.invars]
            own = [var in wants for var in eqn.outvars]
            if not any(flags) or not any(own) or is_flat(eqn):
                results = self.walk.apply(eqn, operands)
            else:
                results, pull = self._equation(eqn, operands, flags, own)
                on.update(var for var in eqn.outvars if is_float(var.aval))
                tape.append((eqn, pull))
            if self.loops:
                # Passes can go back to arrays in memory only.
                results = [arrays.materialized(self.graph, x) for x in results]
            env.update(zip(eqn.outvars, results, strict=True))
        outs = [read(atom) for atom in jaxpr.outvars]
        pull = lambda cotangents: self._pull(jaxpr, tape, on, cotangents)
        return outs, [is_on(atom) for atom in jaxpr.outvars], pull

    def linear(
        self, closed: ClosedJaxpr, args: list[Value], active: Sequence[bool]
    ) -> Pull:
        """Return the pull-back of a jaxpr that is linear in its active arguments, which
        are zero."""
        outer, self.at_zero = self.at_zero, True
        try:
            return self.closed(closed, args, active)[2]
        finally:
            self.at_zero = outer

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Translate what is pulled back through in the same pass of a loop."""
        outer = self.passes, self.loops, self.at_zero
        self.passes, self.loops, self.at_zero = None, 0, False
        try:
            yield
        finally:
            self.passes, self.loops, self.at_zero = outer

    def _equation(self, eqn, operands, flags, wanted) -> tuple[list[Value], Pull]:
        rule, args = REVERSE.get(eqn.primitive.name), (eqn, operands, flags, wanted)
        found = None if rule is None else rule(self, *args)
        return self.by_jax(self, *args) if found is None else found

    def _pull(self, jaxpr: Jaxpr, tape, on, cotangents: Cotangents) -> Cotangents:
        found: dict[Any, Value] = {}

        def add(atom, cotangent: Value | None) -> None:
            if cotangent is not None and not isinstance(atom, Literal) and atom in on:
                old = found.get(atom)
                found[atom] = (
                    cotangent if old is None else self.plus(atom.aval, old, cotangent)
                )

        for atom, cotangent in zip(jaxpr.outvars, cotangents, strict=True):
            add(atom, cotangent)
        for eqn, pull in reversed(tape):
            given = [found.pop(var, None) for var in eqn.outvars]
            if all(cotangent is None for cotangent in given):
                continue
            for atom, cotangent in zip(eqn.invars, pull(given), strict=True):
                add(atom, cotangent)
        return [found.get(var) for var in jaxpr.invars]

    def minus(self, aval, x: Value) -> Value:
        """Return a cotangent with the opposite sign."""
        graph, dtype = self.graph, dtype_of(aval)
        turn = lambda node: algebra.apply(graph, "neg", (node,), dtype)
        return elementwise(self.walk, aval.shape, dtype, (x,), turn)

    def kept(self, values: Sequence[Value]) -> list[Value]:
        """Return values of the forward walk for use in a pull-back. In a loop that runs
        backward through the passes of another loop, these are not the same nodes."""
        if self.passes is None:
            return list(values)
        return [self.passes.value(value) for value in values]
