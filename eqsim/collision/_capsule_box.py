"""Contact points of capsules with boxes (MuJoCo: `mjc_CapsuleBox`).

All vectors are in the frame of the box. The axis of the capsule is `center + t axis`
with t in [-1, 1].
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..spatial import clamp, Vec3
from ._points import Point, Shape
from ._sphere_pairs import ball_box, in_world


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
    found = _search(fixed(center), fixed(axis), fixed(box.size), fixed(half))
    turn = lambda v: _turn(v, found.along)
    first, move, valid = _places(turn(center), turn(axis), turn(box.size), half, found)
    points = []
    for place, exists in ((first, None), (first + move, valid)):
        ball = ball_box(center + (axis * place), capsule.size.x, box.size)
        points.append(in_world(box, ball, exists))
    return points


def _turn(v: Vec3, along) -> Vec3:
    """Permute axes cyclically such that axis `along` becomes z."""
    pick = lambda x, y, z: jnp.where(along == 0, x, jnp.where(along == 1, y, z))
    return Vec3(pick(v.y, v.z, v.x), pick(v.z, v.x, v.y), pick(v.x, v.y, v.z))


def _search(center: Vec3, axis: Vec3, size: Vec3, half) -> _Nearest:
    """Find the nearest feature; the first one of several equally near ones wins."""
    ends = [_end(center + (axis * end), size) for end in (-1.0, 1.0)]
    best, index = ends[0][0], jnp.zeros_like(ends[0][1])
    closer = ends[1][0] < best
    best, index = jnp.where(closer, ends[1][0], best), jnp.where(closer, 1, index)
    for along in range(3):
        turn = lambda v: Vec3(*(v[(along + k) % 3] for k in (1, 2, 3)))
        squares = _edges(along, turn(center), turn(axis), turn(size), half)
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


def _edges(along: int, center: Vec3, axis: Vec3, size: Vec3, half):
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
    return jnp.where(crossing, apart | apart, jnp.inf)


def _segments(apart: Vec3, axis: Vec3, size, half):
    """Compute where an edge along z and the axis of the capsule are nearest.

    **Arguments:**

    - `apart`: vector from the center of the capsule to the middle of the edge.

    **Returns:** positions in [-1, 1] on the edge and on the axis; -1, 0 or 1 if the
    nearest point is the lower end, the middle or the upper end of the edge; whether the
    two are not parallel.
    """
    aa, de, da = half * half, -size * apart.z, axis | apart
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
