"""Reports of `Generalized`: contacts with forces, forces of tendons on links, and
sensors.
"""

from typing import Any

import jax.numpy as jnp

from ..collision.plan import split_plan
from ..constraint import (
    AbstractConstraint,
    BallLimit,
    Connect,
    Contact,
    JointLimit,
    RobotData,
    TendonEquality,
    TendonFriction,
    TendonLimit,
    Weld,
)
from ..constraint.contact import (
    contact_report,
    contact_wrenches_in_world,
    ContactReport,
    DensePoints,
    report_facts,
    ReportedContacts,
)
from ..constraint.contact_rows import with_world
from ..constraint.costs import Residual
from ..constraint.equalities import both_ends, end_links, select_movable, weld_torques
from ..constraint.joint_rows import coupling_tensions, TendonInertia
from ..constraint.listed_contacts import ListedContacts
from ..constraint.newton import ByKind, node_motion
from ..dynamics.actuator_slots import addresses
from ..dynamics.tendon_forces import needed_tendons, passive_tensions, tendon_frames
from ..kinematics.frames import tree_centers
from ..kinematics.link_motion import link_poses
from ..kinematics.tendon_paths import tendon_kinematics, tendon_pulls
from ..model import EqualityKind, SensorKind, System, Transmission, tree, WrapKind
from ..model.arrays import accumulate, concatenate, put, take, take_or_zero
from ..sensors.sensor_inputs import (
    AppliedWrenches,
    LimitForces,
    SensorInputs,
    SolvedForces,
)
from ..sensors.sensor_values import (
    needs_actuators,
    needs_contacts,
    needs_solution,
    sensor_values,
)
from ..spatial import Force, Vec3
from ..spatial.vectors import force_at, vec3
from .forward_dynamics import (
    actuators,
    contact_constants,
    forward_dynamics,
    positions_and_velocities,
    Prepared,
    solved_forces,
    StepInputs,
)


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


def reported_contacts(
    prepared: Prepared, now: RobotData, forces: ByKind, size: int
) -> ContactReport | None:
    """Return the deepest contacts, with their forces at the solution; None if no shapes
    can touch.

    **Arguments:**

    - `forces`: forces of all rows of constraints.
    - `size`: number of rows of the report.
    """
    sys, rows = prepared.sys, _of_contacts(now.problem.rows)
    if not size or not rows:
        return None
    motion = node_motion(tree(sys), now.kin, now.solution.qdd)
    motion = with_world(motion, now.solution.qdd.shape[1:])
    listed = tuple(each for each in rows if isinstance(each, ListedContacts))
    dense = _dense_points(prepared, now, forces)
    given = ReportedContacts(dense, listed, motion)
    return contact_report(report_facts(sys, size), given)


def _of_contacts(by_kind: ByKind) -> tuple:
    """Return the entries of contacts, also those of subclasses."""
    kinds = (kind for kind in by_kind if issubclass(kind, Contact))
    return tuple(entry for kind in kinds for entry in by_kind[kind])


def _dense_points(
    prepared: Prepared, now: RobotData, forces: ByKind
) -> DensePoints | None:
    """Return the points that are always computed; None if there are none."""
    sys, own = prepared.sys, contact_constants(prepared)
    plan = split_plan(sys)[0]
    if not plan.size:
        return None
    points, parameters = now.points, own.parameters
    assert points is not None and parameters is not None, "a plan with pairs has points"
    rows, forces_on_rows = map(_of_contacts, (now.problem.rows, forces))
    wrenches = contact_wrenches_in_world(sys, plan, rows, forces_on_rows)
    begun = parameters.begin(points.dist, now.onset_width)
    return DensePoints(points, begun.exists & points.valid, *wrenches)


def summed_wrenches(prepared: Prepared, now: RobotData, forces: ByKind) -> Force:
    """Sum the forces of all contacts on each link, about the center of mass of its tree,
    `(nlink, *batch)`.

    **Arguments:**

    - `forces`: forces of all rows of constraints.
    """
    sys, like = prepared.sys, now.solution.qdd
    nodes, rows = tree(sys), _of_contacts(now.problem.rows)
    zero = jnp.zeros((sys.nlink, *like.shape[1:]), like.dtype)
    total = Force(*2 * (Vec3(zero, zero, zero),))
    if not rows:
        return total
    centers = tree_centers(sys, nodes, now.fixed, now.kin)
    dense = _dense_points(prepared, now, forces)
    if dense is not None:
        total = total + _dense_wrenches(sys, dense, centers)
    origins = take_or_zero(now.kin.origin, nodes.link_nodes)
    for each, force in zip(rows, _of_contacts(forces), strict=True):
        if isinstance(each, ListedContacts):
            ang, lin = take(force[0], range(sys.nlink))
            total = total + Force(ang - (centers - origins).cross(lin), lin)
    return total


def _dense_wrenches(sys: System, dense: DensePoints, centers) -> Force:
    plan, parts, links = split_plan(sys)[0], [], []
    for side, sign in ((0, -1.0), (1, 1.0)):
        own = [sys.geoms.links[plan.pairs[pair][side]] for pair in plan.point_pairs]
        moved = [k for k, link in enumerate(own) if link >= 0]
        on = [own[k] for k in moved]
        pos, push, twist = take((dense.points.pos, dense.force, dense.torque), moved)
        part = force_at(pos - take(centers, on), push * sign)
        parts.append(Force(part.ang + twist * sign, part.lin))
        links += on
    return accumulate(concatenate(parts), links, sys.nlink)


