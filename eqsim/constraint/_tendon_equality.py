"""Tendon coupling: the length of a tendon is a polynomial of another one's.

Source: MuJoCo documentation, *Computation*, "Equality"; `mj_instantiateEquality`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._tendons import reference_lengths
from ..dynamics._weights import InverseWeights
from ..kinematics._tendon_paths import tendon_dofs
from ..model import EqualityKind, System
from ..model._gather import accumulate, take, take_or_zero
from ._anchors import select
from ._constraint import AbstractConstraint, Moment
from ._equality import equality_constants, EqualityConstants
from ._joint_equality import coupled, coupling, partners
from ._rows import AbstractRows
from ._softness import has_effect


class _Constants(NamedTuple):
    shared: EqualityConstants
    lengths: Any


class TendonEquality(AbstractConstraint):
    """Lengths of tendons that are coupled."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        which = select(sys, EqualityKind.TENDON)
        if not which:
            return None
        first, second = (partners(sys, which, side) for side in (0, 1))
        weight = take(weights.tendon, first) + take_or_zero(weights.tendon, second)
        shared = equality_constants(sys, which, (weight,))
        return _Constants(shared, reference_lengths(sys))

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        assert now.tendons is not None, "a robot with coupled tendons has tendons"
        which = select(sys, EqualityKind.TENDON)
        apart = now.tendons.length - constants.lengths
        ends = [partners(sys, which, side) for side in (0, 1)]
        distances = take_or_zero(apart, ends[0]), take_or_zero(apart, ends[1])
        jacobians = [take_or_zero(now.tendons.jac, end) for end in ends]
        rates = [jnp.sum(jac * now.qd[None], axis=1) for jac in jacobians]
        shared = constants.shared
        acts = has_effect(jnp.concatenate(jacobians, axis=1), shared.weights[0])
        shared = shared._replace(active=jnp.where(acts, shared.active, 0.0))
        acts_on = tendon_dofs(sys)
        dofs = [
            {dof for k in pair if k >= 0 for dof in acts_on[k]}
            for pair in zip(*ends, strict=True)
        ]
        return (coupled(sys, which, shared, distances, rates, jacobians, dofs),)


def coupling_tensions(sys: System, constants: Any, now: Moment, force):
    """Compute the tensions of all tendons, `(ntendon, *batch)`, that couplings exert with
    row forces `(n, *batch)`."""
    assert now.tendons is not None, "a robot with coupled tendons has tendons"
    which = select(sys, EqualityKind.TENDON)
    apart = now.tendons.length - constants.lengths
    first, second = (partners(sys, which, side) for side in (0, 1))
    _, slope = coupling(sys, which, take_or_zero(apart, second))
    one = accumulate(force, first, sys.ntendon)
    return one - accumulate(force * slope, second, sys.ntendon)
