"""Forward dynamics with contacts, as `Generalized` steps it; batch axes are last."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._patterns import AbstractPatterned, Pattern
from ..contact._active import contact_force, forces, residuals, Values
from ..contact._detect import ContactPoints, detect
from ..contact._newton import constrained, node_motion, Problem, Solution
from ..contact._parameters import (
    contact_parameters,
    ContactParameters,
    geom_frames,
    GeomFrames,
)
from ..contact._plan import contact_plan
from ..contact._rows import (
    joint_rows,
    joint_softness,
    JointSoftness,
    no_points,
    point_rows,
    Rows,
)
from ..contact._structure import structure
from ..dynamics._actuation import Actuation, actuation, actuator_compensation
from ..dynamics._actuation_inputs import (
    actuation_constants,
    actuation_inputs,
    ActuationConstants,
)
from ..dynamics._inertia import node_bodies, node_inertias, NodeBodies
from ..dynamics._joint_parameters import armature, damping
from ..dynamics._passive import compensation_forces, fluid_forces, spring_forces
from ..dynamics._rigid import external_forces, inertial_forces
from ..dynamics._spatial_transmission import Touching
from ..dynamics._tendons import (
    passive_tendons,
    tendon_constants,
    tendon_forces,
    tendon_kinematics,
    TendonConstants,
)
from ..dynamics._weights import inverse_weights, InverseWeights
from ..kinematics._forward import (
    Frames,
    frames,
    Kinematics,
    kinematics,
    Velocities,
    velocities,
)
from ..model import concatenate, per_row, System, Transmission, tree
from ..spatial import Force, Vec3


class Constants(AbstractPatterned):
    """Quantities that depend on a `System` and a pipeline but not on the state.

    They are computed from the primary parameters once per call of the pipeline, by a
    differentiable function, and never stored: see `derive`.

    - `frames`: constant frames of kinematics.
    - `bodies`: inertias in the frames of the nodes.
    - `weights`: inverse weights.
    - `geoms`: frames of the shapes.
    - `contacts`: mixed parameters of the contact points, None if there are none.
    - `joints`: softness of limits and dry friction.
    - `tendons`: constants of the tendons, None if there are none.
    - `actuators`: strength of muscles, and frames of transmissions.
    - `onset_width`: width of the onset of contacts, m; None if it is abrupt.
    - `pattern`: what may be assumed of these numbers, see `_patterns.py`.
    """

    frames: Frames
    bodies: NodeBodies
    weights: InverseWeights
    geoms: GeomFrames
    contacts: ContactParameters | None
    joints: JointSoftness
    tendons: TendonConstants | None
    actuators: ActuationConstants
    onset_width: Any
    pattern: Pattern = eqx.field(static=True, default=Pattern())


def derive(sys: System, smoothing) -> Constants:
    """Compute the constants of a system and a pipeline (batch axes last)."""
    plan, nodes = contact_plan(sys), tree(sys)
    fixed = frames(sys, nodes)
    bodies = node_bodies(sys, nodes, fixed)
    weights = inverse_weights(sys, nodes, fixed, bodies)
    contacts = contact_parameters(sys, plan, weights.link) if plan.size else None
    joints = joint_softness(sys, structure(sys))
    geoms = geom_frames(sys, fixed)
    width = None if smoothing is None else smoothing[None]
    return Constants(
        frames=fixed,
        bodies=bodies,
        weights=weights,
        geoms=geoms,
        contacts=contacts,
        joints=joints,
        tendons=tendon_constants(sys, nodes, fixed),
        actuators=actuation_constants(sys, nodes, fixed, bodies),
        onset_width=width,
    )


class Forward(NamedTuple):
    """Forward dynamics at one state.

    - `kin`, `velocities`: poses and velocities of the nodes.
    - `problem`, `solution`: the convex problem, and its solution.
    - `points`: contact points, None if there are none.
    - `drive`: the actuators.
    """

    kin: Kinematics
    velocities: Velocities
    problem: Problem
    points: ContactPoints | None
    solution: Solution
    drive: Actuation


def forward(sys: System, constants: Constants, q, qd, act, ctrl, external) -> Forward:
    """Compute accelerations and the quantities that lead to them."""
    nodes = tree(sys)
    kin = kinematics(sys, nodes, constants.frames, q)
    speed = velocities(sys, nodes, kin, qd)
    inertia = node_inertias(constants.bodies, kin)
    points = _points(sys, constants, kin)
    where = sys, nodes, constants.frames, constants.actuators, kin, q
    inputs = actuation_inputs(*where, _touching(sys, constants, points))
    drive = actuation(sys, q, qd, act, ctrl, inputs)
    tau = drive.tau + spring_forces(sys, q) + damping(sys).force(qd)
    if inputs.compensation is not None:
        # It is also among the forces on the links.
        tau = tau - actuator_compensation(sys, inputs.compensation)
    if constants.tendons is not None and any(passive_tendons(sys)):
        local, chosen = constants.tendons.frames, passive_tendons(sys)
        tendons = tendon_kinematics(sys, nodes, local, kin, q, chosen)
        tau = tau + tendon_forces(sys, constants.tendons, tendons, qd)
    force = _smooth_forces(sys, constants, kin, speed, external)
    force = force - inertial_forces(inertia, speed)
    rows = _rows(sys, constants, kin, speed, points, q, qd)
    rotor = armature(sys) + jnp.zeros_like(tau)
    problem = Problem(kin, inertia, force, tau, rotor, rows)
    solution = constrained(structure(sys), problem)
    return Forward(kin, speed, problem, points, solution, drive)


def _smooth_forces(
    sys: System, constants: Constants, kin: Kinematics, speed: Velocities, external
) -> Force:
    """Sum gravity compensation, fluid drag and external forces on the nodes."""
    where = tree(sys), constants.frames, kin
    force = compensation_forces(sys, *where)
    if sys.has_fluid:
        force = force + fluid_forces(sys, *where, speed.velocity)
    if external is not None:
        force = force + external_forces(sys, *where, external)
    return force


def _points(sys: System, constants: Constants, kin) -> ContactPoints | None:
    """Compute the contact points; None if there are none."""
    if constants.contacts is None:
        return None
    return detect(sys, contact_plan(sys), constants.geoms, kin)


def _touching(sys: System, constants: Constants, points) -> Touching | None:
    """Return the contact points, for actuators that act through contacts."""
    if (
        constants.contacts is None
        or Transmission.BODY not in sys.actuators.transmissions
    ):
        return None
    plan, links = contact_plan(sys), sys.geoms.links
    pairs = [plan.pairs[pair] for pair in plan.point_pairs]
    normal = Vec3(*points.frame[:3])
    active = points.valid & (points.dist < constants.contacts.friction.margin)
    ends = tuple((links[a], links[b]) for a, b, _ in pairs)
    return Touching(ends, plan.nodes, points.pos, normal, active)


def _rows(sys: System, constants: Constants, kin, speed: Velocities, points, q, qd):
    """Compute the rows of all constraints."""
    facts = structure(sys)
    anchored, moving = no_points(q), no_points(q)
    if constants.contacts is not None:
        parameters, width = constants.contacts, constants.onset_width
        anchored, moving = point_rows(
            facts, kin, points, parameters, speed.velocity, width
        )
    weights = constants.weights.dof
    limits = joint_rows(sys, facts, constants.joints, weights, q, qd)
    return Rows(anchored, moving, *limits)


def row_forces(sys: System, now: Forward) -> Values:
    """Compute the forces of all rows at the solution."""
    facts, rows = structure(sys), now.problem.rows
    qdd, active = now.solution
    motion = node_motion(facts, now.kin, qdd)
    return forces(rows, active, residuals(facts, rows, motion, qdd))


def contact_forces(sys: System, now: Forward) -> Vec3:
    """Compute the force on the second shape of each contact point, in the world."""
    rows, force = now.problem.rows, row_forces(sys, now)
    # Rows of contacts with the world count the moving shape, which may be the first.
    signs = per_row(structure(sys).signs, now.solution.qdd)
    anchored = contact_force(rows.anchored, force.anchored) * signs
    return concatenate([anchored, contact_force(rows.moving, force.moving)])
