"""Inputs of actuators from the mechanism: moments of sites, tendons and contacts, gravity
compensation, and the strength of muscles."""

from typing import NamedTuple

from ..kinematics._forward import Frames, frames, Kinematics, kinematics
from ..kinematics._recursion import ascend
from ..model import System, Tree, tree
from ._actuation import Actuation, actuation, ActuationInputs
from ._articulated import project
from ._inertia import node_bodies, NodeBodies
from ._muscle import MuscleScale
from ._passive import compensation_forces
from ._spatial_transmission import (
    other_rows,
    Touching,
    transmission_frames,
    TransmissionFrames,
)
from ._unit_accelerations import muscle_scales


class ActuationConstants(NamedTuple):
    """Quantities that depend on a `System` but not on the state.

    - `muscles`: peak forces and optimal lengths; None if there are no muscles.
    - `frames`: frames of sites and tendons; None if all actuators act on joints.
    """

    muscles: MuscleScale | None
    frames: TransmissionFrames | None


def actuation_constants(
    sys: System, tree: Tree, fixed: Frames, bodies: NodeBodies
) -> ActuationConstants:
    """Compute the constants of the actuators of a system."""
    local = transmission_frames(sys, fixed)
    return ActuationConstants(muscle_scales(sys, tree, fixed, bodies, local), local)


def actuation_inputs(
    sys: System,
    tree: Tree,
    fixed: Frames,
    constants: ActuationConstants,
    kin: Kinematics,
    q,
    touching: Touching | None = None,
) -> ActuationInputs:
    """Compute what actuators read of the mechanism at a state.

    **Arguments:**

    - `touching`: contact points, for actuators on links; None if there are none.
    """
    return ActuationInputs(
        other_rows(sys, tree, constants.frames, kin, q, touching),
        constants.muscles,
        gravity_compensation(sys, tree, fixed, kin),
    )


def gravity_compensation(sys: System, tree: Tree, fixed: Frames, kin: Kinematics):
    """Compute gravity compensation as joint forces, `(nv, *batch)`; None if no joint
    counts it as an actuator force."""
    if not any(sys.joints.actuator_gravity):
        return None
    force = compensation_forces(sys, tree, fixed, kin)
    return project(tree, kin, ascend(tree, force))


def actuation_at(sys: System, q, qd, act, ctrl) -> Actuation:
    """Compute the forces of all actuators without anything computed before, and without
    contacts."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    bodies = node_bodies(sys, nodes, fixed)
    constants = actuation_constants(sys, nodes, fixed, bodies)
    inputs = actuation_inputs(sys, nodes, fixed, constants, kin, q)
    return actuation(sys, q, qd, act, ctrl, inputs)
