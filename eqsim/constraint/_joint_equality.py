"""Joint coupling: the position of a joint is a polynomial of another one's.

Source: MuJoCo documentation, *Computation*, "Equality"; `mj_instantiateEquality`.
"""

from collections.abc import Collection, Sequence
from typing import Any

import jax.numpy as jnp

from ..dynamics._weights import InverseWeights
from ..model import EqualityKind, System
from ..model._gather import put, take, take_or_zero
from ._anchors import select
from ._constraint import AbstractConstraint, Moment
from ._equality import equality_constants, equality_rows, Violation
from ._rows import AbstractRows, Rows


class JointEquality(AbstractConstraint):
    """Positions of hinges and slides that are coupled."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        which = select(sys, EqualityKind.JOINT)
        if not which:
            return None
        first, second = _dofs(sys, which)
        weight = take(weights.dof, first) + take_or_zero(weights.dof, second)
        return equality_constants(sys, which, (weight,))

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        which = select(sys, EqualityKind.JOINT)
        place = sys.joints.q_starts
        apart = now.q - sys.joints.ref
        at = lambda values, side, starts: take_or_zero(
            values, [starts[j] if j >= 0 else -1 for j in partners(sys, which, side)]
        )
        first, second = (at(apart, side, place) for side in (0, 1))
        starts = sys.joints.v_starts
        rates = [at(now.qd, side, starts) for side in (0, 1)]
        jacobians = [_unit_rows(dofs, sys.nv, now.q) for dofs in _dofs(sys, which)]
        pairs = zip(*_dofs(sys, which), strict=True)
        dofs = [tuple({dof for dof in pair if dof >= 0}) for pair in pairs]
        ends = first, second
        return (coupled(sys, which, constants, ends, rates, jacobians, dofs),)


def coupled(
    sys: System,
    which: tuple[int, ...],
    constants: Any,
    ends: tuple[Any, Any],
    rates,
    jacobians,
    dofs: Sequence[Collection[int]],
) -> Rows:
    """Return the rows of a polynomial coupling.

    **Arguments:**

    - `ends`: distances of the two positions from their references.
    - `rates`: their rates.
    - `jacobians`: their Jacobians, `(n, nv, *batch)`; zero where there is no second.
    - `dofs`: the degrees of freedom on which each coupling can act.
    """
    first, second = ends
    value, slope = coupling(sys, which, second)
    violation = first - value
    jacobian = jacobians[0] - slope[:, None] * jacobians[1]
    rate = rates[0] - slope * rates[1]
    still = jnp.zeros_like(rate)
    parts = Violation((jacobian,), (violation,), (rate,), (still,))
    return equality_rows(constants, parts, violation, dofs)


def coupling(sys: System, which: tuple[int, ...], second) -> tuple[Any, Any]:
    """Return the polynomials of couplings and their slopes, given the distances of the
    second positions from their references."""
    c = [take(sys.equalities.coefficients[:, k], which) for k in range(5)]
    alone = [other < 0 for other in partners(sys, which, 1)]
    exists = jnp.asarray([0.0 if lone else 1.0 for lone in alone], second.dtype)
    x = second * exists.reshape(-1, *(1 for _ in second.shape[1:]))
    value = c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])))
    return value, c[1] + x * (2 * c[2] + x * (3 * c[3] + x * 4 * c[4]))


def partners(sys: System, which: tuple[int, ...], side: int) -> tuple[int, ...]:
    """Return the first or the second objects of equality constraints; -1: none."""
    return tuple(sys.equalities.objects[k][side] for k in which)


def _dofs(sys: System, which: tuple[int, ...]) -> list[tuple[int, ...]]:
    starts = sys.joints.v_starts
    return [
        tuple(starts[j] if j >= 0 else -1 for j in partners(sys, which, side))
        for side in (0, 1)
    ]


def _unit_rows(dofs: tuple[int, ...], nv: int, like):
    """Return rows with a one at each degree of freedom (-1: zeros), `(n, nv, *batch)`."""
    one = jnp.ones((len(dofs), *(1 for _ in like.shape[1:])), like.dtype)
    index = [k * nv + dof if dof >= 0 else -1 for k, dof in enumerate(dofs)]
    kept = [k for k, place in enumerate(index) if place >= 0]
    entries = put(take(one, kept), [index[k] for k in kept], len(dofs) * nv)
    return entries.reshape(len(dofs), nv, *one.shape[1:])
