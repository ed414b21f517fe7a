r"""The shortest path of a string around a sphere or a cylinder.

In the plane through the center of a sphere, or perpendicular to the axis of a cylinder,
the path consists of two tangents of a circle and an arc between them. A side site
selects the side on which the tendon passes. If it lies inside the shape, the tendon
passes through the inside and touches the circle at one point.

Source: MuJoCo documentation, *Computation*, "Actuation model", and `mju_wrap`,
including its conventions for degenerate cases.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..model import GeomKind
from ..spatial import clamp, safe_sqrt, Vec3
from ..spatial.rotations import zero_length
from .link_motion import Pose


_TINY = 1e-15
_MAX_STEPS = 30


class Wrapped(NamedTuple):
    """Strings around shapes, `(n, *batch)`.

    - `is_wrapped`: true if the string touches the shape.
    - `first`, `last`: first and last point of contact with the shape, in the world; the
        end points of the string if there is no contact.
    - `arc`: length between these points, m.
    """

    is_wrapped: Any
    first: Vec3
    last: Vec3
    arc: Any


class _Vec2(NamedTuple):
    x: Any
    y: Any

    def dot(self, other: "_Vec2"):
        return self.x * other.x + self.y * other.y

    def cross(self, other: "_Vec2"):
        return self.x * other.y - self.y * other.x


class _Touch(NamedTuple):
    """First and last point of contact of the string with the circle, and the length
    between them."""

    is_wrapped: Any
    first: _Vec2
    last: _Vec2
    arc: Any


def wrap(
    kind: GeomKind, start: Vec3, end: Vec3, pose: Pose, radius, side: Vec3 | None
) -> Wrapped:
    """Compute the paths of strings around shapes of one kind.

    **Arguments:**

    - `start`, `end`: points of the string before and after the shape, in the world.
    - `pose`: frames of the shapes; the axis of a cylinder is z.
    - `radius`: radii of the shapes, m.
    - `side`: side sites in the world, None if there are none.
    """
    local = lambda point: pose.rot.T @ (point - pose.pos)
    p0, p1 = local(start), local(end)
    if kind is GeomKind.SPHERE:
        u, v = _plane(p0, p1)
        project = lambda p: _Vec2(p.dot(u), p.dot(v))
    else:
        u = v = None
        project = lambda p: _Vec2(p.x, p.y)
    d0, d1 = project(p0), project(p1)
    if side is None:
        touch = _around(d0, d1, None, radius)
    else:
        s = lax.stop_gradient(local(side))
        touch = _around(d0, d1, lax.stop_gradient(project(s)), radius)
        inside = s.dot(s) < radius * radius
        touch = _select(inside, _through(d0, d1, radius, inside), touch)
    if u is None or v is None:
        first, last, arc = _along_cylinder(p0, p1, d0, d1, touch)
    else:
        lift = lambda w: (u * w.x) + (v * w.y)
        first, last, arc = lift(touch.first), lift(touch.last), touch.arc
    on = touch.is_wrapped
    return Wrapped(
        on,
        _where(on, pose.point(first), end),
        _where(on, pose.point(last), end),
        jnp.where(on, arc, 0.0),
    )


def _where(condition, one, other):
    return type(one)(*(jnp.where(condition, a, b) for a, b in zip(one, other)))


def _select(condition, one: _Touch, other: _Touch) -> _Touch:
    choose = lambda a, b: jnp.where(condition, a, b)
    return _Touch(
        choose(one.is_wrapped, other.is_wrapped),
        _where(condition, one.first, other.first),
        _where(condition, one.last, other.last),
        choose(one.arc, other.arc),
    )


def _normalized(v):
    """Return unit vectors; zero becomes the unit vector along x, as in MuJoCo."""
    square = v.dot(v)
    positive = square > _TINY * _TINY
    scale = 1.0 / jnp.sqrt(jnp.where(positive, square, 1.0))
    unit = (1.0, *(0.0 for _ in v[1:]))
    return type(v)(*(jnp.where(positive, a * scale, b) for a, b in zip(v, unit)))


def _plane(p0: Vec3, p1: Vec3) -> tuple[Vec3, Vec3]:
    """Return orthonormal axes of the plane through two points and the origin."""
    u = _normalized(p0)
    normal = p0.cross(p1)
    square = normal.dot(normal)
    tiny = zero_length(square.dtype)
    # In single precision rounding is relative to the distances of the points.
    scale = 1.0 if tiny < 1e-12 else p0.dot(p0) * p1.dot(p1)
    parallel = square < tiny * tiny * scale
    # Any perpendicular axis: start from one that is zero where `u` is largest and one
    # elsewhere.
    x, y, z = (jnp.abs(a) for a in u)
    is_y = (y > x) & (y > z)
    is_z = (z > x) & (z > y)
    other = Vec3(
        jnp.where(is_y | is_z, 1.0, 0.0),
        jnp.where(is_y, 0.0, 1.0),
        jnp.where(is_z, 0.0, 1.0),
    )
    normal = _normalized(_where(parallel, u.cross(other), normal))
    return u, _normalized(normal.cross(u))


def _along_cylinder(p0: Vec3, p1: Vec3, d0: _Vec2, d1: _Vec2, touch: _Touch):
    """Return points and length on a cylinder, unrolled to a plane, in which the path is
    a straight line."""
    on, a, b = touch.is_wrapped, touch.first, touch.last
    before = _distance(d0, a)
    total = before + touch.arc + _distance(b, d1)
    slope = (p1.z - p0.z) / jnp.where(on & (total > 0.0), total, 1.0)
    first = Vec3(a.x, a.y, p0.z + slope * before)
    last = Vec3(b.x, b.y, p0.z + slope * (before + touch.arc))
    return first, last, touch.arc * jnp.sqrt(1.0 + slope * slope)


def _distance(a: _Vec2, b: _Vec2):
    d = _Vec2(b.x - a.x, b.y - a.y)
    return safe_sqrt(d.dot(d))


def _nearest(d0: _Vec2, d1: _Vec2):
    """Return the squared distance of two points, and the position on the line through
    them that is nearest to the origin, as a fraction of the distance."""
    d = _Vec2(d1.x - d0.x, d1.y - d0.y)
    square = d.dot(d)
    share = -d.dot(d0) / jnp.where(square > 0.0, square, 1.0)
    return square, share


def _between(d0: _Vec2, d1: _Vec2, share) -> _Vec2:
    return _Vec2(d0.x + share * (d1.x - d0.x), d0.y + share * (d1.y - d0.y))


def _intersect(a0: _Vec2, a1: _Vec2, b0: _Vec2, b1: _Vec2):
    """Test if two line segments intersect."""
    a = _Vec2(a1.x - a0.x, a1.y - a0.y)
    b = _Vec2(b1.x - b0.x, b1.y - b0.y)
    gap = _Vec2(b0.x - a0.x, b0.y - a0.y)
    det = a.cross(b)
    proper = jnp.abs(det) >= _TINY
    scale = 1.0 / jnp.where(proper, det, 1.0)
    s, t = gap.cross(b) * scale, gap.cross(a) * scale
    return proper & (s >= 0.0) & (s <= 1.0) & (t >= 0.0) & (t <= 1.0)


def _around(d0: _Vec2, d1: _Vec2, side: _Vec2 | None, radius) -> _Touch:
    """Compute the paths of strings around circles at the origin.

    Strings wrap on the shorter side, unless the side site is opposite to the string, in
    the cone between the directions opposite to the two points. In that case, a string
    wraps on the other side, and does so even if the straight line does not touch the
    circle.
    """
    square = radius * radius
    gap, share = _nearest(d0, d1)
    near = _between(d0, d1, clamp(share, 0.0, 1.0))
    apart = near.dot(near) > square
    is_left = d0.cross(d1) >= 0.0
    if side is not None:
        opposite, is_left = _sides(d0, d1, side)
        apart, is_left = apart & ~opposite, is_left ^ opposite
    outside = (d0.dot(d0) >= square) & (d1.dot(d1) >= square)
    valid = outside & (radius >= _TINY) & (gap >= _TINY) & ~apart
    # Without a wrap, use any regular values: both branches are differentiated.
    d0 = _where(valid, d0, _Vec2(2.0, 0.0))
    d1 = _where(valid, d1, _Vec2(0.0, 2.0))
    radius = jnp.where(valid, radius, 1.0)
    turn = jnp.where(is_left, 1.0, -1.0).astype(radius.dtype)
    a, b = _tangent(d0, turn, radius), _tangent(d1, -turn, radius)
    valid = valid & ~_intersect(d0, a, d1, b)
    angle = turn * jnp.arctan2(a.cross(b), a.dot(b))
    # Rounding at angle zero must not add a turn.
    least = max(1e-7, zero_length(angle.dtype))
    angle = jnp.where(angle < -least, angle + 2.0 * jnp.pi, angle)
    return _Touch(valid, a, b, radius * angle)


def _sides(d0: _Vec2, d1: _Vec2, side: _Vec2):
    """Test if the side site is opposite to the string, and if the string turns left on
    the shorter side. Ties are decided as in MuJoCo."""
    side, turn = _normalized(side), d0.cross(d1)
    tie = (d0.y < 0.0) | ((d0.y == 0.0) & (d0.x > 0.0))
    is_left = (turn > 0.0) | ((turn == 0.0) & tie)
    sign = jnp.where(is_left, 1.0, -1.0)
    opposite = (sign * d1.cross(side) > 0.0) & (sign * side.cross(d0) > 0.0)
    return opposite, is_left


def _tangent(d: _Vec2, turn, radius) -> _Vec2:
    """Return the point at which a tangent through a point touches the circle: on the
    right (-1) or the left (1) as seen from the origin."""
    square, along = d.dot(d), radius * radius
    root = turn * radius * safe_sqrt(square - along)
    x, y = along * d.x - root * d.y, along * d.y + root * d.x
    return _Vec2(x / square, y / square)


def _through(d0: _Vec2, d1: _Vec2, radius, wanted) -> _Touch:
    r"""Compute the paths of strings through the inside of circles at the origin.

    The string touches the circle from inside at a point of reflection: with the angle
    $\theta$ between the two straight parts and the radius, $\arcsin(A \sin\theta) +
    \arcsin(B \sin\theta) - 2\theta + G = 0$, where $A, B$ are the radius over the
    distances of the two points, and $G$ is the angle between them.

    **Arguments:**

    - `wanted`: true where the result is used.
    """
    gap, share = _nearest(d0, d1)
    near = _between(d0, d1, share)
    cuts = (gap > _TINY) & (share > 0.0) & (share < 1.0)
    cuts = cuts & (near.dot(near) <= radius * radius)
    outside = (d0.dot(d0) > radius * radius) & (d1.dot(d1) > radius * radius)
    valid = wanted & outside & (radius >= _TINY) & ~cuts
    d0 = _where(valid, d0, _Vec2(2.0, 0.0))
    d1 = _where(valid, d1, _Vec2(1.0, 1.8))
    radius = jnp.where(valid, radius, 1.0)
    middle = _normalized(_Vec2(d0.x + d1.x, d0.y + d1.y))
    len0, len1 = jnp.sqrt(d0.dot(d0)), jnp.sqrt(d1.dot(d1))
    cosine = d0.dot(d1) / (len0 * len1)
    valid = valid & (cosine >= _TINY - 1.0)
    cross = d0.cross(d1)
    proper = (jnp.abs(cosine) < 1.0 - _TINY) & (cross != 0.0)
    share = lambda length: jnp.where(proper, radius / length, 0.5)
    bend = jnp.where(proper, cross, 1.0), jnp.where(proper, d0.dot(d1), 0.5)
    found = _reflection(
        share(len0), share(len1), jnp.arctan2(jnp.abs(bend[0]), bend[1])
    )
    ahead = cross > 0.0
    angle = found.angle - jnp.where(ahead, found.first, found.second)
    base = _normalized(_where(ahead, d0, d1))
    c, s = jnp.cos(angle), jnp.sin(angle)
    point = _Vec2(c * base.x - s * base.y, s * base.x + c * base.y)
    point = _where(proper & found.exists, point, middle)
    point = _Vec2(radius * point.x, radius * point.y)
    return _Touch(valid, point, point, jnp.zeros_like(radius))


class _Reflection(NamedTuple):
    """Angle to the radius at the circle, angles to the radius at the two points, and a
    flag that is true if there is a solution."""

    angle: Any
    first: Any
    second: Any
    exists: Any


def _reflection(a, b, turn) -> _Reflection:
    """Solve the equation of `_through`; its left side decreases and is concave, so that
    Newton's method from the right converges."""

    def left(angle, a, b, turn):
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        value, slope = turn - 2.0 * angle, -2.0
        for share in (a, b):
            value = value + jnp.arcsin(share * sine)
            slope = slope + share * cosine / jnp.sqrt(1.0 - (share * sine) ** 2)
        return value, slope

    # Start value of MuJoCo; beyond it, MuJoCo finds no solution.
    begin = jnp.full_like(turn, math.asin(1.0 - 1e-7))
    fixed = lax.stop_gradient((a, b, turn))
    exists = left(begin, *fixed)[0] <= 0.0
    tolerance = 4.0 * jnp.finfo(turn.dtype).eps

    def is_moving(carry):
        _, moving, count = carry
        return jnp.any(moving) & (count < _MAX_STEPS)

    def step(carry):
        angle, moving, count = carry
        value, slope = left(angle, *fixed)
        change = jnp.where(moving, value / slope, 0.0)
        return angle - change, moving & (jnp.abs(change) > tolerance), count + 1

    angle, _, _ = lax.while_loop(is_moving, step, (begin, exists, 0))
    # Each iteration at the solution makes one more order of derivatives exact.
    for _ in range(2):
        value, slope = left(angle, a, b, turn)
        angle = angle - jnp.where(exists, value / slope, 0.0)
    sine = jnp.sin(angle)
    return _Reflection(angle, jnp.arcsin(a * sine), jnp.arcsin(b * sine), exists)
