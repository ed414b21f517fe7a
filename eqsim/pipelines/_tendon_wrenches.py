"""Forces of spatial tendons on links, for sensors of interaction forces."""

from typing import Any

import jax.numpy as jnp

from ..constraint import (
    AbstractConstraint,
    RobotData,
    TendonEquality,
    TendonFriction,
    TendonInertia,
    TendonLimit,
)
from ..constraint._costs import Residual
from ..constraint._newton import ByKind
from ..constraint._tendons import coupling_tensions
from ..dynamics._servo import addresses
from ..dynamics._tendons import (
    needed_tendons,
    passive_tensions,
    tendon_frames,
)
from ..kinematics._tendons import tendon_kinematics, tendon_pulls
from ..model import System, Transmission, tree, WrapKind
from ..model._gather import accumulate, put, take
from ..sensors import AppliedWrenches
from ..spatial import Vec3
from ._forward import Prepared


def pulling_tendons(sys: System) -> tuple[bool, ...]:
    """Return true for spatial tendons that may exert forces."""
    actuators = sys.actuators
    driven = {
        target
        for kind, (target, _) in zip(actuators.transmissions, actuators.targets)
        if kind is Transmission.TENDON
    }
    return tuple(
        path[0].kind is not WrapKind.JOINT and (needed or k in driven)
        for k, (path, needed) in enumerate(zip(sys.tendons.paths, needed_tendons(sys)))
    )


def tendon_wrenches(
    prepared: Prepared, now: RobotData, forces: ByKind
) -> AppliedWrenches | None:
    """Return the forces of spatial tendons on links; None if there are none.

    **Arguments:**

    - `forces`: forces of all rows of constraints.
    """
    sys = prepared.sys
    chosen = pulling_tendons(sys)
    if not any(chosen):
        return None
    nodes, local = tree(sys), tendon_frames(sys, now.fixed)
    pulls = tendon_pulls(sys, nodes, local, now.kin, chosen)
    assert pulls is not None, "the chosen tendons are spatial"
    everything = tuple(True for _ in chosen)
    found = tendon_kinematics(sys, nodes, local, now.kin, now.q, everything)
    now = now._replace(tendons=found)
    total = _smooth_tensions(prepared, now, forces)
    settings, constants = prepared.settings, prepared.constants
    for kind, own in zip(settings.constraints, constants.constraints, strict=True):
        if type(kind) in forces:
            rows = forces[type(kind)]
            total = total + _constraint_tensions(sys, kind, own, now, rows)
    push = pulls.direction * take(total, pulls.tendons)
    join = lambda a, b: Vec3(*(jnp.concatenate(xs) for xs in zip(a, b, strict=True)))
    both = join(pulls.point, pulls.point)
    force = join(-push, push)
    return AppliedWrenches((*pulls.starts, *pulls.ends), both, force, force * 0.0)


def _smooth_tensions(prepared: Prepared, now: RobotData, forces: ByKind):
    """Compute the tensions of springs, dampers, actuators and inertia, `(ntendon,
    *batch)`."""
    sys, constants, found = prepared.sys, prepared.constants, now.tendons
    assert found is not None, "the robot has tendons"
    total = jnp.zeros_like(found.length)
    if constants.tendons is not None:
        total = total + passive_tensions(sys, constants.tendons, found, now.qd)
    actuators = sys.actuators
    driving = [
        k
        for k, kind in enumerate(actuators.transmissions)
        if kind is Transmission.TENDON
    ]
    if driving:
        outs = [addresses(actuators.structure).out[k] for k in driving]
        own = take(now.drive.force, outs) * take(actuators.gear, outs)[:, 0]
        targets = [actuators.targets[k][0] for k in driving]
        total = total + accumulate(own, targets, sys.ntendon)
    heavy = [k for k, has in enumerate(sys.tendons.has_armature) if has]
    if heavy:
        total = total + put(forces[TendonInertia][0][0], heavy, sys.ntendon)
    return total


def _constraint_tensions(
    sys: System,
    kind: AbstractConstraint,
    constants: Any,
    now: RobotData,
    rows: tuple[Residual, ...],
):
    """Compute the tensions of one kind of constraint, `(ntendon, *batch)`, or zero."""
    tendons, count = sys.tendons, sys.ntendon
    if isinstance(kind, TendonLimit):
        limited = [k for k, mark in enumerate(tendons.limited) if mark]
        return put(rows[0][0] - rows[1][0], limited, count)
    if isinstance(kind, TendonFriction):
        with_friction = [k for k, mark in enumerate(tendons.has_friction) if mark]
        return put(rows[0][0], with_friction, count)
    if isinstance(kind, TendonEquality):
        return coupling_tensions(sys, constants, now, rows[0][0])
    return 0.0
