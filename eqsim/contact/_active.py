"""Rows at an acceleration: residuals, active sets, forces, stiffness."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._articulated import project
from ..kinematics._forward import Kinematics
from ..kinematics._recursion import ascend
from ..model import accumulate, concatenate, take
from ..spatial import (
    ArticulatedInertia,
    Force,
    force_at,
    Motion,
    point_stiffness,
    Sym3,
    Vec3,
)
from ._rows import PointRows, Rows
from ._structure import Structure


class Values(NamedTuple):
    """One array per row in the layout of `Rows`; contacts have one per edge of the
    pyramid."""

    anchored: tuple
    moving: tuple
    lower: Any
    upper: Any
    friction: Any
    ball: Any


def edges(normal, side1, side2) -> tuple:
    """Return the residuals of the four edges of a pyramid."""
    return normal + side1, normal - side1, normal + side2, normal - side2


def edge_forces(a, b, c, d) -> tuple:
    """Sum forces of the edges along the normal and the two sides."""
    return a + b + c + d, a - b, c - d


def contact_force(rows: PointRows, edges: tuple) -> Vec3:
    """Compute the contact forces, given those of the edges."""
    normal, side1, side2 = edge_forces(*edges)
    return (rows.normal * normal) + (rows.side1 * side1) + (rows.side2 * side2)


def residuals(structure: Structure, rows: Rows, motion: Motion, qdd) -> Values:
    r"""Compute $x = J a - a_\mathrm{ref}$, given the motion $J a$ of each node."""
    arms = rows.moving.arms
    first, second = structure.moving_nodes
    anchored = take(motion, structure.anchored).at(rows.anchored.arms[0])
    moving = take(motion, second).at(arms[1]) - take(motion, first).at(arms[0])
    limited = take(qdd, structure.limited.dofs)
    balls = structure.balls.dofs
    spin = Vec3(*(take(qdd, [dof + k for dof in balls]) for k in range(3)))
    return Values(
        _edge_residuals(rows.anchored, anchored),
        _edge_residuals(rows.moving, moving),
        limited + rows.lower.offset,
        rows.upper.offset - limited,
        take(qdd, structure.friction_dofs) + rows.friction.offset,
        rows.ball.offset - (rows.ball.axis | spin),
    )


def _edge_residuals(rows: PointRows, rate: Vec3) -> tuple:
    axes = rows.normal, rows.side1, rows.side2
    along = ((axis | rate) + x for axis, x in zip(axes, rows.offsets, strict=True))
    return edges(*along)


def offsets(rows: Rows) -> Values:
    """Return the residuals at zero acceleration."""
    return Values(
        edges(*rows.anchored.offsets),
        edges(*rows.moving.offsets),
        rows.lower.offset,
        rows.upper.offset,
        rows.friction.offset,
        rows.ball.offset,
    )


def active_set(rows: Rows, x: Values) -> Values:
    """Return the active set: 1 where a row is stiff, 0 where it is not; for dry
    friction 0 where it is stiff, -1 and 1 where it slides."""
    force = rows.friction.weight * x.friction
    ahead, behind = (force >= rows.largest), (force <= -rows.largest)
    return Values(
        active_edges(rows.anchored.weight, x.anchored),
        active_edges(rows.moving.weight, x.moving),
        _is_active(rows.lower.weight, x.lower),
        _is_active(rows.upper.weight, x.upper),
        ahead.astype(force.dtype) - behind.astype(force.dtype),
        _is_active(rows.ball.weight, x.ball),
    )


def active_edges(weight, edges: tuple) -> tuple:
    """Return which edges of a contact are stiff, given their residuals."""
    return tuple(_is_active(weight, x) for x in edges)


def _is_active(weight, x):
    return (weight * x < 0.0).astype(x.dtype)


def changes(new, old, x, scale):
    """Return which rows have changed beyond rounding between two active sets.

    **Arguments:**

    - `x`: residual at the new one.
    - `scale`: size of the terms that were added up to `x`.
    """
    tiny = 64 * float(jnp.finfo(x.dtype).eps)
    return (new != old) & (jnp.abs(x) > tiny * (scale + jnp.abs(x - scale)))


def stiffnesses(rows: Rows, active: Values) -> Values:
    """Return the weight of each row where it is stiff, else zero."""
    return Values(
        edge_stiffnesses(rows.anchored.weight, active.anchored),
        edge_stiffnesses(rows.moving.weight, active.moving),
        rows.lower.weight * active.lower,
        rows.upper.weight * active.upper,
        rows.friction.weight * (1.0 - jnp.abs(active.friction)),
        rows.ball.weight * active.ball,
    )


def edge_stiffnesses(weight, active: tuple) -> tuple:
    """Return the weights of the edges of a contact where they are stiff, else zero."""
    return tuple(weight * one for one in active)


def forces(rows: Rows, active: Values, x: Values) -> Values:
    """Compute row forces for a fixed active set; they are linear in `x`."""
    w = stiffnesses(rows, active)
    sliding = active.friction * rows.largest
    return Values(
        tuple(-a * b for a, b in zip(w.anchored, x.anchored, strict=True)),
        tuple(-a * b for a, b in zip(w.moving, x.moving, strict=True)),
        -w.lower * x.lower,
        -w.upper * x.upper,
        -w.friction * x.friction - sliding,
        -w.ball * x.ball,
    )


def generalized(structure: Structure, rows: Rows, force: Values) -> tuple[Force, Any]:
    r"""Sum row forces into forces on nodes about the origins of their trees, and joint
    forces."""
    anchored = contact_force(rows.anchored, force.anchored)
    moving = contact_force(rows.moving, force.moving)
    arms = rows.moving.arms
    parts = [
        force_at(rows.anchored.arms[0], anchored),
        force_at(arms[0], -moving),
        force_at(arms[1], moving),
    ]
    first, second = structure.moving_nodes
    nodes = [*structure.anchored, *first, *second]
    balls = structure.balls.dofs
    torque = rows.ball.axis * -force.ball
    dofs = [*structure.limited.dofs, *structure.friction_dofs]
    dofs += [dof + k for k in range(3) for dof in balls]
    joint = concatenate([force.lower - force.upper, force.friction, *torque])
    return (
        accumulate(concatenate(parts), nodes, structure.tree.size),
        accumulate(joint, dofs, structure.nv),
    )


def constraint_forces(structure: Structure, kin: Kinematics, rows: Rows, force: Values):
    r"""Compute the joint forces $J^T f$ of row forces, `(nv, *batch)`."""
    on_nodes, on_joints = generalized(structure, rows, force)
    tree = structure.tree
    return on_joints + project(tree, kin, ascend(tree, on_nodes))


def node_stiffness(structure: Structure, rows: Rows, w: Values) -> ArticulatedInertia:
    r"""Compute $J^T W J$ of the contacts with the world, as an inertia of each node."""
    k = _edge_stiffness(rows.anchored, w.anchored)
    stiffness = point_stiffness(rows.anchored.arms[0], k)
    return accumulate(stiffness, structure.anchored, structure.tree.size)


def _edge_stiffness(rows: PointRows, weights: tuple) -> Sym3:
    """Compute the sum of $w e e^T$ over the edges of each point."""
    a, b, c, d = weights
    n, m1, m2 = rows.normal, rows.side1, rows.side2
    half = (n * (0.5 * (a + b + c + d))) + (m1 * (a - b)) + (m2 * (c - d))
    full = n.outer(half) + half.outer(n)
    return Sym3.of(full + (m1 * (a + b)).outer(m1) + (m2 * (c + d)).outer(m2))


def dof_stiffness(structure: Structure, w: Values):
    """Compute the stiffness of limits and dry friction, per degree of freedom."""
    dofs = [*structure.limited.dofs, *structure.friction_dofs]
    return accumulate(concatenate([w.lower + w.upper, w.friction]), dofs, structure.nv)
