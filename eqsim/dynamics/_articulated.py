r"""The articulated-body algorithm as a linear solver: $M x = \tau$ in O(n).

Velocities do not enter: what they cause stands on the right hand side. Stiffness of
contacts adds to the inertia of a link, stiffness of joints to the armature, so that the
Newton systems $(M + J^T W J)\,x = b$ of the contact solver are solved by the same pass.

Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 7.3; in world axes, where
the transforms between links disappear and a one-degree-of-freedom joint is a rank-one
downdate.
"""

from typing import NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Kinematics
from ..kinematics._recursion import from_parents, rows, to_parents
from ..model import concatenate, take, Tree
from ..spatial import (
    ArticulatedInertia,
    congruence,
    diagonal,
    Force,
    free_factor,
    free_solve,
    FreeFactor,
    Motion,
    RigidInertia,
    Vec3,
)


class Factor(NamedTuple):
    """A factorized joint-space matrix; per level, nodes that are not free."""

    axis: list[Motion]
    force: list[Force]
    inverse: list
    free: FreeFactor | None


def level_rows(tree: Tree, depth: int) -> tuple[int, int, int]:
    """How many free nodes a level has, and its rows among the nodes that are not."""
    start, stop = tree.levels[depth]
    num_free = max(0, min(stop, tree.num_free) - start)
    return num_free, start + num_free - tree.num_free, stop - tree.num_free


def factor(
    tree: Tree,
    kin: Kinematics,
    inertia: RigidInertia,
    diagonal,
    stiffness: ArticulatedInertia | None = None,
) -> Factor:
    """Factorizes $M$.

    **Arguments:**

    - `inertia`: of each node alone, without what it carries, `(nnode, *batch)`.
    - `stiffness`: added to it.
    - `diagonal`: armature and the like, `(nv, *batch)`.
    """
    axes, forces, inverses, free, carried = [], [], [], None, None
    for depth in reversed(range(len(tree.levels))):
        num_free, start, stop = level_rows(tree, depth)
        total = _total(tree, depth, inertia, stiffness, carried)
        axis = rows(kin.axis, start, stop)
        own = rows(total, num_free, num_free + stop - start)
        armature = take(
            diagonal, tree.dofs[start + tree.num_free : stop + tree.num_free]
        )
        force, inverse = _response(own, axis, armature)
        if num_free:
            root = _free_armature(tree, kin, rows(total, 0, num_free), diagonal)
            free = free_factor(root)
        carried = None
        if depth > 0:
            carried = _pass_down(tree, depth, own, force, inverse)
        axes.append(axis)
        forces.append(force)
        inverses.append(inverse)
    return Factor(axes[::-1], forces[::-1], inverses[::-1], free)


def _total(tree: Tree, depth: int, inertia: RigidInertia, *more):
    """Inertia, stiffness and what is carried, of the nodes of a level."""
    stiffness, carried = more
    level = tree.levels[depth]
    total = rows(inertia, *level).articulated()
    if stiffness is not None:
        total = total + rows(stiffness, *level)
    return total if carried is None else total + carried


def _response(inertia: ArticulatedInertia, axis: Motion, armature):
    """Force along a joint axis at unit acceleration, and the inverse of its share."""
    force = inertia @ axis
    return force, 1.0 / ((axis | force) + armature)


def _pass_down(tree: Tree, depth: int, inertia, force: Force, inverse):
    """What a level adds to the inertia of the level below it."""
    return to_parents(tree, depth, inertia.downdate(force, inverse))


def _free_armature(tree, kin, inertia: ArticulatedInertia, armature):
    n = tree.num_free
    column = lambda k: take(armature, [dof + k for dof in tree.dofs[:n]])
    rot = take(kin.pose.rot, range(n))
    ang = congruence(rot, diagonal(column(3), column(4), column(5)))
    lin = diagonal(column(0), column(1), column(2))
    return ArticulatedInertia(inertia.ang + ang, inertia.cross, inertia.lin + lin)


