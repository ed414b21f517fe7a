r"""Constraints of tendons: limits of their lengths, dry friction, and couplings, where the
length of a tendon is a polynomial of another one's; and their inertia.

An armature $a$ of a tendon adds $a J^T J$ to the joint-space inertia and $a J^T \dot J
\dot q$ to the bias forces. To the solver this is a row with residual $J \ddot q + \dot J
\dot q$ and weight $a$; it is no constraint, so its force is not reported as one.

Source: MuJoCo documentation, *Computation*, "Limits", "Friction loss" and "Equality";
`mj_instantiateLimit`, `mj_instantiateFriction`, `mj_instantiateEquality`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._passive import tendon_armature
from ..dynamics._tendons import moving_armature, reference_lengths
from ..dynamics._weights import InverseWeights
from ..kinematics._tendons import jacobian_rate, tendon_dofs
from ..model import EqualityKind, System, tree
from ..model._gather import accumulate, take, take_or_zero
from ._constraint import AbstractConstraint, RobotData
from ._costs import (
    columns,
    has_effect,
    Huber,
    impedance,
    OneSided,
    Softness,
    softness,
    stiffness_weight,
    TwoSided,
)
from ._equalities import equality_constants, EqualityConstants, select
from ._joints import coupled, coupling, friction_constants, partners
from ._rows import AbstractRows, Rows, sparse_jacobian


# Limits.


class _LimitConstants(NamedTuple):
    soft: Softness
    weight: Any


class TendonLimit(AbstractConstraint):
    """Lower and upper limits of tendons."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        limited, tendons = _limited(sys), sys.tendons
        if not limited:
            return None
        values = columns(tendons.limit_solref, 2), columns(tendons.limit_solimp, 5)
        solref, solimp, weight = take((*values, weights.tendon), limited)
        return _LimitConstants(
            softness(solref, solimp, sys.dt[None], sys.safe_solref), weight
        )

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        assert now.tendons is not None, "a robot with limited tendons has tendons"
        values = now.tendons, sys.tendons.range, sys.tendons.limit_margin
        (length, jac), range_, margin = take(values, _limited(sys))
        dofs = [tendon_dofs(sys)[k] for k in _limited(sys)]
        rate = jnp.sum(jac * now.qd[None], axis=1)
        acts = has_effect(jac, constants.weight)
        soft, rows = constants.soft, []
        for gap, sign in ((length - range_[:, 0], 1.0), (range_[:, 1] - length, -1.0)):
            violation = gap - margin
            imp = impedance(soft, violation)
            weight = stiffness_weight(imp, constants.weight)
            cost = OneSided(jnp.where(acts & (violation < 0.0), weight, 0.0))
            offset = soft.b * sign * rate + soft.k * imp * violation
            rows.append(Rows(sparse_jacobian(jac * sign, dofs), cost, (offset,)))
        return tuple(rows)


def _limited(sys: System) -> tuple[int, ...]:
    return tuple(k for k, limited in enumerate(sys.tendons.limited) if limited)


# Dry friction.


class TendonFriction(AbstractConstraint):
    """Dry friction of tendons (MJCF: `frictionloss`)."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        tendons, chosen = sys.tendons, _with_friction(sys)
        if not chosen:
            return None
        values = tendons.friction_solref, tendons.friction_solimp, weights.tendon
        return friction_constants(sys, *take((*values, tendons.frictionloss), chosen))

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        assert now.tendons is not None, "a robot with friction of tendons has tendons"
        jac = take(now.tendons.jac, _with_friction(sys))
        offset = constants.damping * jnp.sum(jac * now.qd[None], axis=1)
        cost = Huber(constants.weight, constants.largest)
        jacobian = sparse_jacobian(
            jac, [tendon_dofs(sys)[k] for k in _with_friction(sys)]
        )
        return (Rows(jacobian, cost, (offset,)),)


def _with_friction(sys: System) -> tuple[int, ...]:
    return tuple(k for k, has in enumerate(sys.tendons.has_friction) if has)


# Couplings.


class _CouplingConstants(NamedTuple):
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
        return _CouplingConstants(shared, reference_lengths(sys))

    def rows(
        self, sys: System, constants: Any, now: RobotData
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


def coupling_tensions(sys: System, constants: Any, now: RobotData, force):
    """Compute the tensions of all tendons, `(ntendon, *batch)`, that couplings exert with
    row forces `(n, *batch)`."""
    assert now.tendons is not None, "a robot with coupled tendons has tendons"
    which = select(sys, EqualityKind.TENDON)
    apart = now.tendons.length - constants.lengths
    first, second = (partners(sys, which, side) for side in (0, 1))
    _, slope = coupling(sys, which, take_or_zero(apart, second))
    one = accumulate(force, first, sys.ntendon)
    return one - accumulate(force * slope, second, sys.ntendon)


# Inertia.


class TendonInertia:
    """Key of the rows of tendon inertia in `Problem.rows`. They are no constraint."""


def tendon_inertia_rows(sys: System, now: RobotData) -> tuple[Rows, ...]:
    """Return the rows of the tendons with armature."""
    chosen = [k for k, has in enumerate(sys.tendons.has_armature) if has]
    if not chosen:
        return ()
    assert now.tendons is not None, "a robot with inertia of tendons has tendons"
    jac, armature = take((now.tendons.jac, tendon_armature(sys)), chosen)
    weight = armature + jnp.zeros_like(jac[:, 0])
    offset, moves = jnp.zeros_like(weight), moving_armature(sys)
    if any(moves):
        rate = jacobian_rate(sys, tree(sys), now.fixed, now.q, now.qd, moves)
        offset = take(rate, chosen)
    jacobian = sparse_jacobian(jac, [tendon_dofs(sys)[k] for k in chosen])
    return (Rows(jacobian, TwoSided(weight), (offset,)),)