def measure(prepared: Prepared, inputs: StepInputs, size: int, time):
    """Compute the values of all sensors at a state.

    The equations of motion are solved once, and only if a sensor uses their solution.

    **Arguments:**

    - `size`: largest number of contacts that sensors read.
    - `time`: time, s, `(*batch)`.
    """
    sys, solved = prepared.sys, None
    if needs_solution(sys) or _acts_on_contacts(sys):
        now = forward_dynamics(prepared, inputs)
        solved = _solved_forces(prepared, now, size, inputs.external)
    else:
        now = positions_and_velocities(prepared, inputs.q, inputs.qd, inputs.act)
        if needs_actuators(sys):
            now = now._replace(drive=actuators(prepared, now, inputs.ctrl))
    return sensor_values(sys, SensorInputs(now, time, solved))


def _acts_on_contacts(sys: System) -> bool:
    """Test if a sensor uses actuators that act through contacts."""
    return needs_actuators(sys) and Transmission.BODY in sys.actuators.transmissions


def _solved_forces(
    prepared: Prepared, now: RobotData, size: int, external
) -> SolvedForces:
    """Return the forces at the solution in the form that sensors use."""
    sys, forces = prepared.sys, solved_forces(prepared, now)
    wrenches = ()
    if _needs_wrenches(sys):
        wrenches = _wrenches(prepared, now, forces, external)
        on_links = summed_wrenches(prepared, now, forces)
        wrenches += (_contact_wrenches(sys, now, on_links),)
    joints, balls = forces.get(JointLimit), forces.get(BallLimit)
    tendons = forces.get(TendonLimit)
    limits = LimitForces(
        below=joints[0][0] if joints else None,
        above=joints[1][0] if joints else None,
        balls=balls[0][0] if balls else None,
        tendons_below=tendons[0][0] if tendons else None,
        tendons_above=tendons[1][0] if tendons else None,
    )
    contacts = None
    if needs_contacts(sys):
        contacts = reported_contacts(prepared, now, forces, size)
    return SolvedForces(contacts, limits, wrenches)


def _wrenches(
    prepared: Prepared, now: RobotData, forces: ByKind, external
) -> tuple[AppliedWrenches, ...]:
    """Return the forces of equality constraints and spatial tendons on links, and
    external forces."""
    sys = prepared.sys
    found = [
        _equality_wrenches(sys, now, kind, forces[cls][0])
        for cls, kind in ((Connect, EqualityKind.CONNECT), (Weld, EqualityKind.WELD))
        if cls in forces
    ]
    pulls = tendon_wrenches(prepared, now, forces)
    found += [] if pulls is None else [pulls]
    if external is not None:
        found.append(_external_wrenches(sys, now, external))
    return tuple(found)


def _needs_wrenches(sys: System) -> bool:
    """Test if a sensor uses interaction forces."""
    kinds = (SensorKind.FORCE, SensorKind.TORQUE)
    return any(kind in kinds for kind in sys.sensors.kinds)


def _contact_wrenches(sys: System, now: RobotData, on_links: Force) -> AppliedWrenches:
    """Return the forces of contacts at the centers of mass of trees."""
    center = tree_centers(sys, tree(sys), now.fixed, now.kin)
    links, (torque, force) = tuple(range(sys.nlink)), on_links
    return AppliedWrenches(links, _like(center, force), force, torque)


def _equality_wrenches(
    sys: System, now: RobotData, kind: EqualityKind, force: Residual
) -> AppliedWrenches:
    """Return the forces of connects or welds on both links."""
    which = select_movable(sys, kind)
    one, two = both_ends(sys, now, which)
    links = end_links(sys, which)
    n, rows = len(which), force[0]
    parts = [rows[k * n : (k + 1) * n] for k in range(rows.shape[0] // n)]
    push = Vec3(*parts[:3])
    twist = push * 0.0
    if kind is EqualityKind.WELD:
        length = take(sys.equalities.torque_scale, which)
        twist = weld_torques(one, two, Vec3(*parts[3:]) * length)
    join = lambda a, b: Vec3(*(jnp.concatenate(xs) for xs in zip(a, b, strict=True)))
    pos = join(_like(one.pos, push), _like(two.pos, push))
    ends = (*links[0], *links[1])
    return AppliedWrenches(ends, pos, join(push, -push), join(twist, -twist))


def _like(v: Vec3, other: Vec3) -> Vec3:
    return Vec3(*(x + jnp.zeros_like(y) for x, y in zip(v, other, strict=True)))


def _external_wrenches(sys: System, now: RobotData, external) -> AppliedWrenches:
    """Return external forces at the centers of mass of the links."""
    pose = link_poses(tree(sys), now.fixed, now.kin)
    pos = pose.point(vec3(sys.links.com))
    force, torque = vec3(external[:, 3:]), vec3(external[:, :3])
    return AppliedWrenches(tuple(range(sys.nlink)), _like(pos, force), force, torque)
