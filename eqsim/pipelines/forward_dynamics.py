"""Forward dynamics with contacts for `Generalized`; batch axes are last.

`derive` computes what depends on the robot and the pipeline alone. `forward_dynamics` computes
what depends on the state, in one record, from kinematics to the solution.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._primitive import AbstractPattern, AbstractPatterned, Pattern
from ..collision import contact_plan, detect
from ..collision.detection import geom_frames, GeomFrames, split_frames
from ..collision.pair_lists import list_contacts
from ..collision.plan import split_plan
from ..constraint import AbstractConstraint, Contact, RobotData
from ..constraint.costs import LAST_ONSET
from ..constraint.joint_rows import tendon_inertia_rows, TendonInertia
from ..constraint.newton import (
    ByKind,
    constrained,
    constraint_forces,
    Newton,
    node_motion,
    Problem,
    row_forces,
)
from ..constraint.noslip import without_slip
from ..dynamics.actuation import (
    Actuation,
    actuation,
    actuation_constants,
    actuation_inputs,
    ActuationConstants,
    actuator_compensation,
)
from ..dynamics.articulated import node_bodies, node_inertias, NodeBodies
from ..dynamics.fluid import Ellipsoids
from ..dynamics.passive import (
    armature,
    compensation_forces,
    damping,
    external_forces,
    fluid_ellipsoids,
    fluid_forces,
    inertial_forces,
    spring_forces,
)
from ..dynamics.tendon_forces import (
    needed_tendons,
    tendon_constants,
    tendon_forces,
    tendon_kinematics,
    TendonConstants,
)
from ..dynamics.transmission import Touching
from ..dynamics.weights import inverse_weights
from ..kinematics.link_motion import Frames, frames, kinematics, velocities
from ..model import State, System, Transmission, tree
from ..spatial import Force, Vec3
from ._pipeline import AbstractPrepared


class Settings(NamedTuple):
    """Settings of a pipeline for the equations of motion.

    - `constraints`: kinds of constraints.
    - `solver`: settings of the solver.
    - `smoothing`: width of the onset of contacts, m; None for no smoothing.
    """

    constraints: tuple[AbstractConstraint, ...]
    solver: Newton
    smoothing: Any


class Constants(AbstractPatterned):
    """Derived quantities of a `System` and a pipeline, independent of the state.

    - `frames`: constant frames of kinematics.
    - `bodies`: inertias in the frames of the nodes.
    - `geoms`: frames of the shapes.
    - `constraints`: constants of each kind of constraint, None for those that the robot
        does not have.
    - `tendons`: constants of the tendons, None if there are none.
    - `actuators`: strength of muscles, and frames of transmissions.
    - `onset_width`: width of the onset of contacts, m; None for no smoothing.
    - `fluid`: shapes with fluid forces on ellipsoids; None if there are none.
    - `pattern`: known zeros and ones of these values.
    """

    frames: Frames
    bodies: NodeBodies
    geoms: GeomFrames
    constraints: tuple[Any, ...]
    tendons: TendonConstants | None
    actuators: ActuationConstants
    onset_width: Any
    fluid: Ellipsoids | None
    pattern: AbstractPattern = eqx.field(static=True, default=Pattern())


class Prepared(AbstractPrepared):
    """A robot, and all quantities that depend on the robot and a pipeline alone.

    `Generalized.prepare` computes it. It takes the place of `sys` in `step`, `solve`,
    `advance`, `sensors` and the other methods of that pipeline, which otherwise prepare
    the robot in every call. To change a parameter, change the `System` and prepare it
    again.

    - `sys`: the robot.
    - `settings`: settings of the pipeline.
    - `constants`: derived quantities, such as inverse weights of links.
    """

    sys: System
    settings: Settings
    constants: Constants


def derive(sys: System, settings: Settings) -> Constants:
    """Compute the derived quantities of a robot and a pipeline."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    bodies = node_bodies(sys, nodes, fixed)
    weights = inverse_weights(sys, nodes, fixed, bodies)
    width = settings.smoothing
    return Constants(
        frames=fixed,
        bodies=bodies,
        geoms=split_frames(sys, fixed),
        constraints=tuple(
            kind.constants(sys, weights) for kind in settings.constraints
        ),
        tendons=tendon_constants(sys, nodes, fixed),
        actuators=actuation_constants(sys, nodes, fixed, bodies),
        onset_width=None if width is None else width[None],
        fluid=fluid_ellipsoids(sys, nodes, fixed),
    )


