"""What every algorithm on rigid bodies starts from: poses and inertias."""

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
    """Poses and inertias at coordinates `q`, shape `(nq, *batch)`."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    return Rigid(nodes, fixed, kin, node_inertias(node_bodies(sys, nodes, fixed), kin))


def inertial_forces(body: Rigid, speed: Velocities) -> Force:
    r"""$I a + v \times^* I v$ on each node while no joint accelerates, gravity included
    as an acceleration of the world."""
    momentum = body.inertia @ speed.velocity
    return (body.inertia @ speed.bias) + speed.velocity.cross_dual(momentum)


def external_forces(sys: System, body: Rigid, external) -> Force:
    """Torques and forces at the centers of mass of the links, `(nlink, 6, *batch)`, as
    forces on the nodes."""
    torque, push = vec3(external[:, :3]), vec3(external[:, 3:])
    return at_centers(sys, body.nodes, body.fixed, body.kin, push, torque)
