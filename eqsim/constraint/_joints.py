r"""Constraints of joints: limits of hinges, slides and spherical joints, dry friction, and
couplings, where the position of a joint is a polynomial of another one's.

Source: MuJoCo documentation, *Computation*, "Constraint model", "Friction loss" and
"Equality"; `mj_instantiateLimit`, `mj_instantiateFriction`, `mj_instantiateEquality`.
"""

import functools as ft
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._weights import InverseWeights
from ..model import EqualityKind, JointKind, System
from ..model._gather import put, take, take_or_zero
from ..spatial import at_least, logarithm, Vec3
from ..spatial._rotation import normalize4, zero_length
from ._constraint import AbstractConstraint, RobotData
from ._costs import (
    columns,
    Huber,
    impedance,
    OneSided,
    Softness,
    softness,
    stiffness_weight,
)
from ._equalities import equality_constants, equality_rows, select, Violation
from ._rows import AbstractRows, DofJacobian, Rows, sparse_jacobian


# Limits.


class LimitedJoints(NamedTuple):
    """Joints with limits, and where their coordinates and degrees of freedom start."""

    joints: tuple[int, ...]
    coordinates: tuple[int, ...]
    dofs: tuple[int, ...]


def limited_joints(sys: System) -> LimitedJoints:
    """Return the limited hinges and slides."""
    kinds = (JointKind.REVOLUTE, JointKind.PRISMATIC)
    return _limited(sys.joints.kinds, sys.joints.limited, kinds)


def limited_balls(sys: System) -> LimitedJoints:
    """Return the limited spherical joints."""
    return _limited(sys.joints.kinds, sys.joints.limited, (JointKind.SPHERICAL,))


@ft.lru_cache(maxsize=256)
def _limited(
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
        return (_row(constants, jacobian, violation, -(axis | spin)),)


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
    square = rotation | rotation
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
