r"""Inverse weights: how light a link or a degree of freedom is at the reference pose.

MuJoCo scales the softness of constraints by diagonal entries of $M^{-1}$ and of
$J M^{-1} J^T$ at the reference pose (`dof_invweight0`, `body_invweight0`). They are
computed here from the primary parameters in O(n), by carrying the inverse inertia seen
at each node outward:

$\Omega_i = P_i\,\Omega_{\lambda(i)} P_i^T + S_i D_i^{-1} S_i^T,
\qquad P_i = 1 - S_i D_i^{-1} U_i^T$

(Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 10.2, on inverse
operational space inertia.)
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from .._staging import stage
from ..kinematics._forward import Frames, Kinematics, kinematics
from ..kinematics._recursion import from_parents
from ..model import concatenate, JointKind, put, System, take, Tree
from ..spatial import (
    ArticulatedInertia,
    cholesky_solve,
    Force,
    FreeFactor,
    Mat3,
    Motion,
    Sym3,
    Vec3,
    vec3,
)
from ._articulated import Factor, factor, level_rows
from ._inertia import node_inertias, NodeBodies


class InverseWeights(NamedTuple):
    """Per degree of freedom, `(nv, *batch)`; and of each link, 1/kg, `(nlink,
    *batch)`."""

    dof: Any
    link: Any


def inverse_weights(
    sys: System, tree: Tree, fixed: Frames, bodies: NodeBodies
) -> InverseWeights:
    """Inverse weights at the reference coordinates."""
    kin = kinematics(sys, tree, fixed, sys.joints.ref)
    inertia = node_inertias(bodies, kin)
    factored = factor(tree, kin, inertia, sys.joints.armature)
    levels, dofs = [], []
    for depth in range(len(tree.levels)):
        level, weights = _level_weights(tree, depth, factored, levels)
        levels.append(level)
        dofs.append(weights)
    seen = concatenate(levels)
    nodes = concatenate(dofs)
    return InverseWeights(
        _dof(sys, tree, seen, nodes), _link(sys, tree, fixed, kin, seen)
    )


@stage
def _level_weights(tree: Tree, depth: int, factored: Factor, levels):
    num_free = level_rows(tree, depth)[0]
    axis, force = factored.axis[depth], factored.force[depth]
    d = factored.inverse[depth]
    if depth > 0:
        above = from_parents(tree, depth, levels[-1])
        y = _times(above, force)
        weight = d + d * d * (y | force)
        z = (y * d) - (axis * (0.5 * weight))
        return _rank_two(above, axis, z), weight
    own = _rank_two(None, axis, axis * (-0.5 * d))
    if not num_free or factored.free is None:
        return own, d
    free = _inverse(factored.free)
    zero = jnp.zeros_like(free.ang.xx)
    return concatenate([free, own]), concatenate([zero, d])


def _times(omega: ArticulatedInertia, force: Force) -> Motion:
    ang, lin = omega @ Motion(*force)
    return Motion(ang, lin)


def _rank_two(omega, s: Motion, z: Motion) -> ArticulatedInertia:
    """`omega - s z^T - z s^T`."""
    a, b, c, d = s.ang, s.lin, z.ang, z.lin
    out = ArticulatedInertia(
        _symmetric(a, c),
        Mat3(*(p * q + r * t for p, r in zip(a, c) for q, t in zip(d, b))),
        _symmetric(b, d),
    )
    if omega is None:
        return ArticulatedInertia(out.ang * -1.0, out.cross * -1.0, out.lin * -1.0)
    return ArticulatedInertia(
        omega.ang - out.ang, omega.cross - out.cross, omega.lin - out.lin
    )


def _symmetric(a: Vec3, b: Vec3) -> Sym3:
    return Sym3(
        2.0 * a.x * b.x,
        2.0 * a.y * b.y,
        2.0 * a.z * b.z,
        a.x * b.y + a.y * b.x,
        a.x * b.z + a.z * b.x,
        a.y * b.z + a.z * b.y,
    )


def _inverse(f: FreeFactor) -> ArticulatedInertia:
    zero, one = jnp.zeros_like(f.ang.xx), jnp.ones_like(f.ang.xx)
    axes = (Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one))
    ang = [cholesky_solve(f.ang, e) for e in axes]
    lin = [cholesky_solve(f.lin, e) for e in axes]
    # Columns of the coupling, and of the angular response to a linear force.
    w = f.coupling.columns
    cross = [-cholesky_solve(f.ang, column) for column in w]
    sym = lambda c: Sym3(c[0].x, c[1].y, c[2].z, c[1].x, c[2].x, c[2].y)
    back = [f.coupling.T @ column for column in cross]
    return ArticulatedInertia(
        sym(ang),
        Mat3(*(c.x for c in cross), *(c.y for c in cross), *(c.z for c in cross)),
        sym([a - b for a, b in zip(lin, back)]),
    )


@stage
def _dof(sys: System, tree: Tree, seen: ArticulatedInertia, nodes):
    """Averages over the axes of a joint, in the order of `qd`."""
    weights: list[Any] = [None] * _nv(tree)
    for i, dof in enumerate(tree.dofs):
        if tree.kinds[i] is JointKind.FREE:
            ang, _, lin = take(seen, [i])
            weights[dof : dof + 3] = 3 * [(lin.xx + lin.yy + lin.zz) * (1 / 3)]
            weights[dof + 3 : dof + 6] = 3 * [(ang.xx + ang.yy + ang.zz) * (1 / 3)]
        elif tree.kinds[i] is JointKind.SPHERICAL:
            axes = [j for j, joint in enumerate(tree.joints) if joint == tree.joints[i]]
            rows = [nodes[j : j + 1] for j in axes]
            weights[dof] = sum(rows[1:], rows[0]) * (1 / 3)
        elif sys.links.translating[tree.links[i]]:
            weights[dof] = _inverse_mass(sys, [tree.links[i]])
        else:
            weights[dof] = nodes[i : i + 1]
    return concatenate(weights)


def _inverse_mass(sys: System, links):
    mass = take(sys.links.mass, links)
    return 1.0 / jnp.where(mass == 0.0, 1.0, mass)


def _nv(tree: Tree) -> int:
    return tree.size + 5 * tree.num_free


@stage
def _link(sys, tree: Tree, fixed: Frames, kin: Kinematics, seen: ArticulatedInertia):
    """A third of the trace of the linear block at the centre of mass of each link."""
    moving = [i for i, node in enumerate(tree.link_nodes) if node >= 0]
    nodes = [tree.link_nodes[i] for i in moving]
    place = fixed.link.pos + (fixed.link.rot @ vec3(sys.links.com))
    point = take(kin.arm, nodes) + (take(kin.pose.rot, nodes) @ take(place, moving))
    (a, c, lin), (x, y, z) = take(seen, nodes), point
    trace = (a.xx + a.yy + a.zz) * (point | point) - (point | (a @ point))
    trace += 2.0 * (x * (c.zy - c.yz) + y * (c.xz - c.zx) + z * (c.yx - c.xy))
    weight = (trace + lin.xx + lin.yy + lin.zz) * (1 / 3)
    sliding = [i for i in moving if sys.links.translating[i]]
    rest = [k for k, i in enumerate(moving) if not sys.links.translating[i]]
    parts = [take(weight, rest), _inverse_mass(sys, sliding)]
    index = [moving[k] for k in rest] + sliding
    return put(concatenate(parts), index, len(tree.link_nodes))
