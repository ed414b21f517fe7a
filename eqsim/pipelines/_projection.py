"""From maximal coordinates back to those of the joints."""

import jax.numpy as jnp

from ..dynamics._articulated import factor, solve
from ..dynamics._inertia import node_inertias
from ..kinematics._forward import Kinematics, kinematics
from ..kinematics._manifold import advance
from ..model import System, take, tree
from ..spatial import Motion, Vec3
from ._bodies import Bodies, layout, small_rotation, to_nodes
from ._world import Constants, Moving


def project_bodies(sys: System, constants: Constants, origin: Vec3, now: Moving):
    """The coordinates and velocities that are nearest to what the bodies do.

    **Arguments:**

    - `origin`: of the tree of each body, in the world.

    With $M$ the joint-space matrix and $J_b$ the Jacobians of the bodies, one step of
    Gauss-Newton from the kept coordinates, $M \\delta = \\sum_b J_b^T I_b e_b$ with the
    displacements $e_b$, and $M \\dot q = \\sum_b J_b^T I_b V_b + A \\dot q_\\mathrm{kept}$
    with the armature $A$: the least squares in which bodies count by their masses. They
    leave momentum as it is, but for the small change of coordinates between them.
    """
    nodes = tree(sys)
    kin = kinematics(sys, nodes, constants.frames, now.q)
    inertia = node_inertias(constants.nodes, kin)
    armature = sys.joints.armature + jnp.zeros_like(now.qd)
    factored = factor(nodes, kin, inertia, armature)
    error, motion = _momenta(nodes, constants.bodies, kin, inertia, origin, now.bodies)
    change, _ = solve(nodes, kin, factored, jnp.zeros_like(now.qd), error)
    qd, _ = solve(nodes, kin, factored, armature * now.qd, motion)
    return advance(sys.joints.kinds, now.q, change), qd


def _momenta(nodes, numbers, kin: Kinematics, inertia, origin, bodies: Bodies):
    """Inertia times displacement, and momentum, of each node about its tree's origin."""
    which = layout(nodes).nodes
    pose, arm, here, own = take((kin.pose, kin.arm, kin.origin, inertia), which)
    com = arm + (pose.rot @ numbers.com)
    shift = (bodies.com + (origin - here)) - com
    ang = small_rotation(bodies.rot, pose.rot)
    error = own @ Motion(ang, shift - (ang ^ com))
    spin, lin = bodies.velocity
    motion = own @ Motion(spin, lin - (spin ^ com))
    return to_nodes(nodes, error), to_nodes(nodes, motion)
