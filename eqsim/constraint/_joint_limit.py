r"""Limits of hinges, slides and spherical joints.

Source: MuJoCo documentation, *Computation*, "Constraint model"; `mj_instantiateLimit`.
"""

import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._weights import InverseWeights
from ..model import JointKind, System
from ..model._gather import put, take
from ..spatial import logarithm, Vec3
from ..spatial._rotation import normalize4, zero_length
from ._constraint import AbstractConstraint, Moment
from ._costs import OneSided
from ._jacobians import DofJacobian, sparse_jacobian
from ._rows import AbstractRows, Rows
from ._softness import columns, impedance, Softness, softness, stiffness_weight


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
        self, sys: System, constants: Any, now: Moment
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
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        balls = limited_balls(sys)
        axis, angle = ball_rotations(sys, balls.joints, now.q)
        spin = Vec3(*(take(now.qd, [dof + k for dof in balls.dofs]) for k in range(3)))
        low, high, margin = _ranges(sys, balls)
        violation = jnp.maximum(low, high) - angle - margin
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