class StepInputs(NamedTuple):
    """State and inputs of a robot, `(n, *batch)`.

    - `q`, `qd`, `act`: coordinates, velocities and activations.
    - `ctrl`: inputs of the actuators.
    - `external`: torques and forces on the links, `(nlink, 6, *batch)`, or None.
    - `elapsed`: time since the start of the step, s, at stages of an integrator; else None.
    """

    q: Any
    qd: Any
    act: Any
    ctrl: Any
    external: Any
    elapsed: Any = None


def step_inputs(state: State, ctrl: Any, external: Any) -> StepInputs:
    """Return the inputs of a step in the precision of the state."""
    dtype = state.q.dtype
    keep = lambda x: x is None or x.dtype == dtype
    given = [x if keep(x) else jnp.asarray(x, dtype) for x in (ctrl, external)]
    return StepInputs(state.q, state.qd, state.act, *given)


def forward_dynamics(prepared: Prepared, inputs: StepInputs) -> RobotData:
    """Compute accelerations and the quantities that determine them."""
    sys, settings, constants = prepared.sys, prepared.settings, prepared.constants
    nodes = tree(sys)
    now = positions_and_velocities(prepared, inputs.q, inputs.qd, inputs.act)
    now = _with_contacts(prepared, now)
    inertia = node_inertias(constants.bodies, now.kin)
    now, tau = _with_joint_forces(prepared, now, inputs.ctrl, inputs.elapsed)
    force = _smooth_forces(prepared, now, inputs.external)
    force = force - inertial_forces(inertia, now.velocities)
    if any(kind.reads_every_point for kind in settings.constraints):
        now = _with_every_point(prepared, now)
    rotor = armature(sys) + jnp.zeros_like(tau)
    problem = Problem(now.kin, inertia, force, tau, rotor, _rows(prepared, now))
    solution = constrained(nodes, problem, settings.solver)
    if sys.noslip_iterations:
        problem, solution = without_slip(nodes, problem, solution, settings.solver)
    return now._replace(problem=problem, solution=solution)


def positions_and_velocities(prepared: Prepared, q, qd, act) -> RobotData:
    """Return the record of a state with the poses and velocities of the nodes."""
    sys, constants = prepared.sys, prepared.constants
    nodes = tree(sys)
    kin = kinematics(sys, nodes, constants.frames, q)
    return RobotData(
        fixed=constants.frames,
        geoms=constants.geoms,
        onset_width=constants.onset_width,
        q=q,
        qd=qd,
        act=act,
        kin=kin,
        velocities=velocities(sys, nodes, kin, qd),
    )


def _with_contacts(prepared: Prepared, now: RobotData) -> RobotData:
    """Add the points that are always computed, and the listing of the other pairs."""
    sys, width = prepared.sys, now.onset_width
    plan, listed = split_plan(sys)
    if plan.size:
        now = now._replace(points=detect(sys, plan, now.geoms, now.kin, width))
    if listed is not None:
        assert now.geoms.listed is not None, "listed pairs have frames"
        reach = None if width is None else LAST_ONSET * jnp.maximum(width, 0.0)
        found = list_contacts(sys, listed, now.geoms.listed, now.kin, reach)
        now = now._replace(listing=found)
    return now


def _with_every_point(prepared: Prepared, now: RobotData) -> RobotData:
    """Add the points of all pairs that could touch."""
    sys, plan = prepared.sys, contact_plan(prepared.sys)
    if not plan.size:
        return now
    geoms = geom_frames(sys, now.fixed)
    return now._replace(every_point=detect(sys, plan, geoms, now.kin, now.onset_width))


