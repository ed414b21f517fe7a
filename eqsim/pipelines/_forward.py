"""Forward dynamics with contacts for `Generalized`; batch axes are last."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._calls import AbstractPatterned, Pattern
from ..collision import (
    contact_plan,
    ContactPoints,
    detect,
    geom_frames,
    GeomFrames,
    list_contacts,
    split_frames,
    split_plan,
)
from ..constraint import (
    AbstractConstraint,
    ALL,
    Contact,
    Moment,
    tendon_inertia_rows,
)
from ..constraint._costs import LAST_ONSET, Residual
from ..constraint._newton import (
    constrained,
    constraint_forces,
    Newton,
    node_motion,
    Problem,
    row_forces,
    Solution,
)
from ..dynamics._actuation import (
    Actuation,
    actuation,
    actuation_constants,
    actuation_inputs,
    ActuationConstants,
    actuator_compensation,
)
from ..dynamics._articulated import node_bodies, node_inertias, NodeBodies
from ..dynamics._ellipsoids import Ellipsoids
from ..dynamics._passive import (
    armature,
    compensation_forces,
    damping,
    external_forces,
    fluid_ellipsoids,
    fluid_forces,
    inertial_forces,
    spring_forces,
)
from ..dynamics._tendons import (
    needed_tendons,
    tendon_constants,
    tendon_forces,
    tendon_kinematics,
    TendonConstants,
    TendonKinematics,
)
from ..dynamics._transmission import Touching
from ..dynamics._weights import inverse_weights
from ..kinematics._forward import (
    Frames,
    frames,
    Kinematics,
    kinematics,
    Velocities,
    velocities,
)
from ..model import System, Transmission, tree
from ..spatial import Force, Vec3


class Method(NamedTuple):
    """Settings of a pipeline for the equations of motion.

    - `constraints`: kinds of constraints.
    - `solver`: settings of the solver.
    - `smoothing`: width of the onset of contacts, m; None for no smoothing.
    """

    constraints: tuple[AbstractConstraint, ...]
    solver: Newton
    smoothing: Any


class Constants(AbstractPatterned):
    """Quantities that depend on a `System` and a pipeline but not on the state.

    They are computed from the primary parameters once per call of the pipeline, by a
    differentiable function, and never stored: see `derive`.

    - `frames`: constant frames of kinematics.
    - `bodies`: inertias in the frames of the nodes.
    - `geoms`: frames of the shapes.
    - `constraints`: constants of each kind of constraint, None for those that the robot
        does not have.
    - `tendons`: constants of the tendons, None if there are none.
    - `actuators`: strength of muscles, and frames of transmissions.
    - `onset_width`: width of the onset of contacts, m; None for no smoothing.
    - `fluid`: shapes with fluid forces on ellipsoids; None if there are none.
    - `pattern`: assumptions about these values, see `Pattern`.
    """

    frames: Frames
    bodies: NodeBodies
    geoms: GeomFrames
    constraints: tuple[Any, ...]
    tendons: TendonConstants | None
    actuators: ActuationConstants
    onset_width: Any
    fluid: Ellipsoids | None
    pattern: Pattern = eqx.field(static=True, default=Pattern())


def derive(sys: System, method: Method) -> Constants:
    """Compute the constants of a system and a pipeline (batch axes last)."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    bodies = node_bodies(sys, nodes, fixed)
    weights = inverse_weights(sys, nodes, fixed, bodies)
    width = method.smoothing
    return Constants(
        frames=fixed,
        bodies=bodies,
        geoms=split_frames(sys, fixed),
        constraints=tuple(kind.constants(sys, weights) for kind in method.constraints),
        tendons=tendon_constants(sys, nodes, fixed),
        actuators=actuation_constants(sys, nodes, fixed, bodies),
        onset_width=None if width is None else width[None],
        fluid=fluid_ellipsoids(sys, nodes, fixed),
    )


class Forward(NamedTuple):
    """Forward dynamics at one state.

    - `kin`, `velocities`: poses and velocities of the nodes.
    - `problem`, `solution`: the convex problem, and its solution.
    - `counts`: number of rows of each kind of constraint in the problem.
    - `points`: contact points, None if there are none.
    - `drive`: the actuators.
    - `tendons`: kinematics of the required tendons; None if there are none.
    - `every_point`: see `Moment`.
    """

    kin: Kinematics
    velocities: Velocities
    problem: Problem
    counts: tuple[int, ...]
    points: ContactPoints | None
    solution: Solution
    drive: Actuation
    tendons: TendonKinematics | None
    every_point: ContactPoints | None


