"""The forward dynamics that `Generalized` steps: everything with batch axes last."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..contact._active import combine, forces, layout, residuals, Values
from ..contact._detect import ContactPoints, detect
from ..contact._newton import constrained, Problem, Solution, Structure
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
from ..dynamics._actuation import actuation
from ..dynamics._inertia import node_bodies, node_inertias, NodeBodies
from ..dynamics._passive import (
    at_centers,
    compensation_forces,
    fluid_forces,
    spring_forces,
)
from ..dynamics._weights import inverse_weights, InverseWeights
from ..kinematics._forward import (
    Frames,
    frames,
    joint_motion,
    Kinematics,
    kinematics,
    Velocities,
    velocities,
)
from ..kinematics._recursion import descend
from ..model import concatenate, System, tree
from ..spatial import Force, Motion, RigidInertia, Vec3, vec3


class Constants(NamedTuple):
    """All that a step needs of a `System` and that does not depend on the state.

    It is computed from the primary parameters, and from those of the pipeline, once per
    call of the pipeline, by a differentiable function, and never stored: see `derive`.
    """

    frames: Frames
    bodies: NodeBodies
    weights: InverseWeights
    geoms: GeomFrames
    contacts: ContactParameters | None
    joints: JointSoftness
    onset_width: Any


def derive(sys: System, smoothing) -> Constants:
    """The constants of a system and a pipeline (batch axes last)."""
    plan, nodes = contact_plan(sys), tree(sys)
    fixed = frames(sys, nodes)
    bodies = node_bodies(sys, nodes, fixed)
    weights = inverse_weights(sys, nodes, fixed, bodies)
    geoms = geom_frames(sys, fixed)
    contacts = None
    if plan.size:
        contacts = contact_parameters(sys, nodes, plan, weights.link)
    joints = joint_softness(sys)
    return Constants(fixed, bodies, weights, geoms, contacts, joints, smoothing[None])


class Forward(NamedTuple):
    """Forward dynamics at one state."""

    kin: Kinematics
    velocities: Velocities
    problem: Problem
    points: ContactPoints | None
    solution: Solution
    act_rate: Any


def structure(sys: System) -> Structure:
    """The static facts of a system's convex problem."""
    return Structure(tree(sys), layout(sys, contact_plan(sys)), sys.nv)


def forward(sys: System, constants: Constants, q, qd, act, ctrl, external) -> Forward:
    """Accelerations and all that leads to them."""
    nodes = tree(sys)
    kin = kinematics(sys, nodes, constants.frames, q)
    speed = velocities(sys, nodes, kin, qd)
    inertia = node_inertias(constants.bodies, kin)
    drive = actuation(sys, q, qd, act, ctrl)
    tau = drive.tau + spring_forces(sys, q) - sys.joints.damping * qd
    force = _node_forces(sys, constants, kin, speed, inertia, external)
    points, rows = _rows(sys, constants, kin, speed, q, qd)
    armature = sys.joints.armature + jnp.zeros_like(tau)
    problem = Problem(kin, inertia, force, tau, armature, rows)
    return Forward(
        kin,
        speed,
        problem,
        points,
        constrained(structure(sys), problem),
        drive.act_rate,
    )


def _node_forces(sys: System, constants, kin, speed: Velocities, inertia, external):
    """Inertial, gravitational, fluid and external forces at zero acceleration."""
    nodes, fixed = tree(sys), constants.frames
    force = _inertial(inertia, _momentum(inertia, speed.velocity), speed)
    force = force + compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        force = force + fluid_forces(sys, nodes, fixed, kin, speed.velocity)
    if external is not None:
        torque, push = vec3(external[:, :3]), vec3(external[:, 3:])
        force = force + at_centers(sys, nodes, fixed, kin, push, torque)
    return force


def _momentum(inertia: RigidInertia, velocity: Motion) -> Force:
    return inertia @ velocity


def _inertial(inertia: RigidInertia, momentum: Force, speed: Velocities) -> Force:
    return -((inertia @ speed.bias) + speed.velocity.cross_dual(momentum))


def _rows(sys: System, constants: Constants, kin, speed: Velocities, q, qd):
    nodes, plan = tree(sys), contact_plan(sys)
    points, anchored, moving = None, no_points(q), no_points(q)
    if plan.size:
        points = detect(sys, plan, constants.geoms, kin)
        anchored, moving = point_rows(
            nodes,
            plan,
            kin,
            points,
            constants.contacts,
            speed.velocity,
            constants.onset_width,
        )
    weights = constants.weights.dof
    limits = joint_rows(sys, constants.joints, weights, q, qd)
    return points, Rows(anchored, moving, *limits)


def row_forces(sys: System, now: Forward) -> Values:
    """The forces of all rows at the solution."""
    nodes, where, _ = structure(sys)
    qdd, piece = now.solution
    motion = descend(nodes, joint_motion(nodes, now.kin, qdd))
    rows = now.problem.rows
    return forces(rows, piece, residuals(where, rows, motion, qdd))


def contact_forces(sys: System, now: Forward) -> Vec3:
    """Force on the second shape of each contact point, in the world."""
    rows, force, signs = (
        now.problem.rows,
        row_forces(sys, now),
        structure(sys).where.signs,
    )
    # Rows of contacts with the world count the moving shape, which may be the first.
    qdd = now.solution.qdd
    signs = jnp.asarray(signs, qdd.dtype).reshape(-1, *(1 for _ in qdd.shape[1:]))
    anchored = combine(rows.anchored, force.anchored) * signs
    return concatenate([anchored, combine(rows.moving, force.moving)])
