"""Sensors of `Generalized`: inputs from forward dynamics; batch axes last."""

import jax.numpy as jnp

from ..constraint import (
    BallLimit,
    Connect,
    JointLimit,
    RobotData,
    TendonLimit,
    Weld,
)
from ..constraint._costs import Residual
from ..constraint._equalities import (
    both_ends,
    end_links,
    select_movable,
    weld_torques,
)
from ..constraint._newton import ByKind
from ..kinematics._center_of_mass import tree_centers
from ..kinematics._forward import link_poses
from ..model import EqualityKind, SensorKind, System, Transmission, tree
from ..model._gather import take
from ..sensors import (
    AppliedWrenches,
    LimitForces,
    needs_actuators,
    needs_contacts,
    needs_solution,
    sensor_values,
    SensorInputs,
    SolvedForces,
)
from ..spatial import Force, Vec3, vec3
from ._forward import (
    actuators,
    forward,
    positions_and_velocities,
    Prepared,
    solved_forces,
    StepInputs,
)
from ._reported import reported_contacts, summed_wrenches
from ._tendon_wrenches import tendon_wrenches


def measure(prepared: Prepared, inputs: StepInputs, size: int, time):
    """Compute the values of all sensors at a state.

    The equations of motion are solved once, and only if a sensor uses their solution.

    **Arguments:**

    - `size`: largest number of contacts that sensors read.
    - `time`: time, s, `(*batch)`.
    """
    sys, solved = prepared.sys, None
    if needs_solution(sys) or _acts_on_contacts(sys):
        now = forward(prepared, inputs)
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
