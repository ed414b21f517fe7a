r"""Inverse weights: how light a link or a degree of freedom is at the reference pose.

MuJoCo scales the softness of constraints by averages of diagonal entries of $M^{-1}$
and of $J M^{-1} J^T$ at the reference pose (`dof_invweight0`, `body_invweight0`). They
are computed here from the primary parameters, whenever a pipeline is called, and never
stored.

With the inward pass of the articulated-body algorithm ($U = I^A S$, $d = S^T U + $
armature), the inverse inertia of a link, $\Omega = J M^{-1} J^T$, follows from that of
the link below it, in O(n):

$\Omega_i = L \Omega_p L^T + S d^{-1} S^T, \quad L = 1 - S d^{-1} U^T, \qquad
(M^{-1})_{ii} = d^{-1} + d^{-2}\, U^T \Omega_p U$

Sources: MuJoCo documentation, *Computation*, "Parameters"; `engine_setconst.c`. Kreutz-
Delgado, Jain and Rodriguez, *Recursive formulation of operational space control*, 1992.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Frames, Kinematics, kinematics
from ..kinematics._recursion import from_parents, rows
from ..model import concatenate, JointKind, put, System, take, Tree
from ..spatial import (
    ArticulatedInertia,
    Force,
    free_solve,
    FreeFactor,
    Mat3,
    matrix_from_columns,
    Motion,
    Sym3,
    Vec3,
    vec3,
)
from ._articulated import Factor, factor, level_rows
from ._inertia import node_inertias, NodeBodies


class InverseWeights(NamedTuple):
    """Per degree of freedom `(nv, *batch)`, and of each link `(nlink, *batch)`."""

    dof: Any
    link: Any


def inverse_weights(
    sys: System, tree: Tree, fixed: Frames, bodies: NodeBodies
) -> InverseWeights:
    """Inverse weights at the reference coordinates."""
    kin = kinematics(sys, tree, fixed, sys.joints.ref)
    inertia = node_inertias(bodies, kin)
    armature = sys.joints.armature + jnp.zeros_like(inertia.mass[:1])
    factored = factor(tree, kin, inertia, armature)
    inverse, joints = _inverse_inertias(tree, factored)
    root = rows(inverse, 0, tree.num_free)
    return InverseWeights(
        _dof(sys, tree, root, joints), _link(sys, tree, fixed, kin, inverse)
    )


def _inverse_inertias(tree: Tree, factored: Factor):
    r"""$\Omega$ of each node about the origin of its tree, as a symmetric 6x6 matrix
    that makes motions of forces; and $(M^{-1})_{ii}$ of each node that is not free."""
    levels, joints = [], []
    for depth in range(len(tree.levels)):
        parts = []
        if level_rows(tree, depth)[0]:
            assert factored.free is not None, "free nodes are factorized"
            parts.append(_free(factored.free))
        above = from_parents(tree, depth, levels[-1]) if depth > 0 else None
        own, weight = _outward(factored, depth, above)
        parts.append(own)
        joints.append(weight)
        levels.append(concatenate(parts))
    return concatenate(levels), concatenate(joints)


def _free(factored: FreeFactor) -> ArticulatedInertia:
    """The inverse of a factorized inertia, column by column."""
    one, zero = jnp.ones_like(factored.lin.xx), jnp.zeros_like(factored.lin.xx)
    none = Vec3(zero, zero, zero)
    units = (Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one))
    ang = [free_solve(factored, Force(unit, none)).ang for unit in units]
    by_lin = [free_solve(factored, Force(none, unit)) for unit in units]
    cross = [motion.ang for motion in by_lin]
    return ArticulatedInertia(
        _symmetric(*ang),
        matrix_from_columns(*cross),
        _symmetric(*(m.lin for m in by_lin)),
    )


def _symmetric(x: Vec3, y: Vec3, z: Vec3) -> Sym3:
    return Sym3(x.x, y.y, z.z, x.y, x.z, y.z)


def _outward(factored: Factor, depth: int, above: ArticulatedInertia | None):
    r"""One level: $\Omega_p - S z^T - z S^T$, with $z = d^{-1} \Omega_p U - \tfrac{1}{2}
    (M^{-1})_{ii} S$."""
    axis, force = factored.axis[depth], factored.force[depth]
    inverse = factored.inverse[depth]
    if above is None:
        z = axis * (-0.5 * inverse)
        none = jnp.zeros_like(inverse)
        above = ArticulatedInertia(
            Sym3(*6 * [none]), Mat3(*9 * [none]), Sym3(*6 * [none])
        )
        return _rank_two(above, axis, z), inverse
    # A matrix of the same kind, which here makes a motion of a force.
    moved = above @ Motion(force.ang, force.lin)
    motion = Motion(moved.ang, moved.lin)
    weight = inverse + inverse**2 * (motion | force)
    z = (motion * inverse) - (axis * (0.5 * weight))
    return _rank_two(above, axis, z), weight


def _rank_two(above: ArticulatedInertia, s: Motion, z: Motion) -> ArticulatedInertia:
    (a, b), (c, d) = s, z
    cross = Mat3(*(u * y + w * x for u, w in zip(a, c) for x, y in zip(b, d)))
    return ArticulatedInertia(
        above.ang - _twice(a, c), above.cross - cross, above.lin - _twice(b, d)
    )


def _twice(a: Vec3, b: Vec3) -> Sym3:
    """$a b^T + b a^T$."""
    entry = lambda i, j: a[i] * b[j] + b[i] * a[j]
    return Sym3(
        *(entry(i, j) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))
    )


def _dof(sys: System, tree: Tree, root: ArticulatedInertia, joints):
    """Diagonal entries, averaged over the axes of a joint."""
    n = tree.num_free
    weights: list[Any] = sys.nv * [None]
    for k, dof in enumerate(tree.dofs[:n]):
        weights[dof : dof + 3] = 3 * [_trace(root.lin)[k][None] * (1 / 3)]
        weights[dof + 3 : dof + 6] = 3 * [_trace(root.ang)[k][None] * (1 / 3)]
    for i, dof in list(enumerate(tree.dofs))[n:]:
        weights[dof] = joints[i - n][None]
    for i, dof in list(enumerate(tree.dofs))[n:]:
        if tree.kinds[i] is JointKind.SPHERICAL and tree.axes[i] == 0:
            weights[dof : dof + 3] = 3 * [sum(weights[dof : dof + 3]) * (1 / 3)]
        elif sys.links.translating[tree.links[i]]:
            weights[dof] = _inverse_mass(sys, [tree.links[i]])
    return concatenate(weights)


def _trace(matrix: Sym3):
    return matrix.xx + matrix.yy + matrix.zz


def _inverse_mass(sys: System, links):
    mass = take(sys.links.mass, links)
    return 1.0 / jnp.where(mass == 0.0, 1.0, mass)


def _link(sys, tree: Tree, fixed: Frames, kin: Kinematics, inverse: ArticulatedInertia):
    r"""A third of the trace of $J M^{-1} J^T$ at the center of mass of each link."""
    moving = [i for i, node in enumerate(tree.link_nodes) if node >= 0]
    nodes = [tree.link_nodes[i] for i in moving]
    place = fixed.link.pos + (fixed.link.rot @ vec3(sys.links.com))
    point = take(kin.arm, nodes) + (take(kin.pose.rot, nodes) @ take(place, moving))
    ang, cross, lin = take(inverse, nodes)
    turn = Vec3(cross.zy - cross.yz, cross.xz - cross.zx, cross.yx - cross.xy)
    trace = _trace(lin) + 2.0 * (point | turn)
    trace = trace + _trace(ang) * (point | point) - (point | (ang @ point))
    weight = trace * (1 / 3)
    sliding = [i for i in moving if sys.links.translating[i]]
    rest = [k for k, i in enumerate(moving) if not sys.links.translating[i]]
    parts = [take(weight, rest), _inverse_mass(sys, sliding)]
    index = [moving[k] for k in rest] + sliding
    return put(concatenate(parts), index, len(tree.link_nodes))
