"""Evaluating rows at an acceleration: residuals, which pieces hold, forces,
stiffness."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..model import accumulate, concatenate, System, take, Tree
from ..spatial import (
    ArticulatedInertia,
    Force,
    force_at,
    Motion,
    point_stiffness,
    Sym3,
    Vec3,
)
from ._plan import ContactPlan
from ._rows import (
    friction_dofs,
    limited_dofs,
    limited_joints,
    PointRows,
    Rows,
)


class Values(NamedTuple):
    """One array per row (contacts: one per edge), in the layout of `Rows`."""

    anchored: tuple
    moving: tuple
    lower: Any
    upper: Any
    friction: Any
    ball: Any


class Layout(NamedTuple):
    """Static facts: which nodes and degrees of freedom the rows act on; `signs` tell
    which shape of a contact with the world moves: -1 the first, 1 the second."""

    anchored: tuple[int, ...]
    signs: tuple[float, ...]
    moving: tuple[tuple[int, int], ...]
    limited: tuple[int, ...]
    rubbing: tuple[int, ...]
    balls: tuple[int, ...]


def layout(sys: System, plan: ContactPlan) -> Layout:
    """The layout of the rows of a system."""
    n = plan.num_anchored
    balls = [sys.joints.v_starts[j] for j in limited_joints(sys, True)]
    return Layout(
        tuple(max(end) for end in plan.nodes[:n]),
        tuple(1.0 if end[1] >= 0 else -1.0 for end in plan.nodes[:n]),
        plan.nodes[n:],
        tuple(limited_dofs(sys)),
        tuple(friction_dofs(sys)),
        tuple(balls),
    )


def edges(normal, side1, side2) -> tuple:
    """The four edges of a pyramid."""
    return normal + side1, normal - side1, normal + side2, normal - side2


def _project(rows: PointRows, rate: Vec3, offsets=(0.0, 0.0, 0.0)) -> tuple:
    along = [
        (axis | rate) + offset
        for axis, offset in zip((rows.normal, rows.side1, rows.side2), offsets)
    ]
    return edges(*along)


def edge_forces(a, b, c, d) -> tuple:
    """Forces along the normal and the two sides, of those of the edges."""
    return a + b + c + d, a - b, c - d


def combine(rows: PointRows, edges) -> Vec3:
    """The force of given edge forces."""
    normal, side1, side2 = edge_forces(*edges)
    return (rows.normal * normal) + (rows.side1 * side1) + (rows.side2 * side2)


def _point_rates(where: Layout, rows: Rows, motion: Motion) -> tuple[Vec3, Vec3]:
    anchored = take(motion, where.anchored).at(rows.anchored.arms[0])
    one, two = ([end[k] for end in where.moving] for k in (0, 1))
    arms = rows.moving.arms
    moving = take(motion, two).at(arms[1]) - take(motion, one).at(arms[0])
    return anchored, moving


def residuals(where: Layout, rows: Rows, motion: Motion, qdd) -> Values:
    r"""$x = J a - a_\mathrm{ref}$, given the motion $J a$ of each node."""
    return _residuals(where, rows, _point_rates(where, rows, motion), qdd)


def _residuals(where: Layout, rows: Rows, rates, qdd) -> Values:
    anchored, moving = rates
    limited = take(qdd, where.limited)
    spin = Vec3(*(take(qdd, [d + k for d in where.balls]) for k in range(3)))
    return Values(
        _project(rows.anchored, anchored, rows.anchored.offsets),
        _project(rows.moving, moving, rows.moving.offsets),
        limited + rows.lower.offset,
        rows.upper.offset - limited,
        take(qdd, where.rubbing) + rows.friction.offset,
        rows.ball.offset - (rows.ball.axis | spin),
    )


def offsets(rows: Rows) -> Values:
    """The residuals at zero acceleration."""
    return Values(
        edges(*rows.anchored.offsets),
        edges(*rows.moving.offsets),
        rows.lower.offset,
        rows.upper.offset,
        rows.friction.offset,
        rows.ball.offset,
    )


def _on(x, weight):
    return ((x < 0.0) & (weight > 0.0)).astype(jnp.int8)


def edge_pieces(weight, edges) -> tuple:
    """Which piece of its force each edge of a contact is on."""
    return tuple(_on(x, weight) for x in edges)


def pieces(rows: Rows, x: Values) -> Values:
    """Which piece of its force each row is on: 1 where it is stiff, 0 where it is not;
    dry friction: 0 stiff, -1 and 1 sliding."""
    force = rows.friction.weight * x.friction
    sliding = (force >= rows.largest).astype(jnp.int8)
    return Values(
        edge_pieces(rows.anchored.weight, x.anchored),
        edge_pieces(rows.moving.weight, x.moving),
        _on(x.lower, rows.lower.weight),
        _on(x.upper, rows.upper.weight),
        sliding - (force <= -rows.largest).astype(jnp.int8),
        _on(x.ball, rows.ball.weight),
    )


def _keep(weight, on):
    return jnp.where(on != 0, weight, 0.0)


def edge_weights(weight, pieces) -> tuple:
    """The weights of the edges of a contact where they are stiff, else zero."""
    return tuple(_keep(weight, on) for on in pieces)


def flips(new, old, x, scale) -> tuple:
    """Whether any row of each problem has changed its piece beyond rounding, and which
    have. `scale`: the size of what was added up to `x`."""
    tiny = 64 * float(jnp.finfo(x.dtype).eps)
    real = (new != old) & (jnp.abs(x) > tiny * (scale + jnp.abs(x - scale)))
    return jnp.any(real, axis=0), real


def stiffnesses(rows: Rows, piece: Values) -> Values:
    """The weight of each row where it is stiff, else zero."""
    return Values(
        edge_weights(rows.anchored.weight, piece.anchored),
        edge_weights(rows.moving.weight, piece.moving),
        _keep(rows.lower.weight, piece.lower),
        _keep(rows.upper.weight, piece.upper),
        _keep(rows.friction.weight, 1 - jnp.abs(piece.friction)),
        _keep(rows.ball.weight, piece.ball),
    )


def forces(rows: Rows, piece: Values, x: Values) -> Values:
    """Row forces on fixed pieces: linear in `x`."""
    w = stiffnesses(rows, piece)
    sliding = piece.friction.astype(x.friction.dtype) * rows.largest
    times = lambda ws, xs: tuple(-a * b for a, b in zip(ws, xs))
    return Values(
        times(w.anchored, x.anchored),
        times(w.moving, x.moving),
        -w.lower * x.lower,
        -w.upper * x.upper,
        -w.friction * x.friction - sliding,
        -w.ball * x.ball,
    )


def generalized(tree: Tree, where: Layout, rows: Rows, force: Values, nv: int):
    r"""$J^T f$ as forces on nodes about the origins of their trees, and joint
    forces."""
    pushes, nodes = [], []
    if where.anchored:
        push = combine(rows.anchored, force.anchored)
        pushes.append((rows.anchored.arms[0], push))
        nodes.append(where.anchored)
    if where.moving:
        push = combine(rows.moving, force.moving)
        arms = rows.moving.arms
        pushes += [(arms[0], -push), (arms[1], push)]
        nodes += [tuple(end[k] for end in where.moving) for k in (0, 1)]
    on_nodes = _push_nodes(tree, tuple(nodes), pushes) if pushes else None
    return on_nodes, _push_joints(where, rows, force, nv)


def _push_nodes(tree: Tree, nodes, pushes) -> Force:
    """Forces at points, summed on the nodes that carry the points."""
    parts = [
        accumulate(force_at(arm, push), index, tree.size)
        for index, (arm, push) in zip(nodes, pushes)
    ]
    return sum(parts[1:], parts[0])


def _push_joints(where: Layout, rows: Rows, force: Values, nv: int):
    torque = rows.ball.axis * -force.ball
    parts = [force.lower - force.upper, force.friction, *torque]
    dofs = [*where.limited, *where.rubbing]
    dofs += [d + k for k in range(3) for d in where.balls]
    return accumulate(concatenate(parts), dofs, nv) if dofs else None


def node_stiffness(tree: Tree, where: Layout, rows: Rows, w: Values):
    """Stiffness of the contacts with the world, as inertia of the nodes."""
    if not where.anchored:
        return None
    k = _edge_stiffness(rows.anchored, w.anchored)
    return _sum_stiffness(tree, where, rows.anchored.arms[0], k)


def _edge_stiffness(rows: PointRows, edges) -> Sym3:
    """The sum of `w e e^T` over the edges of each point."""
    a, b, c, d = edges
    n, m1, m2 = rows.normal, rows.side1, rows.side2
    half = (n * (0.5 * (a + b + c + d))) + (m1 * (a - b)) + (m2 * (c - d))
    s1, s2 = a + b, c + d
    entry = lambda i, j: (
        n[i] * half[j] + n[j] * half[i] + (m1[i] * m1[j]) * s1 + (m2[i] * m2[j]) * s2
    )
    pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    return Sym3(*(entry(i, j) for i, j in pairs))


def _sum_stiffness(tree: Tree, where: Layout, arm: Vec3, k: Sym3) -> ArticulatedInertia:
    return accumulate(point_stiffness(arm, k), where.anchored, tree.size)


def dof_stiffness(where: Layout, w: Values, nv: int):
    """Stiffness of limits and dry friction, per degree of freedom."""
    dofs = [*where.limited, *where.rubbing]
    if not dofs:
        return None
    return accumulate(concatenate([w.lower + w.upper, w.friction]), dofs, nv)
