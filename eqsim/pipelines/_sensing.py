"""Sensors of `Generalized`: inputs from forward dynamics; batch axes last."""

import itertools
from collections.abc import Sequence

import jax.numpy as jnp

from ..constraint import (
    AbstractConstraint,
    BallLimit,
    Connect,
    JointLimit,
    Moment,
    TendonLimit,
    Weld,
)
from ..constraint._costs import Residual
from ..constraint._equalities import both_ends, end_links, select_movable, weld_torques
from ..dynamics._actuation import Actuation, actuation, actuation_inputs
from ..kinematics._center_of_mass import tree_centers
from ..kinematics._forward import kinematics, link_poses, velocities
from ..model import EqualityKind, SensorKind, System, Transmission, tree
from ..model._gather import take
from ..sensors import (
    AppliedWrenches,
    LimitForces,
    needs_actuators,
    needs_contacts,
    needs_solution,
    sensor_values,
    Snapshot,
    SolvedMotion,
)
from ..spatial import Force, Vec3, vec3
from ._forward import (
    Constants,
    Forward,
    forward,
    Method,
    solved_forces,
)
from ._reported import reported_contacts, summed_wrenches
from ._tendon_wrenches import tendon_wrenches


Forces = list[tuple[AbstractConstraint, list[Residual]]]
"""Kinds of constraints, with the forces of their rows."""


def measure(
    sys: System, method: Method, constants: Constants, size: int, time, *arguments
):
    """Compute the values of all sensors at a state.

    The equations of motion are solved once, and only if a sensor uses their solution.

    **Arguments:**

    - `size`: largest number of contacts that sensors read.
    - `time`: time, s, `(*batch)`.
    - `arguments`: `q`, `qd`, `act`, `ctrl`, `external`.
    """
    q, qd, act, ctrl, external = arguments
    fixed = constants.frames
    geoms, solved = constants.geoms, None
    if needs_solution(sys) or _acts_on_contacts(sys):
        now = forward(sys, method, constants, *arguments)
        kin, speed, drive = now.kin, now.velocities, now.drive
        solved = solution(sys, method, constants, now, size, q, qd, external)
    else:
        nodes = tree(sys)
        kin = kinematics(sys, nodes, fixed, q)
        speed = velocities(sys, nodes, kin, qd)
        drive = _actuators(sys, constants, kin, q, qd, act, ctrl)
    snapshot = Snapshot(fixed, geoms, kin, speed, q, qd, time, drive, solved)
    return sensor_values(sys, snapshot)


def _acts_on_contacts(sys: System) -> bool:
    """Test if a sensor uses actuators that act through contacts."""
    return needs_actuators(sys) and Transmission.BODY in sys.actuators.transmissions


def _actuators(
    sys: System, constants: Constants, kin, q, qd, act, ctrl
) -> Actuation | None:
    if not needs_actuators(sys):
        return None
    where = sys, tree(sys), constants.frames, constants.actuators, kin, q
    return actuation(sys, q, qd, act, ctrl, actuation_inputs(*where))


def solution(
    sys: System,
    method: Method,
    constants: Constants,
    now: Forward,
    size: int,
    q,
    qd,
    external,
) -> SolvedMotion:
    """Return the solution of the equations of motion in the form that sensors use."""
    rows = solved_forces(sys, now)
    own = _by_kind(method, now, rows)
    wrenches = ()
    if _needs_wrenches(sys):
        wrenches = _wrenches(sys, method, constants, now, own, q, qd, external)
        on_links = summed_wrenches(sys, method, constants, now, rows)
        wrenches += (_contact_wrenches(sys, constants, now, on_links),)
    joints, balls = _of(own, JointLimit), _of(own, BallLimit)
    tendons = _of(own, TendonLimit)
    limits = LimitForces(
        below=joints[0][0] if joints else None,
        above=joints[1][0] if joints else None,
        balls=balls[0][0] if balls else None,
        tendons_below=tendons[0][0] if tendons else None,
        tendons_above=tendons[1][0] if tendons else None,
    )
    contacts = None
    if needs_contacts(sys):
        contacts = reported_contacts(sys, method, constants, now, rows, size)
    return SolvedMotion(now.solution.qdd, contacts, limits, wrenches)


def _wrenches(
    sys: System,
    method: Method,
    constants: Constants,
    now: Forward,
    forces: Forces,
    q,
    qd,
    external,
) -> tuple[AppliedWrenches, ...]:
    """Return the forces of equality constraints and spatial tendons on links, and
    external forces."""
    where = constants.frames, now.kin, now.velocities, q, qd
    moment = Moment(*where, now.points, None, None)
    found = [
        _equality_wrenches(sys, moment, kind, rows[0])
        for cls, kind in ((Connect, EqualityKind.CONNECT), (Weld, EqualityKind.WELD))
        if (rows := _of(forces, cls))
    ]
    pulls = tendon_wrenches(sys, method, constants, now, forces, q, qd)
    found += [] if pulls is None else [pulls]
    if external is not None:
        found.append(_external_wrenches(sys, constants, now, external))
    return tuple(found)


def _needs_wrenches(sys: System) -> bool:
    """Test if a sensor uses interaction forces."""
    kinds = (SensorKind.FORCE, SensorKind.TORQUE)
    return any(kind in kinds for kind in sys.sensors.kinds)


def _by_kind(method: Method, now: Forward, forces: list[Residual]) -> Forces:
    """Group the forces of rows by the kinds of constraints."""
    stops = list(itertools.accumulate(now.counts))
    parts = zip(method.constraints, now.counts, stops, strict=True)
    return [(kind, forces[stop - count : stop]) for kind, count, stop in parts]


def _of(forces: Forces, cls: type) -> Sequence[Residual]:
    found: list[Residual] = []
    for kind, own in forces:
        if isinstance(kind, cls):
            found += own
    return found


def _contact_wrenches(
    sys: System, constants: Constants, now: Forward, on_links: Force
) -> AppliedWrenches:
    """Return the forces of contacts at the centers of mass of trees."""
    center = tree_centers(sys, tree(sys), constants.frames, now.kin)
    links, (torque, force) = tuple(range(sys.nlink)), on_links
    return AppliedWrenches(links, _like(center, force), force, torque)


def _equality_wrenches(
    sys: System, moment: Moment, kind: EqualityKind, force: Residual
) -> AppliedWrenches:
    """Return the forces of connects or welds on both links."""
    which = select_movable(sys, kind)
    one, two = both_ends(sys, moment, which)
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


def _external_wrenches(
    sys: System, constants: Constants, now: Forward, external
) -> AppliedWrenches:
    """Return external forces at the centers of mass of the links."""
    pose = link_poses(tree(sys), constants.frames, now.kin)
    pos = pose.point(vec3(sys.links.com))
    force, torque = vec3(external[:, 3:]), vec3(external[:, :3])
    return AppliedWrenches(tuple(range(sys.nlink)), _like(pos, force), force, torque)
