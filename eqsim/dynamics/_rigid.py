"""Poses and inertias of a system at given coordinates."""

from typing import NamedTuple

from ..kinematics._forward import Frames, frames, Kinematics, kinematics, Velocities
from ..model import System, Tree, tree
from ..spatial import Force, RigidInertia, vec3
from ._inertia import node_bodies, node_inertias
from ._passive import at_centers


class Rigid(NamedTuple):
    """A system at given coordinates; arrays are per node, in world axes."""

    nodes: Tree
    fixed: Frames
    kin: Kinematics
    inertia: RigidInertia


def rigid(sys: System, q) -> Rigid:
    """Compute poses and inertias at coordinates `q`, shape `(nq, *batch)`."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    return Rigid(nodes, fixed, kin, node_inertias(node_bodies(sys, nodes, fixed), kin))


def inertial_forces(inertia: RigidInertia, speed: Velocities) -> Force:
    r"""Compute $I a + v \times^* I v$ on each node while all joint accelerations are
    zero; gravity enters as an acceleration of the world."""
    momentum = inertia @ speed.velocity
    return (inertia @ speed.bias) + speed.velocity.cross_dual(momentum)


def external_forces(
    sys: System, nodes: Tree, fixed: Frames, kin: Kinematics, external
) -> Force:
    """Sum torques and forces at the centers of mass of the links, `(nlink, 6, *batch)`,
    into forces on the nodes."""
    torque, force = vec3(external[:, :3]), vec3(external[:, 3:])
    return at_centers(sys, nodes, fixed, kin, force, torque)