def solve(tree: Tree, kin: Kinematics, factored: Factor, tau, force: Force | None):
    """Solves $M x = \tau + J^T f$.

    **Arguments:**

    - `tau`: `(nv, *batch)`.
    - `force`: on each node, about the origin of its tree, `(nnode, *batch)`.

    **Returns:** `x`, and the motion $J x$ of each node.
    """
    pulls, carried = [], None
    for depth in reversed(range(len(tree.levels))):
        load = None if force is None else rows(force, *tree.levels[depth])
        pull, load, carried = _gather_level(tree, depth, factored, tau, load, carried)
        pulls.append(pull)
    return _accelerate(tree, kin, factored, tau, pulls[::-1], load)


def _gather_level(tree: Tree, depth: int, factored: Factor, tau, load, carried):
    """Joint accelerations of a level as if it hung on the world, its load, and the
    force that it passes to the level below."""
    num_free, start, stop = level_rows(tree, depth)
    if carried is not None:
        load = carried if load is None else load + carried
    pull = take(tau, tree.dofs[start + tree.num_free : stop + tree.num_free])
    own = None
    if load is not None:
        own = rows(load, num_free, num_free + stop - start)
        pull = pull + (factored.axis[depth] | own)
    pull = pull * factored.inverse[depth]
    if depth == 0:
        return pull, load, None
    passed = factored.force[depth] * -pull
    passed = passed if own is None else passed + own
    return pull, load, to_parents(tree, depth, passed)


def _accelerate(tree: Tree, kin, factored: Factor, tau, pulls, load):
    """The outward pass: accelerations from the root on."""
    levels, rates = [], []
    for depth, pull in enumerate(pulls):
        num_free = level_rows(tree, depth)[0]
        parts = []
        if num_free:
            root = _free_force(tree, kin, tau)
            parts.append(_fall(factored.free, root, load))
        if depth > 0:
            above = from_parents(tree, depth, levels[-1])
            pull, motion = _follow(above, factored, depth, pull)
            parts.append(motion)
        else:
            parts.append(factored.axis[0] * pull)
        rates.append(pull)
        levels.append(concatenate(parts))
    motion = concatenate(levels)
    return _to_dofs(tree, kin, rates, motion), motion


def _fall(factored: FreeFactor, force: Force, load: Force | None) -> Motion:
    """Acceleration of free nodes."""
    if load is not None:
        force = force + rows(load, 0, force.lin.x.shape[0])
    return free_solve(factored, force)


def _follow(above: Motion, factored: Factor, depth: int, pull):
    """Acceleration of a level, given that of the nodes that carry it."""
    pull = pull - (above | factored.force[depth]) * factored.inverse[depth]
    return pull, above + (factored.axis[depth] * pull)


def _free_force(tree: Tree, kin: Kinematics, tau) -> Force:
    n = tree.num_free
    column = lambda k: take(tau, [dof + k for dof in tree.dofs[:n]])
    rot = take(kin.pose.rot, range(n))
    ang = rot @ Vec3(column(3), column(4), column(5))
    return Force(ang, Vec3(column(0), column(1), column(2)))


def _to_dofs(tree: Tree, kin: Kinematics, rates, motion: Motion):
    """Joint accelerations in the order of `qd`."""
    n = tree.num_free
    root = take(motion, range(n))
    ang = take(kin.pose.rot, range(n)).T @ root.ang
    columns = [*root.lin, *ang]
    dofs = [dof + k for k in range(6) for dof in tree.dofs[:n]] + list(tree.dofs[n:])
    parts = [x for x in [*columns, *rates] if x.shape[0]]
    batch = jnp.broadcast_shapes(*(x.shape[1:] for x in parts))
    parts = [jnp.broadcast_to(x, (x.shape[0], *batch)) for x in parts]
    order = sorted(range(len(dofs)), key=dofs.__getitem__)
    return take(jnp.concatenate(parts), order)


def project(tree: Tree, kin: Kinematics, force: Force):
    r"""$J^T f$: the joint forces of forces that already include what each node carries.

    **Arguments:**

    - `force`: `(nnode, *batch)`, summed towards the root (see `ascend`).

    **Returns:** `(nv, *batch)`.
    """
    n = tree.num_free
    root = take(force, range(n))
    ang = take(kin.pose.rot, range(n)).T @ root.ang
    rest = kin.axis | take(force, range(n, tree.size))
    dofs = [dof + k for k in range(6) for dof in tree.dofs[:n]] + list(tree.dofs[n:])
    parts = concatenate([*root.lin, *ang, rest])
    return take(parts, sorted(range(len(dofs)), key=dofs.__getitem__))
