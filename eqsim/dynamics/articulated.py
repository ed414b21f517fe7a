r"""Inertias of the nodes, and the articulated-body algorithm as a linear solver: $M x =
\tau$ in O(n).

The links that ride on a node are one rigid body. Velocities do not enter: the forces that
they cause stand on the right hand side. Stiffness of contacts adds to the inertia of a link,
stiffness of joints to the armature, so that the Newton systems $(M + J^T W J)\,x = b$ of the
contact solver are solved by the same pass.

Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 7.3; in world axes, where
the transforms between links disappear and a joint with one degree of freedom is a
rank-one downdate.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..kinematics.link_motion import (
    add,
    Frames,
    join_dofs,
    Kinematics,
    Level,
    level_rows,
    levels,
    moving_links,
    quaternions,
    rows,
    split_dofs,
    sum_over_children,
)
from ..model import System, Tree
from ..model.arrays import accumulate, concatenate, take
from ..spatial import Force, Motion, quaternion_matrix, Vec3
from ..spatial.rotations import normalize4
from ..spatial.vectors import (
    ArticulatedInertia,
    congruence,
    diagonal,
    free_factor,
    free_solve,
    FreeFactor,
    rigid_inertia,
    RigidInertia,
    Sym3,
    vec3,
)


# Inertias.


class NodeBodies(NamedTuple):
    """Rigid bodies in the frames of their nodes.

    - `mass`: kg.
    - `com`: center of mass, m.
    - `rotational`: inertia about the center of mass, kg m^2.
    """

    mass: Any
    com: Vec3
    rotational: Sym3


def node_bodies(sys: System, tree: Tree, fixed: Frames) -> NodeBodies:
    """Combine the links that ride on each node into one body."""
    links = sys.links
    moments = diagonal(*(links.inertia[:, k] for k in range(3)))
    axes = quaternion_matrix(normalize4(quaternions(links.inertia_quat)))
    rotational = congruence(fixed.link.rot @ axes, moments)
    com = fixed.link.point(vec3(links.com))
    total = accumulate(
        rigid_inertia(links.mass, com, rotational), tree.link_nodes, tree.size
    )
    center = total.moment * (1.0 / jnp.where(total.mass == 0.0, 1.0, total.mass))
    zero = Sym3(*(jnp.zeros_like(x) for x in total.ang))
    steiner = rigid_inertia(total.mass, center, zero).ang
    return NodeBodies(total.mass, center, total.ang - steiner)


def node_inertias(bodies: NodeBodies, kin: Kinematics) -> RigidInertia:
    """Compute inertias in world axes about the origins of the trees."""
    com = kin.arm + (kin.pose.rot @ bodies.com)
    rotational = congruence(kin.pose.rot, bodies.rotational)
    mass = bodies.mass + jnp.zeros_like(com.x)
    return rigid_inertia(mass, com, rotational)


def link_centers(sys: System, tree: Tree, fixed: Frames, kin: Kinematics) -> Vec3:
    """Compute centers of mass of the moving links, in world axes about the origins of
    the trees; one row for each of `moving_links`."""
    links, nodes = moving_links(tree)
    local = take(fixed.link.point(vec3(sys.links.com)), links)
    return take(kin.arm, nodes) + (take(kin.pose.rot, nodes) @ local)


# Inverse of the mass matrix.


class JointFactor(NamedTuple):
    r"""The joints of one level, without free joints.

    - `axis`: motion subspace $S$.
    - `force`: $U = I^A S$, force on the link at unit joint acceleration.
    - `inverse`: $d^{-1} = (S^T U + \text{armature})^{-1}$.
    """

    axis: Motion
    force: Force
    inverse: Any


class Factor(NamedTuple):
    """A factorized joint-space matrix.

    - `joints`: one entry per level, roots first.
    - `free`: articulated inertias of the free joints, factorized.
    """

    joints: list[JointFactor]
    free: FreeFactor | None


def factor(
    tree: Tree,
    kin: Kinematics,
    inertia: RigidInertia,
    diagonal,
    stiffness: ArticulatedInertia | None = None,
) -> Factor:
    """Factorize $M$, or $M$ plus a stiffness.

    **Arguments:**

    - `inertia`: inertia of each node alone, without its subtree, `(nnode, *batch)`.
    - `diagonal`: armature and joint stiffness, `(nv, *batch)`.
    - `stiffness`: added to `inertia`.
    """
    own = add(inertia.articulated(), stiffness)
    armature = split_dofs(tree, diagonal)[2]
    joints, total, carried = [], own, None
    for level in reversed(levels(tree)):
        total = add(level_rows(own, level), carried)
        below = _single(level, total)
        axis = _joint_rows(kin.axis, level)
        force = below @ axis
        inverse = 1.0 / (axis.dot(force) + _joint_rows(armature, level))
        joints.append(JointFactor(axis, force, inverse))
        if level.depth:
            carried = sum_over_children(level, below.downdate(force, inverse))
    free = None
    if tree.num_free:
        root = rows(total, 0, tree.num_free)
        free = free_factor(root + _free_armature(tree, kin, diagonal))
    return Factor(joints[::-1], free)


def _single(level: Level, values):
    """Return the rows of the nodes of a level that are not free."""
    return rows(values, level.num_free, level.stop - level.start)


def _joint_rows(values, level: Level):
    """Return the rows of a level, of arrays with one row per node that is not free."""
    return rows(values, level.joint_start, level.joint_stop)


def _free_armature(tree: Tree, kin: Kinematics, armature) -> ArticulatedInertia:
    lin, ang, _ = split_dofs(tree, armature)
    rot = take(kin.pose.rot, range(tree.num_free))
    none = jtu.tree_map(jnp.zeros_like, rot)
    return ArticulatedInertia(congruence(rot, diagonal(*ang)), none, diagonal(*lin))


def solve(tree: Tree, kin: Kinematics, factored: Factor, tau, force: Force | None):
    r"""Solve $M x = \tau + J^T f$.

    **Arguments:**

    - `tau`: joint forces, `(nv, *batch)`.
    - `force`: force on each node about the origin of its tree, `(nnode, *batch)`.

    **Returns:** `x`, and the motion $J x$ of each node.
    """
    joint_tau = split_dofs(tree, tau)[2]
    if force is None:
        force = _no_force(kin)
    pulls, load, carried = [], force, None
    for level in reversed(levels(tree)):
        axis, response, inverse = factored.joints[level.depth]
        load = add(level_rows(force, level), carried)
        own = _single(level, load)
        pull = (axis.dot(own) + _joint_rows(joint_tau, level)) * inverse
        pulls.append(pull)
        carried = sum_over_children(level, own - (response * pull))
    free = _free_motion(tree, kin, factored, tau, load)
    return _accelerate(tree, kin, factored, pulls[::-1], free)


def _no_force(kin: Kinematics) -> Force:
    zero = jtu.tree_map(jnp.zeros_like, kin.arm)
    return Force(zero, zero)


def _free_motion(tree: Tree, kin, factored: Factor, tau, load: Force) -> list[Motion]:
    """Compute the accelerations of free joints, given the loads of the roots."""
    if factored.free is None:
        return []
    lin, ang, _ = split_dofs(tree, tau)
    rot = take(kin.pose.rot, range(tree.num_free))
    load = rows(load, 0, tree.num_free)
    return [free_solve(factored.free, Force(rot @ ang, lin) + load)]


def _accelerate(tree: Tree, kin: Kinematics, factored: Factor, pulls, free):
    """Compute accelerations from the roots outward.

    **Arguments:**

    - `pulls`: for each level, joint accelerations while the parents stand still.
    - `free`: motions of the free joints.
    """
    motions, rates = [], []
    for level in levels(tree):
        axis, response, inverse = factored.joints[level.depth]
        rate = pulls[level.depth]
        if level.depth:
            above = take(motions[-1], level.parents)
            rate = rate - above.dot(response) * inverse
            motions.append(above + (axis * rate))
        else:
            motions.append(concatenate([*free, axis * rate]))
        rates.append(rate)
    motion, n = concatenate(motions), tree.num_free
    root = rows(motion, 0, n)
    ang = take(kin.pose.rot, range(n)).T @ root.ang
    return join_dofs(tree, root.lin, ang, concatenate(rates)), motion


def project(tree: Tree, kin: Kinematics, force: Force):
    r"""Compute the joint forces $J^T f$.

    **Arguments:**

    - `force`: force on the subtree of each node, `(nnode, *batch)` (see `ascend`).

    **Returns:** joint forces, `(nv, *batch)`.
    """
    n = tree.num_free
    root = rows(force, 0, n)
    ang = take(kin.pose.rot, range(n)).T @ root.ang
    return join_dofs(tree, root.lin, ang, kin.axis.dot(rows(force, n, tree.size)))
