"""Contact points of boxes with capsules and with boxes."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..spatial import clamp, Mat3, Vec3
from ..spatial.vectors import matrix_from_columns
from .points import Point, Shape
from .primitives import ball_box, in_world


# Contact points of capsules with boxes (MuJoCo: `mjc_CapsuleBox`).
#
# All vectors are in the frame of the box. The axis of the capsule is `center + t axis`
# with t in [-1, 1].


# MuJoCo's smallest determinant, and smallest improvement of a squared distance.
_TINY = 1e-15


class _Nearest(NamedTuple):
    """The feature of a box that is nearest to a segment.

    - `along`: the axis of the box that the edge, or the normal of the face, follows.
    - `end`: the end of the segment (-1 or 1) that is over a face or inside; 0 if an edge
        is nearest.
    - `inside`: true if that end is inside the box.
    - `upper`: true if the edge is on the positive side of each of the two axes after
        `along`, in cyclic order.
    """

    along: Any
    end: Any
    inside: Any
    upper: tuple[Any, Any]


def capsule_box(capsule: Shape, box: Shape) -> list[Point]:
    """Return two points: that of the point of the axis nearest to the box, and a second
    one where the axis runs beside the box.

    Both are contacts of balls about points of the axis. The first is the nearest one of
    the two ends, if they are over a face or inside, and of the points nearest to edges.
    The second is the last point of the axis over the face, or beside the edge, along which
    the axis runs. It is not valid if the nearest end is inside, if the axis crosses the
    nearest edge without running over a face, or if it leads towards or away from the
    nearest corner.

    Derivatives are those of the feature that is nearest; the positions jump where another
    one becomes the nearest, as in MuJoCo.
    """
    center = box.pose.rot.T @ (capsule.pose.pos - box.pose.pos)
    axis = (box.pose.rot.T @ capsule.pose.rot.columns[2]) * capsule.size.y
    half = capsule.size.y
    fixed = lax.stop_gradient
    found = _nearest_on_axis(fixed(center), fixed(axis), fixed(box.size), fixed(half))
    turn = lambda v: _turned_to(v, found.along)
    first, move, valid = _places(turn(center), turn(axis), turn(box.size), half, found)
    points = []
    for place, exists in ((first, None), (first + move, valid)):
        ball = ball_box(center + (axis * place), capsule.size.x, box.size)
        points.append(in_world(box, ball, exists))
    return points


def _turned_to(v: Vec3, along) -> Vec3:
    """Permute axes cyclically such that axis `along` becomes z."""
    pick = lambda x, y, z: jnp.where(along == 0, x, jnp.where(along == 1, y, z))
    return Vec3(pick(v.y, v.z, v.x), pick(v.z, v.x, v.y), pick(v.x, v.y, v.z))


def _nearest_on_axis(center: Vec3, axis: Vec3, size: Vec3, half) -> _Nearest:
    """Find the nearest feature; the first one of several equally near ones wins."""
    ends = [_end(center + (axis * end), size) for end in (-1.0, 1.0)]
    best, index = ends[0][0], jnp.zeros_like(ends[0][1])
    closer = ends[1][0] < best
    best, index = jnp.where(closer, ends[1][0], best), jnp.where(closer, 1, index)
    for along in range(3):
        turn = lambda v: Vec3(*(v[(along + k) % 3] for k in (1, 2, 3)))
        squares = _edge_squares(along, turn(center), turn(axis), turn(size), half)
        for k in range(4):
            closer = squares[k] < best - _TINY
            best = jnp.where(closer, squares[k], best)
            index = jnp.where(closer, 2 + 4 * along + k, index)
    edge = index - 2
    along, low, high = edge >> 2, (edge & 1) == 1, (edge & 2) == 2
    is_end, choose = edge < 0, lambda a, b: jnp.where(index == 0, a, b)
    middle = along == 1
    return _Nearest(
        along=jnp.where(is_end, choose(ends[0][1], ends[1][1]), along),
        end=jnp.where(is_end, choose(-1.0, 1.0), 0.0).astype(best.dtype),
        inside=choose(ends[0][2], ends[1][2]),
        upper=(jnp.where(middle, high, low), jnp.where(middle, low, high)),
    )


def _end(point: Vec3, size: Vec3):
    """Return the squared distance of a point over a face or inside (else infinity), the
    axis of the face, and whether the point is inside."""
    over = Vec3(*(jnp.abs(p) - s for p, s in zip(point, size)))
    x, y, z = (o > 0.0 for o in over)
    along = jnp.where(z, 2, jnp.where(y, 1, 0))
    height = jnp.maximum(jnp.maximum(over.x, over.y), jnp.maximum(over.z, 0.0))
    beside = (x & y) | (y & z) | (z & x)
    return jnp.where(beside, jnp.inf, height * height), along, ~(x | y | z)


def _edge_squares(along: int, center: Vec3, axis: Vec3, size: Vec3, half):
    """Return squared distances of the four edges along z from the axis, in the order of
    the corners before the axes were turned; infinity for edges parallel to it."""
    fast, slow = [-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]
    signs = (slow, fast) if along == 1 else (fast, slow)
    column = lambda values, like: jnp.asarray(values, like.dtype).reshape(
        (4,) + (1,) * like.ndim
    )
    apart = Vec3(
        column(signs[0], size.x) * size.x[None] - center.x[None],
        column(signs[1], size.y) * size.y[None] - center.y[None],
        jnp.broadcast_to(-center.z, (4, *jnp.shape(center.z + size.z))),
    )
    axis = Vec3(*(a[None] for a in axis))
    on_edge, place, _, crossing = _segments(apart, axis, size.z[None], half[None])
    apart = apart - (axis * place)
    apart = apart._replace(z=apart.z + size.z[None] * on_edge)
    return jnp.where(crossing, apart.dot(apart), jnp.inf)


def _segments(apart: Vec3, axis: Vec3, size, half):
    """Compute where an edge along z and the axis of the capsule are nearest.

    **Arguments:**

    - `apart`: vector from the center of the capsule to the middle of the edge.

    **Returns:** positions in [-1, 1] on the edge and on the axis; -1, 0 or 1 if the
    nearest point is the lower end, the middle or the upper end of the edge; whether the
    two are not parallel.
    """
    aa, de, da = half * half, -size * apart.z, axis.dot(apart)
    ee, ea = size * size, -size * axis.z
    # A capsule or an edge without length: the position on it does not matter.
    positive = lambda x: jnp.where(x > 0.0, x, 1.0)
    # The determinant is ee aa - ea^2. For axes that are nearly parallel to the edge this
    # difference is rounding in single precision, so use the part of the axis across it.
    across = axis.x * axis.x + axis.y * axis.y
    crossing = ee * across >= _TINY
    along = axis.x * apart.x + axis.y * apart.y
    t = along / jnp.where(crossing, across, 1.0)
    x = (axis.z * t - apart.z) / positive(size)
    side = lambda x: jnp.where(x > 1.0, 1, jnp.where(x < -1.0, -1, 0))
    state = side(x)
    t = jnp.where(state == 0, t, (da - ea * state.astype(ea.dtype)) / positive(aa))
    x = clamp(x, -1.0, 1.0)
    beyond = side(t)
    again = (de - ea * beyond.astype(ea.dtype)) / positive(ee)
    moved = jnp.where(beyond == 0, 0, side(again))
    # MuJoCo keeps the end at which the edge was left first.
    state = jnp.where(moved == 0, state, moved)
    x = jnp.where(beyond == 0, x, clamp(again, -1.0, 1.0))
    return x, clamp(t, -1.0, 1.0), state, crossing


def _places(center: Vec3, axis: Vec3, size: Vec3, half, found: _Nearest):
    """Return the position of the first point on the axis of the capsule, the way from
    there to the second, and whether that is valid; z is the axis `found.along`."""
    upper_x, upper_y = found.upper
    sign = lambda upper: jnp.where(upper, 1.0, -1.0)
    edge = Vec3(size.x * sign(upper_x), size.y * sign(upper_y), jnp.zeros_like(size.z))
    on_edge, first, state, _ = _segments(edge - center, axis, size.z, half)
    is_end, is_edge = found.end != 0.0, state == 0
    first = jnp.where(is_end, found.end, first)
    # Whether the axis, in its positive direction, leads inwards from the feature.
    up = Vec3(*(a > 0.0 for a in axis))
    inward = Vec3(up.x != upper_x, up.y != upper_y, up.z != (state == 1))
    at_face = _from_face(center, axis, size, found)
    at_edge, edge_valid = _from_edge(axis, size, inward, up.z, on_edge, first)
    at_corner, corner_valid = _from_corner(axis, size, half, inward, first)
    move = jnp.where(is_edge, at_edge, at_corner)
    valid = jnp.where(is_edge, edge_valid, corner_valid)
    valid = jnp.where(is_end, ~found.inside, valid)
    return first, jnp.where(is_end, at_face, move), valid


def _lengths(axis: Vec3, size: Vec3) -> Vec3:
    """Return the lengths along the axis of a capsule over which it passes the box in each
    direction; 4 if it is longer than that (the axis has length 2)."""

    def one(a, s):
        long = jnp.abs(a) <= 0.5 * s
        return jnp.where(long, 4.0, 2.0 * s / jnp.where(long, 1.0, jnp.abs(a)))

    return Vec3(*map(one, axis, size))


def _smaller(a, b):
    return jnp.where(b < a, b, a)


def _from_face(center: Vec3, axis: Vec3, size: Vec3, found: _Nearest):
    """Return the other end, or the point above the first side of the face."""
    move = 2.0
    # If the other end is above the side, as it is where a capsule lies along a box of its
    # length, one of both points moves with the box.
    rounding = 16.0 * float(jnp.finfo(size.x.dtype).eps)
    for a, c, s in list(zip(axis, center, size))[:2]:
        ahead = jnp.where(a * found.end < 0.0, 1.0, -1.0)
        slope = jnp.abs(a)
        level = slope <= 1e-12 * s
        way = (s - ahead * (c + a * found.end)) / jnp.where(level, 1.0, slope)
        shorter = ~level & (way > 0.0) & (way < move + rounding)
        move = jnp.where(shorter, way, move)
    return -found.end * move


def _from_edge(axis: Vec3, size: Vec3, inward: Vec3, up, on_edge, first):
    """Return the point above the end of the face that the axis is more parallel to;
    none if the axis leads inwards, or outwards, on both faces."""
    lengths = _lengths(axis, size)
    across_x = jnp.abs(axis.x) > jnp.abs(axis.y)
    into = jnp.where(across_x, inward.x, inward.y)
    ahead = jnp.where(into, 1.0, -1.0)
    move = _smaller(1.0 - ahead * first, jnp.where(across_x, lengths.x, lengths.y))
    rest = size.z * jnp.where(up == into, 1.0 - on_edge, 1.0 + on_edge)
    level = jnp.abs(axis.z) <= 1e-12 * size.z
    rest = rest / jnp.where(level, 1.0, jnp.abs(axis.z))
    move = jnp.where(level, move, _smaller(move, rest))
    return ahead * move, inward.x != inward.y


def _from_corner(axis: Vec3, size: Vec3, half, inward: Vec3, first):
    """Return the point along an edge, or above a face, that meets the corner; none if
    the axis leads inwards, or outwards, on all faces."""
    x, y, z = inward
    number = sum(jnp.where(i, 1, 0) for i in inward)
    single = number == 1
    # In the direction `ahead` the axis leads inwards on one axis of the box alone.
    ahead = jnp.where(single, 1.0, -1.0)
    lone_x, lone_y = x == single, y == single
    pick = lambda x, y, z: jnp.where(lone_x, x, jnp.where(lone_y, y, z))
    lengths = _lengths(axis, size)
    steep = pick(*axis)
    forward = _smaller(1.0 - ahead * first, pick(*lengths))
    others = pick(
        _smaller(lengths.y, lengths.z),
        _smaller(lengths.z, lengths.x),
        _smaller(lengths.x, lengths.y),
    )
    back = _smaller(1.0 + ahead * first, others)
    move = jnp.where(steep * steep > 0.5 * half * half, forward, -back)
    return ahead * move, single | (number == 2)


# Contact points of two boxes (MuJoCo: `mjc_BoxBox`).
#
# The separating axis of largest separation is a normal of a face, or a cross product of two
# edges. A face and the face of the other box that is most opposed to it are intersected; two
# edges touch at one point.
#
# Everything is seen from the reference box, which owns the face, with its axes permuted
# cyclically such that z is the normal of the face. Vectors are arrays `(3, npair, *batch)`,
# or `(3, k, npair, *batch)` of k points.


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
    axis = _least_overlap(*lax.stop_gradient((rot, near, far, a.size, b.size)))
    one, two = _square(rot), jnp.swapaxes(_square(rot), 0, 1)
    choose = lambda x, y: _axes_turned(
        _where(axis.first, jnp.stack(x), jnp.stack(y)), axis.own
    )
    axes = choose(one, two)
    other = _opposed(lax.stop_gradient(axes[2]), axis)
    turned = lambda x: _axes_turned(x, other)
    boxes = _Boxes(
        own=choose(a.size, b.size),
        other=turned(_where(axis.first, jnp.stack(b.size), jnp.stack(a.size))),
        center=choose(near, far),
        axes=jnp.swapaxes(turned(jnp.swapaxes(axes, 0, 1)), 0, 1),
    )
    dist, pos, valid, up = _faces(boxes, axis.edge)
    edge_dist, edge_pos, edge_normal = _crossed_edges(boxes)
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


def _axes_turned(x, last):
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


def _least_overlap(rot: Mat3, near: Vec3, far: Vec3, one: Vec3, two: Vec3) -> _Axis:
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


def _crossed_edges(boxes: _Boxes):
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
