"""What actuators need of the mechanism: moments of sites, tendons and contacts, and
gravity compensation."""

from typing import Any

from ..kinematics._forward import Frames, Kinematics
from ..kinematics._recursion import ascend
from ..model import System, Tree
from ._actuation import ActuationInputs
from ._articulated import project
from ._muscle import MuscleScale
from ._passive import compensation_forces
from ._transmission import joint_ends, OtherRows


def actuation_inputs(
    sys: System,
    tree: Tree,
    fixed: Frames,
    kin: Kinematics,
    muscles: MuscleScale | None,
    points: Any = None,
) -> ActuationInputs:
    """Compute what actuators read of the mechanism at a state.

    **Arguments:**

    - `muscles`: of `muscle_scales`.
    - `points`: contact points, for actuators on links.
    """
    return ActuationInputs(
        other_rows(sys, tree, fixed, kin, points),
        muscles,
        gravity_compensation(sys, tree, fixed, kin),
    )


def gravity_compensation(sys: System, tree: Tree, fixed: Frames, kin: Kinematics):
    """Compute gravity compensation as joint forces, `(nv, *batch)`; None if no joint
    counts it as an actuator force."""
    if not any(sys.joints.actuator_gravity):
        return None
    force = compensation_forces(sys, tree, fixed, kin)
    return project(tree, kin, ascend(tree, force))


def other_rows(
    sys: System, tree: Tree, fixed: Frames, kin: Kinematics, points: Any
) -> OtherRows | None:
    """Compute moments and lengths of actuators on other things than joints."""
    if not joint_ends(sys.actuators, sys.joints).others:
        return None
    raise NotImplementedError