def forward(
    sys: System, method: Method, constants: Constants, q, qd, act, ctrl, external
) -> Forward:
    """Compute accelerations and the quantities that determine them."""
    nodes, fixed = tree(sys), constants.frames
    kin = kinematics(sys, nodes, fixed, q)
    speed = velocities(sys, nodes, kin, qd)
    width = constants.onset_width
    points, listing = _contacts(sys, constants, kin)
    inertia = node_inertias(constants.bodies, kin)
    where = sys, nodes, constants.frames, constants.actuators, kin, q
    inputs = actuation_inputs(*where, _touching(sys, method, constants, points))
    drive = actuation(sys, q, qd, act, ctrl, inputs)
    tau = drive.tau + spring_forces(sys, q) + damping(sys).force(qd)
    if inputs.compensation is not None:
        # This force is also included in the forces on the links.
        tau = tau - actuator_compensation(sys, inputs.compensation)
    tendons = _tendons(sys, constants, kin, q)
    if tendons is not None and constants.tendons is not None:
        tau = tau + tendon_forces(sys, constants.tendons, tendons, qd)
    force = _smooth_forces(sys, constants, kin, speed, external)
    force = force - inertial_forces(inertia, speed)
    now = Moment(
        fixed,
        kin,
        speed,
        q,
        qd,
        points,
        tendons,
        width,
        listing,
        constants.geoms.listed,
    )
    if not all(type(kind) in map(type, ALL) for kind in method.constraints):
        now = now._replace(every_point=every_point(sys, fixed, kin, width))
    rows = _rows(sys, method, constants, now)
    rotor = armature(sys) + jnp.zeros_like(tau)
    flat = tuple(row for own in rows for row in own) + tendon_inertia_rows(sys, now)
    problem = Problem(kin, inertia, force, tau, rotor, flat)
    solution = constrained(nodes, problem, method.solver)
    counts, every = tuple(map(len, rows)), now.every_point
    return Forward(kin, speed, problem, counts, points, solution, drive, tendons, every)


def _contacts(sys: System, constants: Constants, kin: Kinematics):
    """Return the points that are always computed, and the listing of the other pairs."""
    plan, listed = split_plan(sys)
    width, frames, points, listing = constants.onset_width, constants.geoms, None, None
    if plan.size:
        points = detect(sys, plan, frames, kin, width)
    if listed is not None:
        assert frames.listed is not None, "listed pairs have frames"
        reach = None if width is None else LAST_ONSET * jnp.maximum(width, 0.0)
        listing = list_contacts(sys, listed, frames.listed, kin, reach)
    return points, listing


def every_point(sys: System, fixed: Frames, kin: Kinematics, width):
    """Return the points of all pairs that could touch; None if there are none."""
    plan = contact_plan(sys)
    if not plan.size:
        return None
    return detect(sys, plan, geom_frames(sys, fixed), kin, width)


def _smooth_forces(
    sys: System, constants: Constants, kin: Kinematics, speed: Velocities, external
) -> Force:
    """Sum gravity compensation, fluid drag and external forces on the nodes."""
    where = tree(sys), constants.frames, kin
    force = compensation_forces(sys, *where)
    if sys.has_fluid:
        force = force + fluid_forces(sys, *where, speed.velocity, constants.fluid)
    if external is not None:
        force = force + external_forces(sys, *where, external)
    return force


def _touching(
    sys: System, method: Method, constants: Constants, points
) -> Touching | None:
    """Return the contact points, for actuators that act through contacts."""
    if points is None or Transmission.BODY not in sys.actuators.transmissions:
        return None
    margins = [
        own.parameters.friction.margin
        for kind, own in zip(method.constraints, constants.constraints, strict=True)
        if isinstance(kind, Contact)
    ]
    if not margins:
        return None
    plan, links = contact_plan(sys), sys.geoms.links
    pairs = [plan.pairs[pair] for pair in plan.point_pairs]
    normal = Vec3(*points.frame[:3])
    active = points.valid & (points.dist < margins[0])
    ends = tuple((links[a], links[b]) for a, b, _ in pairs)
    return Touching(ends, plan.nodes, points.pos, normal, active)


def _rows(sys: System, method: Method, constants: Constants, now: Moment):
    """Compute the rows of each kind of constraint."""
    return [
        () if own is None else kind.rows(sys, own, now)
        for kind, own in zip(method.constraints, constants.constraints, strict=True)
    ]


def _tendons(
    sys: System, constants: Constants, kin: Kinematics, q
) -> TendonKinematics | None:
    """Compute the kinematics of the required tendons; None if there are none."""
    chosen = needed_tendons(sys)
    if constants.tendons is None or not any(chosen):
        return None
    return tendon_kinematics(sys, tree(sys), constants.tendons.frames, kin, q, chosen)


def constraint_rows(now: Forward) -> Problem:
    """Return the problem with the rows of constraints alone."""
    return now.problem._replace(rows=now.problem.rows[: sum(now.counts)])


def solved_forces(sys: System, now: Forward) -> list[Residual]:
    """Compute the forces of all rows of constraints at the solution."""
    qdd, problem = now.solution.qdd, constraint_rows(now)
    motion = node_motion(tree(sys), now.kin, qdd)
    return row_forces(problem, motion, qdd, now.solution.pieces[: len(problem.rows)])


def solved_constraint_forces(sys: System, now: Forward, forces: list[Residual]):
    """Compute the joint forces of all constraints, given those of all rows."""
    return constraint_forces(tree(sys), constraint_rows(now), forces)
