"""Contact points of two boxes (MuJoCo: `mjc_BoxBox`).

The separating axis of largest separation is a normal of a face, or a cross product of two
edges. A face and the face of the other box that is most opposed to it are intersected; two
edges touch at one point.

Everything is seen from the reference box, which owns the face, with its axes permuted
cyclically such that z is the normal of the face. Vectors are arrays `(3, npair, *batch)`,
or `(3, k, npair, *batch)` of k points.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..spatial import clamp, Mat3, Vec3
from ..spatial._vector import matrix_from_columns
from ._points import Point, Shape


# Bias against edges in comparisons of separations.
_BIAS = 1e-6
# A face replaces an edge that is nearly its normal, unless the edge is better by 5 %.
_ALIKE, _WORSE = 0.99, 0.05


class _Axis(NamedTuple):
    """The separating axis.

    - `edge`: true if it is a cross product of edges.
    - `first`: true if the first box is the reference.
    - `own`, `other`: axis of the reference and of the other box, 0, 1 or 2: normal of the
        face, or direction of the edge. For a face, `other` is not chosen yet.
    """

    edge: Any
    first: Any
    own: Any
    other: Any


class _Boxes(NamedTuple):
    """Two boxes in the axes of the reference.

    - `own`, `other`: half sizes, x, y, z in the order of the axes that were permuted.
    - `center`: center of the other box.
    - `axes`: axes of the other box as columns, `(3, 3, npair, *batch)`. The last is the
        normal of the face, or follows the edge.
    """

    own: Any
    other: Any
    center: Any
    axes: Any


def box_box(a: Shape, b: Shape) -> list[Point]:
    """Return eight points.

    For a face, they are corners of the polygon in which two faces overlap, seen along the
    normal of the reference face: one at the start of each of its sides. Of eight
    lines that bound it, four sides of either face, those with a part in both faces have a
    valid point, except for points that coincide. For two edges the first one is valid
    alone.

    Derivatives are those of the axis, faces and edges that apply: the distance is
    continuous where another axis becomes the best, its derivative, positions and number of
    points are not. Where sides of both faces are aligned, they are those of `_between`.
    Exactly aligned sides, parallel up to rounding, are taken as parallel; MuJoCo can add
    points where such sides cross by rounding.

    MuJoCo leaves out all points where the boxes are farther apart than the margin along an
    edge axis that a face replaced; they are valid here.
    """
    rot = a.pose.rot.T @ b.pose.rot
    apart = b.pose.pos - a.pose.pos
    near, far = a.pose.rot.T @ apart, -(b.pose.rot.T @ apart)
    axis = _search(*lax.stop_gradient((rot, near, far, a.size, b.size)))
    one, two = _square(rot), jnp.swapaxes(_square(rot), 0, 1)
    choose = lambda x, y: _turn(
        _where(axis.first, jnp.stack(x), jnp.stack(y)), axis.own
    )
    axes = choose(one, two)
    other = _opposed(lax.stop_gradient(axes[2]), axis)
    turned = lambda x: _turn(x, other)
    boxes = _Boxes(
        own=choose(a.size, b.size),
        other=turned(_where(axis.first, jnp.stack(b.size), jnp.stack(a.size))),
        center=choose(near, far),
        axes=jnp.swapaxes(turned(jnp.swapaxes(axes, 0, 1)), 0, 1),
    )
    dist, pos, valid, up = _faces(boxes, axis.edge)
    edge_dist, edge_pos, edge_normal = _edges(boxes)
    normal = jnp.stack([0.0 * up, 0.0 * up, jnp.where(axis.first, up, -up)])
    normal = _where(axis.edge, edge_normal, normal)
    none = jnp.zeros_like(valid[1:])
    is_edge = jnp.concatenate([axis.edge[None], none])
    dist = jnp.where(is_edge, edge_dist[None], dist)
    pos = _where(is_edge, edge_pos[:, None], pos)
    valid = is_edge | (valid & ~axis.edge[None])

    rot = choose(_square(a.pose.rot.T), _square(b.pose.rot.T))
    rot = matrix_from_columns(*(Vec3(*column) for column in rot))
    start = Vec3(*(jnp.where(axis.first, p, q) for p, q in zip(a.pose.pos, b.pose.pos)))
    normal = rot @ Vec3(*normal)
    rot, start = Mat3(*(c[None] for c in rot)), Vec3(*(c[None] for c in start))
    pos = start + (rot @ Vec3(*pos))
    return [
        Point(dist[k], Vec3(*(p[k] for p in pos)), normal, valid=valid[k])
        for k in range(8)
    ]


def _square(m: Mat3):
    return jnp.stack([jnp.stack(row) for row in m.rows])


def _where(condition, x, y):
    """Select like `jnp.where`, with leading axes that the condition does not have."""
    shape = jnp.broadcast_shapes(x.shape, y.shape, condition.shape)
    lift = lambda a: jnp.broadcast_to(a, shape)
    return jnp.where(lift(condition), lift(x), lift(y))


def _turn(x, last):
    """Permute the first axis cyclically such that entry `last` becomes the last one."""
    after = lambda k: jnp.concatenate([x[k:], x[:k]])
    return _where(last == 0, after(1), _where(last == 1, after(2), x))


def _pick(values, number):
    x, y, z = values
    return jnp.where(number == 0, x, jnp.where(number == 1, y, z))


def _opposed(heights, axis: _Axis):
    """Return which face of the other box is most opposed to the face of the reference;
    or the edge."""
    x, y, z = jnp.abs(heights)
    face = jnp.where(z > jnp.maximum(x, y), 2, jnp.where(y > x, 1, 0))
    return jnp.where(axis.edge, axis.other, face)


def _search(rot: Mat3, near: Vec3, far: Vec3, one: Vec3, two: Vec3) -> _Axis:
    """Find the axis of largest separation, by MuJoCo's preferences among equal ones."""
    r, p, s1, s2 = _square(rot), jnp.stack(near), jnp.stack(one), jnp.stack(two)
    size = jnp.abs(r)
    first = jnp.abs(p) - s1 - jnp.sum(size * s2[None], axis=1)
    second = jnp.abs(jnp.stack(far)) - s2 - jnp.sum(size * s1[:, None], axis=0)
    best, face = first[0], jnp.zeros_like(first[0], dtype=jnp.int32)
    for k, gap in enumerate((*first[1:], *second), start=1):
        face, best = jnp.where(gap > best, k, face), jnp.where(gap > best, gap, best)
    at_face = best

    # Edge i with edge j, along e_i x r_j: rows are i, columns j.
    rows = lambda x, k: jnp.concatenate([x[k:], x[:k]])
    columns = lambda x, k: jnp.swapaxes(rows(jnp.swapaxes(x, 0, 1), k), 0, 1)
    wide, tall = (lambda x: x[:, None]), (lambda x: x[None])
    square = rows(r, 1) ** 2 + rows(r, 2) ** 2
    tiny = square < (1e-16 if r.dtype == jnp.float64 else 1e-7)
    gap = jnp.abs(wide(rows(p, 2)) * rows(r, 1) - wide(rows(p, 1)) * rows(r, 2))
    gap = gap - wide(rows(s1, 1)) * rows(size, 2) - wide(rows(s1, 2)) * rows(size, 1)
    gap = gap - tall(rows(s2, 1)) * columns(size, 2)
    gap = gap - tall(rows(s2, 2)) * columns(size, 1)
    gap = jnp.where(tiny, -jnp.inf, gap / jnp.sqrt(jnp.where(tiny, 1.0, square)))
    edge = jnp.full_like(face, -1)
    for k in range(9):
        each = gap[k // 3, k % 3]
        better = (each - _BIAS * jnp.abs(each) > best) & (each > at_face)
        edge, best = jnp.where(better, k, edge), jnp.where(better, each, best)
    i = jnp.where(edge > 5, 2, jnp.where(edge > 2, 1, 0))
    j = edge - 3 * i
    is_edge = (edge >= 0) & ~(
        _alike(r, i, j, face) & (best < at_face + _WORSE * jnp.abs(at_face) + 1e-15)
    )
    of_first = face < 3
    own = jnp.where(is_edge, i, jnp.where(of_first, face, face - 3))
    return _Axis(is_edge, is_edge | of_first, own, j)


def _alike(r, i, j, face):
    """Return whether the cross product of edges is within about 8 degrees of the normal
    of a face."""
    x, y, z = _pick((r[:, 0], r[:, 1], r[:, 2]), j)
    zero = jnp.zeros_like(x)
    crosses = (zero, -z, y), (z, zero, -x), (-y, x, zero)
    axis = jnp.stack([_pick(each, i) for each in zip(*crosses, strict=True)])
    dot = jnp.sum(axis[:, None] * r, axis=0)
    dot = jnp.where(face < 3, _pick(axis, face), _pick(dot, face - 3))
    square = jnp.sum(axis * axis, axis=0)
    return dot * dot > _ALIKE**2 * square


def _faces(boxes: _Boxes, edge):
    """Intersect the two faces.

    **Returns:** heights above the reference face, positions `(3, 8, ...)`, which of them
    are valid, and the sign of the normal of the face.
    """
    own, axes = boxes.own, boxes.axes
    up = jnp.where(boxes.center[2] >= 0.0, 1.0, -1.0)
    opposite = jnp.where(up * axes[2, 2] > 0.0, -1.0, 1.0)
    center = boxes.center + axes[:, 2] * (opposite * boxes.other[2])[None]
    u, v = (axes[:, k] * boxes.other[k][None] for k in range(2))
    upwards = lambda x: jnp.concatenate([x[:2], (up * x[2])[None]])
    center, u, v = upwards(center), upwards(u), upwards(v)
    center = center - jnp.concatenate([jnp.zeros_like(own[:2]), own[2:]])
    # Both faces run in the same direction, so that the starts of all sides differ.
    area = u[0] * v[1] - u[1] * v[0]
    v = _where(area < 0.0, -v, v)
    # A box without thickness has faces without area, which have sides alone.
    flat = area == 0.0
    scale = 1.0 / jnp.where(edge | flat, 1.0, jnp.abs(area))

    # Sides of the incident face, clipped to the reference face.
    start, step = _sides(center, u, v)
    begin, exists = _clip(start[:2], step[:2], own[:2])
    incident = start + begin[None] * step
    incident = jnp.concatenate([_between(incident[:2], own[:2]), incident[2:]])

    # Sides of the reference face, clipped in the coordinates of the incident face.
    local = lambda x, y: (
        jnp.stack([x * v[1] - y * v[0], y * u[0] - x * u[1]]) * scale[None]
    )
    zero = jnp.zeros_like(scale)
    place, pace = _sides(
        local(-center[0], -center[1]), local(own[0], zero), local(zero, own[1])
    )
    one = jnp.ones_like(place[:, 0])
    begin, inside = _clip(place, pace, one)
    x, y = _between(place + begin[None] * pace, one)
    reference = center[:, None] + u[:, None] * x[None] + v[:, None] * y[None]

    points = jnp.concatenate([incident, reference], axis=1)
    valid = jnp.concatenate([exists, inside & ~flat[None]])
    valid = _distinct(points[:2], valid, own)
    height = points[2]
    level = up[None] * (own[2][None] + 0.5 * height)
    return height, jnp.concatenate([points[:2], level[None]]), valid, up


def _sides(center, u, v):
    """Return where the sides of a parallelogram start, and their vectors, one after the
    other, `(k, 4, ...)`."""
    corners = [center + u + v, center - u + v, center - u - v, center + u - v]
    return jnp.stack(corners, axis=1), 2.0 * jnp.stack([-u, -v, u, v], axis=1)


def _clip(start, step, half):
    """Clip segments to a rectangle about the origin (Liang and Barsky).

    **Returns:** where they enter it, between 0 and 1, and whether they do. Those that do
    not are cut off at their ends, so that no point lies beyond the sides.
    """
    half = half[:, None]
    rounding = 64 * float(jnp.finfo(start.dtype).eps)
    small = rounding * half
    level = jnp.abs(step) <= small
    scale = 1.0 / jnp.where(level, 1.0, step)
    facing = jnp.where(step > 0.0, half, -half)
    within = jnp.abs(start) <= half + small
    enter = jnp.where(level, jnp.where(within, 0.0, 2.0), (-facing - start) * scale)
    leave = jnp.where(level, 1.0, (facing - start) * scale)
    begin = jnp.where(enter[0] > enter[1], enter[0], enter[1])
    # A start on a side, up to rounding, is not clipped, see `_between`.
    begin = jnp.where(begin > rounding, begin, 0.0)
    end = jnp.minimum(jnp.minimum(leave[0], leave[1]), 1.0)
    return jnp.where(begin > 1.0, 1.0, begin), begin <= end


def _between(point, half):
    """Return points `(2, k, ...)` in a rectangle, where the derivative of a coordinate at a
    side is the mean of that and of the side.

    Where sides of both faces are aligned, a corner moves with the one box in one direction
    and with the other box in the opposite direction.
    """
    half = half[:, None]
    apart = jnp.where(point > 0.0, half, -half) - point
    small = 64 * float(jnp.finfo(point.dtype).eps) * half
    aligned = jnp.abs(apart) <= small
    return point + jnp.where(aligned, 0.5 * (apart - lax.stop_gradient(apart)), 0.0)


def _distinct(points, valid, own):
    """Return which points are valid and not at the place of an earlier one."""
    relative = 1e-14 if points.dtype == jnp.float64 else 1e-10
    radius = relative * (own[0] * own[0] + own[1] * own[1])
    marks = [valid[0]]
    for k in range(1, 8):
        x, y = points[:, :k] - points[:, k : k + 1]
        same = (x * x + y * y < radius[None]) & valid[:k]
        marks.append(valid[k] & ~jnp.any(same, axis=0))
    return jnp.stack(marks)


def _edges(boxes: _Boxes):
    """Return the distance, position and normal of the contact of two edges along z of the
    reference and along the last axis of the other box."""
    own, other, axes = boxes.own, boxes.other, boxes.axes
    along = axes[:, 2]
    square = along[0] * along[0] + along[1] * along[1]
    safe = jnp.where(square > 0.0, square, 1.0)
    scale = 1.0 / jnp.sqrt(safe)
    x, y = -along[1] * scale, along[0] * scale
    turn = jnp.where(x * boxes.center[0] + y * boxes.center[1] < 0.0, -1.0, 1.0)
    x, y = x * turn, y * turn
    side = lambda value, size: jnp.where(value >= 0.0, size, -size)
    # The edges that the axis supports, and the nearest points on them.
    corner = jnp.stack([side(x, own[0]), side(y, own[1]), jnp.zeros_like(x)])
    lean = x[None] * axes[0] + y[None] * axes[1]
    middle = boxes.center - axes[:, 0] * side(lean[0], other[0])[None]
    middle = middle - axes[:, 1] * side(lean[1], other[1])[None]
    apart = middle - corner
    ahead, slope = jnp.sum(along * apart, axis=0), along[2]
    s = clamp((apart[2] - slope * ahead) / safe, -own[2], own[2])
    t = clamp(slope * s - ahead, -other[2], other[2])
    s = clamp(apart[2] + slope * t, -own[2], own[2])
    first = jnp.stack([corner[0], corner[1], s])
    second = middle + along * t[None]
    dist = x * (second[0] - first[0]) + y * (second[1] - first[1])
    return dist, 0.5 * (first + second), jnp.stack([x, y, jnp.zeros_like(x)])
