"""Constraints of joints and tendons: limits, dry friction, couplings, and the inertia of
tendons.

Source: MuJoCo documentation, *Computation*, "Constraint model", "Friction loss" and
"Equality"; `mj_instantiateLimit`, `mj_instantiateFriction`, `mj_instantiateEquality`.
"""

import functools as ft
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics.passive import tendon_armature
from ..dynamics.tendon_forces import moving_armature, reference_lengths
from ..dynamics.weights import InverseWeights
from ..kinematics.tendon_paths import jacobian_rate, tendon_dofs
from ..model import EqualityKind, JointKind, System, tree
from ..model.arrays import accumulate, put, take, take_or_zero
from ..spatial import logarithm, Vec3
from ..spatial.clamps import at_least
from ..spatial.rotations import normalize4, zero_length
from .costs import (
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
from .equalities import (
    equality_constants,
    equality_rows,
    EqualityConstants,
    select,
    Violation,
)
from .record import AbstractConstraint, RobotData
from .rows import AbstractRows, DofJacobian, Rows, sparse_jacobian


# Limits.


class LimitedJoints(NamedTuple):
    """Joints with limits, and where their coordinates and degrees of freedom start."""

    joints: tuple[int, ...]
    coordinates: tuple[int, ...]
    dofs: tuple[int, ...]


def limited_joints(sys: System) -> LimitedJoints:
    """Return the limited hinges and slides."""
    kinds = (JointKind.REVOLUTE, JointKind.PRISMATIC)
    return _limited_joints(sys.joints.kinds, sys.joints.limited, kinds)


def limited_balls(sys: System) -> LimitedJoints:
    """Return the limited spherical joints."""
    return _limited_joints(sys.joints.kinds, sys.joints.limited, (JointKind.SPHERICAL,))


@ft.lru_cache(maxsize=256)
def _limited_joints(
    kinds: tuple[JointKind, ...],
    limited: tuple[bool, ...],
    which: tuple[JointKind, ...],
) -> LimitedJoints:
    found, q, dof = [], 0, 0
    for joint, kind in enumerate(kinds):
        if limited[joint] and kind in which:
            found.append((joint, q, dof))
        q, dof = q + kind.nq, dof + kind.nv
    return LimitedJoints(*(tuple(entry[k] for entry in found) for k in range(3)))


class _LimitConstants(NamedTuple):
    soft: Softness
    weight: Any


def _constants(sys: System, weights: InverseWeights, limited: LimitedJoints):
    joints = sys.joints
    values = columns(joints.limit_solref, 2), columns(joints.limit_solimp, 5)
    solref, solimp = take(values, limited.joints)
    soft = softness(solref, solimp, sys.dt[None], sys.safe_solref)
    return _LimitConstants(soft, take(weights.dof, limited.dofs))


class JointLimit(AbstractConstraint):
    """Limits of hinges and slides."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        limited = limited_joints(sys)
        return _constants(sys, weights, limited) if limited.joints else None

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        limited = limited_joints(sys)
        low, high, margin = _ranges(sys, limited)
        position = take(now.q, limited.coordinates)
        rate = take(now.qd, limited.dofs)
        below, above = position - low - margin, high - position - margin
        return (
            _row(constants, DofJacobian(limited.dofs), below, rate),
            _row(constants, DofJacobian(limited.dofs, -1.0), above, -rate),
        )


class BallLimit(AbstractConstraint):
    """Limits of the angles of spherical joints."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        limited = limited_balls(sys)
        return _constants(sys, weights, limited) if limited.joints else None

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        balls = limited_balls(sys)
        axis, angle = ball_rotations(sys, balls.joints, now.q)
        spin = Vec3(*(take(now.qd, [dof + k for dof in balls.dofs]) for k in range(3)))
        low, high, margin = _ranges(sys, balls)
        violation = at_least(low, high) - angle - margin
        dofs = [(dof, dof + 1, dof + 2) for dof in balls.dofs]
        jacobian = sparse_jacobian(_ball_jacobian(sys, balls, axis), dofs)
        return (_row(constants, jacobian, violation, -axis.dot(spin)),)


def _ranges(sys: System, limited: LimitedJoints):
    joints = sys.joints
    values = joints.range[:, 0], joints.range[:, 1], joints.limit_margin
    return take(values, limited.joints)


def _row(constants: _LimitConstants, jacobian, violation, rate) -> Rows:
    """Return the row of a limit, given the violation, negative beyond the limit, and the
    rate at which it grows."""
    soft = constants.soft
    imp = impedance(soft, violation)
    weight = stiffness_weight(imp, constants.weight)
    weight = jnp.where(violation < 0.0, weight, 0.0)
    offset = soft.b * rate + soft.k * imp * violation
    return Rows(jacobian, OneSided(weight), (offset,))


def ball_rotations(sys: System, balls: Sequence[int], q) -> tuple[Vec3, Any]:
    """Compute axes, in the child links, and angles of the rotations of spherical joints;
    both are zero, with derivative zero, at no rotation."""
    quat = [take(q, [sys.joints.q_starts[j] + k for j in balls]) for k in range(4)]
    rotation = logarithm(normalize4(quat))
    square = rotation.dot(rotation)
    rest = square < max(1e-10, zero_length(square.dtype)) ** 2
    angle = jnp.where(rest, 0.0, jnp.sqrt(jnp.where(rest, 1.0, square)))
    return rotation * jnp.where(rest, 0.0, 1.0 / jnp.where(rest, 1.0, angle)), angle


def _ball_jacobian(sys: System, balls: LimitedJoints, axis: Vec3):
    """Return the Jacobian of the angles' distance from their limits, `(n, nv, *batch)`."""
    dofs, nv = balls.dofs, sys.nv
    index = [k * nv + dof + i for i in range(3) for k, dof in enumerate(dofs)]
    entries = put(-jnp.concatenate(axis), index, len(dofs) * nv)
    return entries.reshape(len(dofs), nv, *entries.shape[1:])


# Dry friction.


class FrictionConstants(NamedTuple):
    """Damping of the reference acceleration, weight and largest force of each row."""

    damping: Any
    weight: Any
    largest: Any


def friction_constants(
    sys: System, solref, solimp, inverse_weight, largest
) -> FrictionConstants:
    """Compute the constants of dry friction, whose impedance does not depend on the
    state."""
    soft = softness(
        columns(solref, 2), columns(solimp, 5), sys.dt[None], sys.safe_solref
    )
    imp = impedance(soft, jnp.zeros_like(soft.b))
    return FrictionConstants(soft.b, stiffness_weight(imp, inverse_weight), largest)


class JointFriction(AbstractConstraint):
    """Dry friction of joints (MJCF: `frictionloss`)."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        joints, dofs = sys.joints, _friction_dofs(sys)
        if not dofs:
            return None
        values = joints.friction_solref, joints.friction_solimp, weights.dof
        return friction_constants(sys, *take((*values, joints.frictionloss), dofs))

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        dofs = _friction_dofs(sys)
        offset = constants.damping * take(now.qd, dofs)
        cost = Huber(constants.weight, constants.largest)
        return (Rows(DofJacobian(dofs), cost, (offset,)),)


def _friction_dofs(sys: System) -> tuple[int, ...]:
    return tuple(dof for dof, has in enumerate(sys.joints.has_friction) if has)


# Couplings.


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
        self, sys: System, constants: Any, now: RobotData
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


# Limits.


class TendonLimit(AbstractConstraint):
    """Lower and upper limits of tendons."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        limited, tendons = _limited_tendons(sys), sys.tendons
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
        (length, jac), range_, margin = take(values, _limited_tendons(sys))
        dofs = [tendon_dofs(sys)[k] for k in _limited_tendons(sys)]
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


def _limited_tendons(sys: System) -> tuple[int, ...]:
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