def _with_joint_forces(
    prepared: Prepared, now: RobotData, ctrl, elapsed
) -> tuple[RobotData, Any]:
    """Add actuators and tendons; return joint forces without constraints as well."""
    sys, constants = prepared.sys, prepared.constants
    touching = _touching(prepared, now)
    inputs = actuation_inputs(
        sys, tree(sys), now.fixed, constants.actuators, now.kin, now.q, touching
    )._replace(elapsed=elapsed)
    drive = actuation(sys, now.q, now.qd, now.act, ctrl, inputs)
    tau = drive.tau + spring_forces(sys, now.q) + damping(sys).force(now.qd)
    if inputs.compensation is not None:
        # This force is also included in the forces on the links.
        tau = tau - actuator_compensation(sys, inputs.compensation)
    now, chosen = now._replace(drive=drive), needed_tendons(sys)
    if constants.tendons is None or not any(chosen):
        return now, tau
    local = constants.tendons.frames
    tendons = tendon_kinematics(sys, tree(sys), local, now.kin, now.q, chosen)
    tau = tau + tendon_forces(sys, constants.tendons, tendons, now.qd)
    return now._replace(tendons=tendons), tau


def actuators(prepared: Prepared, now: RobotData, ctrl) -> Actuation:
    """Compute the forces of all actuators, without those that act through contacts."""
    sys, local = prepared.sys, prepared.constants.actuators
    inputs = actuation_inputs(sys, tree(sys), now.fixed, local, now.kin, now.q)
    return actuation(sys, now.q, now.qd, now.act, ctrl, inputs)


def _touching(prepared: Prepared, now: RobotData) -> Touching | None:
    """Return the contact points, for actuators that act through contacts."""
    sys, points = prepared.sys, now.points
    if points is None or Transmission.BODY not in sys.actuators.transmissions:
        return None
    own = contact_constants(prepared)
    if own is None or own.parameters is None:
        return None
    plan, links = contact_plan(sys), sys.geoms.links
    pairs = [plan.pairs[pair] for pair in plan.point_pairs]
    normal = Vec3(*points.frame[:3])
    margin, gap = own.parameters.friction.margin, own.parameters.gap
    reach = margin if gap is None else margin + gap
    active = points.valid & (points.dist < reach)
    ends = tuple((links[a], links[b]) for a, b, _ in pairs)
    return Touching(ends, plan.nodes, points.pos, normal, active)


def _smooth_forces(prepared: Prepared, now: RobotData, external) -> Force:
    """Sum gravity compensation, fluid drag and external forces on the nodes."""
    sys, nodes, fixed, kin = prepared.sys, tree(prepared.sys), now.fixed, now.kin
    force = compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        velocity, shapes = now.velocities.velocity, prepared.constants.fluid
        force = force + fluid_forces(sys, nodes, fixed, kin, velocity, shapes)
    if external is not None:
        force = force + external_forces(sys, nodes, fixed, kin, external)
    return force


def _rows(prepared: Prepared, now: RobotData) -> OrderedDict[type, tuple]:
    """Compute the rows of each kind of constraint, and those of tendon inertia."""
    sys, settings, found = prepared.sys, prepared.settings, OrderedDict()
    pairs = zip(settings.constraints, prepared.constants.constraints, strict=True)
    for kind, own in pairs:
        rows = () if own is None else kind.rows(sys, own, now)
        if rows:
            found[type(kind)] = (*found.get(type(kind), ()), *rows)
    inertia = tendon_inertia_rows(sys, now)
    if inertia:
        found[TendonInertia] = inertia
    return found


def contact_constants(prepared: Prepared) -> Any:
    """Return the constants of contacts; None if no shapes can touch."""
    pairs = zip(prepared.settings.constraints, prepared.constants.constraints)
    return next((own for kind, own in pairs if isinstance(kind, Contact)), None)


def solved_forces(prepared: Prepared, now: RobotData) -> ByKind:
    """Compute the forces of all rows at the solution."""
    qdd = now.solution.qdd
    motion = node_motion(tree(prepared.sys), now.kin, qdd)
    return row_forces(now.problem, motion, qdd, now.solution.pieces)


def solved_constraint_forces(prepared: Prepared, now: RobotData, forces: ByKind):
    """Compute the joint forces of all constraints, given those of all rows."""
    rows, forces = now.problem.rows.copy(), forces.copy()
    for every in (rows, forces):
        every.pop(TendonInertia, None)
    problem = now.problem._replace(rows=rows)
    return constraint_forces(tree(prepared.sys), problem, forces)
