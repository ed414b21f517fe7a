r"""The articulated-body algorithm as a linear solver: $M x = \tau$ in O(n).

Velocities do not enter: the forces that they cause stand on the right hand side.
Stiffness of contacts adds to the inertia of a link, stiffness of joints to the
armature, so that the Newton systems $(M + J^T W J)\,x = b$ of the contact solver are
solved by the same pass.

Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 7.3; in world axes, where
the transforms between links disappear and a joint with one degree of freedom is a
rank-one downdate.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..kinematics._forward import Kinematics
from ..kinematics._recursion import add, level_rows, rows, sum_over_children
from ..kinematics._structure import join_dofs, Level, levels, split_dofs
from ..model import Tree
from ..model._gather import concatenate, take
from ..spatial import ArticulatedInertia, Force, Motion, RigidInertia
from ..spatial._spatial import free_factor, free_solve, FreeFactor
from ..spatial._vector import congruence, diagonal


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
        inverse = 1.0 / ((axis | force) + _joint_rows(armature, level))
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
        pull = ((axis | own) + _joint_rows(joint_tau, level)) * inverse
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
            rate = rate - (above | response) * inverse
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
    return join_dofs(tree, root.lin, ang, kin.axis | rows(force, n, tree.size))
