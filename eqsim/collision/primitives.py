"""Contact points of pairs of planes, spheres, capsules and cylinders.

Each function takes two arrays of shapes, of one kind each, and returns one `Point` per
possible contact. The normal points from the first shape to the second; `dist` is
negative in penetration; `pos` lies halfway between the surfaces. Points, their number
and their frames are those of MuJoCo (`engine_collision_primitive.c`), except where a
docstring says otherwise.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..spatial import clamp, positive_part, safe_sqrt, Vec3
from ..spatial.rotations import zero_length
from .points import Point, Shape, unit, unit_normal


def plane_point(plane: Shape, center: Vec3, radius, **rest) -> Point:
    """Return the contact of a plane and a ball."""
    normal = plane.pose.rot.columns[2]
    dist = (center - plane.pose.pos).dot(normal) - radius
    return Point(dist, center - (normal * (radius + 0.5 * dist)), normal, **rest)


def plane_sphere(plane: Shape, sphere: Shape) -> list[Point]:
    """Return one point."""
    return [plane_point(plane, sphere.pose.pos, sphere.size.x)]


def plane_ellipsoid(plane: Shape, ellipsoid: Shape) -> list[Point]:
    r"""Return one point: the lowest of the ellipsoid, $-R S^2 R^T n / |S R^T n|$, for half
    axes $S$ and the normal $n$ of the plane; the center if $S R^T n$ is zero."""
    rot, size = ellipsoid.pose.rot, ellipsoid.size
    normal = rot.T @ plane.pose.rot.columns[2]
    scaled = Vec3(*(n * s for n, s in zip(normal, size)))
    square = scaled.dot(scaled)
    depth = jnp.sqrt(jnp.where(square > 0.0, square, 1.0))
    lowest = Vec3(*(-a * s / depth for a, s in zip(scaled, size)))
    return [plane_point(plane, ellipsoid.pose.pos + (rot @ lowest), 0.0)]


def plane_capsule(plane: Shape, capsule: Shape) -> list[Point]:
    """Return one point at each end; the first friction axis follows the capsule."""
    axis = capsule.pose.rot.columns[2]
    ends = (axis * capsule.size.y, axis * -capsule.size.y)
    return [
        plane_point(plane, capsule.pose.pos + end, capsule.size.x, tangent=axis)
        for end in ends
    ]


def plane_box(plane: Shape, box: Shape) -> list[Point]:
    """Return all corners, of which the four below the center are valid.

    Of two opposite corners at the height of the center, as of a box without thickness, the
    first one is valid.
    """
    normal = plane.pose.rot.columns[2]
    points = []
    for k in range(8):
        signs = (1.0 if k & (1 << axis) else -1.0 for axis in range(3))
        local = Vec3(*(s * size for s, size in zip(signs, box.size)))
        corner = box.pose.rot @ local
        point = plane_point(plane, box.pose.pos + corner, 0.0)
        height = normal.dot(corner)
        points.append(point._replace(valid=height <= 0.0 if k < 4 else height < 0.0))
    return points


def plane_cylinder(plane: Shape, cylinder: Shape) -> list[Point]:
    """Return the lowest point of each rim, and two more on the lower rim, 120 degrees
    away."""
    normal = plane.pose.rot.columns[2]
    axis, radius = cylinder.pose.rot.columns[2], cylinder.size.x
    slope = normal.dot(axis)
    # The direction in the disk that leads down: -normal without its part along the
    # axis. It does not depend on the sign of the axis, which then turns down.
    down = (axis * slope) - normal
    axis = axis * jnp.where(slope > 0.0, -1.0, 1.0)
    square = down.dot(down)
    # 1e-12, as in MuJoCo, or what rounding makes of a zero in single precision.
    flat = square < max(1e-24, (16 * jnp.finfo(square.dtype).eps) ** 2)
    scale = radius / jnp.sqrt(jnp.where(flat, 1.0, square))
    across = cylinder.pose.rot.columns[0]
    down = Vec3(*(jnp.where(flat, radius * a, scale * d) for a, d in zip(across, down)))
    half = axis * cylinder.size.y
    side = unit_normal(down, half) * (radius * (0.5 * 3.0**0.5))
    center = cylinder.pose.pos
    at = lambda offset: plane_point(plane, center + offset, 0.0)
    lowest = at(down + half)
    back = (down * -0.5) + half
    return [lowest, at(down - half), at(back + side), at(back - side)]


def spheres(a: Shape, center1: Vec3, b: Shape, center2: Vec3) -> Point:
    """Return the contact of spheres about points of two shapes.

    Where the points coincide, the normal is perpendicular to the z axes of both (MuJoCo:
    `mjraw_SphereSphere`).
    """
    radius1, radius2 = a.size.x, b.size.x
    apart = center2 - center1
    across = a.pose.rot.columns[2].cross(b.pose.rot.columns[2])
    normal = unit(apart, unit(across))
    dist = safe_sqrt(apart.dot(apart)) - radius1 - radius2
    return Point(dist, center1 + (normal * (radius1 + 0.5 * dist)), normal)


def sphere_sphere(a: Shape, b: Shape) -> list[Point]:
    """Return one point."""
    return [spheres(a, a.pose.pos, b, b.pose.pos)]


def sphere_capsule(sphere: Shape, capsule: Shape) -> list[Point]:
    """Return one point."""
    axis = capsule.pose.rot.columns[2]
    along = axis.dot(sphere.pose.pos - capsule.pose.pos)
    along = clamp(along, -capsule.size.y, capsule.size.y)
    near = capsule.pose.pos + (axis * along)
    return [spheres(sphere, sphere.pose.pos, capsule, near)]


def capsule_capsule(a: Shape, b: Shape) -> list[Point]:
    """Return two points, of which the second is valid where the axes are parallel.

    Axes are parallel where the sine of the angle between them is below 1e-4, as in MuJoCo
    4. Then the two points are at the ends of the overlap of the axes; if these do not
    overlap, both are the same. Where axes become parallel, the distance of the first point
    and its normal change by less than the angle, but its position jumps from one end of
    the overlap to the other, or does not, and the second point appears. Derivatives are
    those of the case that applies. A capsule of length zero is a sphere.
    """
    u, v = a.pose.rot.columns[2] * a.size.y, b.pose.rot.columns[2] * b.size.y
    apart = a.pose.pos - b.pose.pos
    uu, uv, vv = u.dot(u), -u.dot(v), v.dot(v)
    du, dv = -u.dot(apart), v.dot(apart)
    det = uu * vv - uv * uv
    rounding = 64 * float(jnp.finfo(det.dtype).eps)
    parallel = det < max(1e-8, rounding) * uu * vv
    # The position on a capsule of length zero is 0; it is the nearest one on the other.
    one, two = uu > 0.0, vv > 0.0
    uu, vv = jnp.where(one, uu, 1.0), jnp.where(two, vv, 1.0)
    safe = jnp.where(parallel | ~one | ~two, 1.0, det)
    s, t = (vv * du - uv * dv) / safe, (uu * dv - uv * du) / safe
    s, t = jnp.where(two, s, du / uu), jnp.where(one, t, dv / vv)
    t = jnp.where(s > 1.0, (dv - uv) / vv, jnp.where(s < -1.0, (dv + uv) / vv, t))
    s = clamp(s, -1.0, 1.0)
    s = jnp.where(t > 1.0, (du - uv) / uu, jnp.where(t < -1.0, (du + uv) / uu, s))
    s, t = clamp(s, -1.0, 1.0), clamp(t, -1.0, 1.0)

    # Parallel: the points nearest to the ends of the first axis, if they are not beyond
    # the ends of the second, else those nearest to these.
    # Where ends of both are level, the derivative is the mean of both cases.
    level = 16 * float(jnp.finfo(det.dtype).eps)
    slope = lambda x: 0.5 * (x - lax.stop_gradient(x))

    def overlap(end):
        free = (dv - uv * end) / vv
        t = clamp(free, -1.0, 1.0)
        near = clamp((du - uv * t) / uu, -1.0, 1.0)
        s = jnp.where(jnp.abs(free) > 1.0, near, end)
        tie = jnp.abs(jnp.abs(free) - 1.0) < level
        stop = lax.stop_gradient(t)
        s = jnp.where(tie, lax.stop_gradient(s) + slope((du - uv * stop) / uu), s)
        return s, jnp.where(tie, stop + slope(free), t)

    upper, lower = overlap(1.0), overlap(-1.0)
    s, t = (jnp.where(parallel, x, y) for x, y in zip(upper, (s, t)))
    at = lambda s, t: spheres(a, a.pose.pos + (u * s), b, b.pose.pos + (v * t))
    return [at(s, t), at(*lower)._replace(valid=parallel)]


def capsule_cylinder(capsule: Shape, cylinder: Shape) -> list[Point]:
    """Return one point, of the axis of the capsule and the solid cylinder.

    MuJoCo runs a general convex algorithm here, to a tolerance. The distance of the
    cylinder to a point of the axis is convex along it, so its minimum is found by
    bisection of the derivative, and differentiated through one Newton step. For an axis
    that itself enters the cylinder see `_penetration`.
    """
    rot, half, radius = cylinder.pose.rot, cylinder.size.y, cylinder.size.x
    center = rot.T @ (capsule.pose.pos - cylinder.pose.pos)
    axis = (rot.T @ capsule.pose.rot.columns[2]) * capsule.size.y
    p = center + (axis * _nearest(center, axis, radius, half))
    rho = safe_sqrt(p.x * p.x + p.y * p.y)
    out, over = rho - radius, jnp.abs(p.z) - half
    inside = (out <= 0.0) & (over <= 0.0)
    radial = unit(Vec3(p.x, p.y, jnp.zeros_like(p.x)), None, radius)
    up = jnp.where(p.z < 0.0, -1.0, 1.0)
    zero = jnp.zeros_like(up)
    # Outwards from the cylinder, of length equal to the distance of the axis.
    beyond = (radial * positive_part(out)) + Vec3(zero, zero, up * positive_part(over))
    outward = unit(beyond, None, radius + half)
    near = _Exit(-safe_sqrt(beyond.dot(beyond)), outward, p)
    depth, outward, p = _either(inside, _penetration(center, axis, radius, half), near)
    dist = -depth - capsule.size.x
    normal = -(rot @ outward)
    world = cylinder.pose.pos + (rot @ p)
    return [Point(dist, world + (normal * (capsule.size.x + 0.5 * dist)), normal)]


class _Exit(NamedTuple):
    """A translation that separates an axis from a cylinder.

    - `depth`: length of the translation.
    - `outward`: its direction.
    - `point`: point of the axis that leaves the cylinder last.
    """

    depth: Any
    outward: Vec3
    point: Vec3


def _either(first, one: _Exit, two: _Exit) -> _Exit:
    choose = lambda a, b: jnp.where(first, a, b)
    return _Exit(
        choose(one.depth, two.depth),
        Vec3(*map(choose, one.outward, two.outward)),
        Vec3(*map(choose, one.point, two.point)),
    )


def _penetration(center: Vec3, axis: Vec3, radius, half) -> _Exit:
    r"""Compute the shortest translation that takes a segment out of a cylinder about z.

    Along a direction $n$ it takes $f(n) = R\,|n_{xy}| + H\,|n_z| - \min_t n \cdot p_t$,
    the supports of the two shapes. The least $f$ is where $n$ is a normal of a face of
    the cylinder swept by the segment: of a cap, of the lateral surface, or of the surface that a
    rim sweeps, where $n$ is perpendicular to the segment.
    """
    lowest, highest = center.z - jnp.abs(axis.z), center.z + jnp.abs(axis.z)
    lower = jnp.where(axis.z > 0.0, -1.0, 1.0)
    zero = jnp.zeros_like(lowest)
    one = zero + 1.0
    best = _Exit(half - lowest, Vec3(zero, zero, one), center + (axis * lower))
    cap = _Exit(half + highest, Vec3(zero, zero, -one), center - (axis * lower))
    for other in (cap, *_sideways(center, axis, radius, half)):
        best = _either(other.depth < best.depth, other, best)
    return best


def _sideways(center: Vec3, axis: Vec3, radius, half) -> list[_Exit]:
    """Return the exits through the lateral surface and across a rim."""
    zero = jnp.zeros_like(center.x + axis.x)
    square = axis.x * axis.x + axis.y * axis.y
    upright = square <= 1e-12 * axis.dot(axis)
    flat = jnp.where(upright, 1.0, square)
    across = Vec3(-axis.y, axis.x, zero) * (1.0 / jnp.sqrt(flat))
    across = Vec3(*(jnp.where(upright, e, a) for e, a in zip((1.0, 0.0, 0.0), across)))
    beside = across.dot(center)
    side = jnp.where(beside < 0.0, -1.0, 1.0)
    raw = -(center.x * axis.x + center.y * axis.y) / flat
    t = jnp.where(upright, 0.0, clamp(raw, -1.0, 1.0))
    p = center + (axis * t)
    # At an end of the axis the direction is that of the end; else it is across.
    end = unit(Vec3(p.x, p.y, zero), across, radius)
    passing = (jnp.abs(raw) < 1.0) & ~upright
    outward = Vec3(
        *(jnp.where(passing, a * side, e) for a, e in zip(across, end, strict=True))
    )
    mantle = _Exit(radius - outward.dot(p), outward, p)
    length = jnp.sqrt(jnp.where(upright, 1.0, axis.dot(axis)))
    rise = (axis * (1.0 / length)).cross(across)
    above = rise.dot(center)
    up = jnp.where(above < 0.0, -1.0, 1.0)
    angle, depth, least = _rim_angle(
        jnp.abs(beside), jnp.abs(above), jnp.sqrt(flat) / length, radius, half
    )
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    outward = (across * (side * cos)) + (rise * (up * sin))
    level = safe_sqrt(outward.x * outward.x + outward.y * outward.y)
    scale = radius / jnp.where(level > 0.0, level, 1.0)
    rim = Vec3(outward.x * scale, outward.y * scale, half * up)
    last = rim - (outward * depth)
    exists = least & ~upright & (level > 0.0)
    return [mantle, _Exit(jnp.where(exists, depth, jnp.inf), outward, last)]


def _rim_angle(beside, above, slope, radius, half):
    r"""Compute the angle $\varphi$ in $(0, \pi/2)$ at which

    $f = R \sqrt{1 - s^2 \sin^2 \varphi} + H s \sin\varphi - c_1 \cos\varphi - c_2
    \sin\varphi$

    is least between its ends, $f$, and whether there is such an angle. With $x =
    \tan\varphi$ the sign of $f'$ is that of the convex function $H s - c_2 + c_1 x - R
    s^2 x / \sqrt{1 + (1 - s^2) x^2}$: the least $f$ is at its larger root, if any.
    """
    square = slope * slope
    level = lambda sin: jnp.sqrt(jnp.maximum(1.0 - square * sin * sin, 1e-12))

    def value(angle):
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        rest = (half * slope - above) * sin - beside * cos
        return radius * level(sin) + rest

    def rate(angle):
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        turn = radius * square * sin * cos / level(sin)
        return (half * slope - above) * cos + beside * sin - turn

    steep = jnp.maximum(1.0 - square, 1e-12)
    ratio = radius * square / jnp.where(beside > 0.0, beside, 1e-12)
    start = jnp.arctan(jnp.sqrt(jnp.maximum(jnp.cbrt(ratio**2) - 1.0, 0.0) / steep))
    falls = lax.stop_gradient(rate(start)) < 0.0

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        falling = rate(middle) < 0.0
        return jnp.where(falling, middle, low), jnp.where(falling, high, middle)

    bounds = lax.stop_gradient((start, 0.5 * jnp.pi + 0.0 * start))
    low, high = lax.fori_loop(0, 52, bisect, bounds)
    angle = _implicit(rate, 0.5 * (low + high))
    return angle, value(angle), falls


def _nearest(center: Vec3, axis: Vec3, radius, half):
    """Compute the position in [-1, 1] at which a segment is nearest to a cylinder about
    z."""

    def slope(t):
        p = center + (axis * t)
        rho = safe_sqrt(p.x * p.x + p.y * p.y)
        out, over = rho - radius, jnp.abs(p.z) - half
        safe = jnp.where(rho > 0.0, rho, 1.0)
        d_out = (p.x * axis.x + p.y * axis.y) / safe
        d_over = jnp.where(p.z < 0.0, -axis.z, axis.z)
        outside = positive_part(out) * d_out + positive_part(over) * d_over
        inside = jnp.where(out > over, d_out, d_over)
        return jnp.where((out <= 0.0) & (over <= 0.0), inside, outside)

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0.0
        return jnp.where(rising, low, middle), jnp.where(rising, middle, high)

    one = jnp.ones_like(center.x + axis.x + radius + half)
    low, high = lax.fori_loop(0, 52, bisect, (-one, one))
    t = 0.5 * (low + high)
    interior = (t > -1.0 + 1e-6) & (t < 1.0 - 1e-6)
    return jnp.where(interior, _implicit(slope, t), lax.stop_gradient(t))


def _implicit(slope, t):
    """Return a root of `slope` with its first derivative by the implicit function
    theorem."""
    t = lax.stop_gradient(t)
    # Exact: a difference would average over the edge of a cylinder.
    rate = lax.stop_gradient(jax.jvp(slope, (t,), (jnp.ones_like(t),))[1])
    step = jnp.where(rate > 0.0, slope(t) / jnp.where(rate > 0.0, rate, 1.0), 0.0)
    # The step itself is rounding; only its derivative counts.
    return t - (step - lax.stop_gradient(step))


class BoxContact(NamedTuple):
    """The contact of a ball and a box in the frame of the box; see `Point`."""

    dist: Any
    pos: Vec3
    normal: Vec3


def sphere_box(sphere: Shape, box: Shape) -> list[Point]:
    """Return one point.

    A center inside the box leaves through the nearest face. Where several are equally
    near, it is the first of -x, +x, -y, +y, -z, +z; the normal, its position and the
    derivatives of the distance jump there.
    """
    center = box.pose.rot.T @ (sphere.pose.pos - box.pose.pos)
    return [in_world(box, ball_box(center, sphere.size.x, box.size))]


def in_world(box: Shape, contact: BoxContact, valid=None) -> Point:
    """Return a contact in the world, given one in the frame of a box."""
    pos = box.pose.pos + (box.pose.rot @ contact.pos)
    normal = box.pose.rot @ contact.normal
    return Point(contact.dist, pos, normal, valid=valid)


def ball_box(center: Vec3, radius, size: Vec3) -> BoxContact:
    """Return the contact of a ball and a box about the origin."""
    nearest = Vec3(*(clamp(c, -s, s) for c, s in zip(center, size)))
    inward = nearest - center
    square = inward.dot(inward)
    inside = square <= zero_length(square.dtype) ** 2
    length = jnp.sqrt(jnp.where(inside, 1.0, square))
    # Inside: which face is the nearest, and how far the center is below it.
    over = [jnp.abs(c) - s for c, s in zip(center, size)]
    is_x = (over[0] >= over[1]) & (over[0] >= over[2])
    is_y = ~is_x & (over[1] >= over[2])
    below = jnp.where(is_x, over[0], jnp.where(is_y, over[1], over[2]))
    choose = lambda own, c: jnp.where(own, jnp.where(c > 0.0, -1.0, 1.0), 0.0)
    face = Vec3(
        choose(is_x, center.x), choose(is_y, center.y), choose(~(is_x | is_y), center.z)
    )
    normal = Vec3(*(jnp.where(inside, f, n / length) for f, n in zip(face, inward)))
    dist = jnp.where(inside, below, length) - radius
    # Halfway between the surfaces: the center, moved along the normal.
    return BoxContact(dist, center + (normal * (radius + 0.5 * dist)), normal)


def sphere_cylinder(sphere: Shape, cylinder: Shape) -> list[Point]:
    """Return one point: on a cap, on the lateral surface, or on a rim.

    A center inside the cylinder leaves through the nearer of the lateral surface and the
    nearer cap.
    """
    radius, half = cylinder.size.x, cylinder.size.y
    axis = cylinder.pose.rot.columns[2]
    apart = sphere.pose.pos - cylinder.pose.pos
    along = apart.dot(axis)
    across = apart - (axis * along)
    square = across.dot(across)
    rho = safe_sqrt(square)
    beside, above = jnp.abs(along) < half, square < radius * radius
    inside = beside & above
    cap = above & ~(inside & (half - jnp.abs(along) >= radius - rho))
    side = beside & ~cap
    up = jnp.where(along > 0.0, 1.0, -1.0)

    # On the lateral surface the cylinder acts as a ball about its axis, on a rim as a
    # point of it.
    rim = ~(side | cap)
    beyond = rim & (rho > 0.0)
    scale = jnp.where(beyond, radius / jnp.where(beyond, rho, 1.0), 0.0)
    level = jnp.where(side, along, up * half)
    target = cylinder.pose.pos + (axis * level) + (across * scale)
    ball = cylinder._replace(
        size=cylinder.size._replace(x=jnp.where(side, radius, 0.0))
    )
    near = spheres(sphere, sphere.pose.pos, ball, target)

    # On a cap it acts as a plane.
    normal = axis * -up
    dist = jnp.abs(along) - half - sphere.size.x
    flat = Point(
        dist, sphere.pose.pos + (normal * (sphere.size.x + 0.5 * dist)), normal
    )
    choose = lambda one, two: Vec3(*(jnp.where(cap, a, b) for a, b in zip(one, two)))
    pos, normal = choose(flat.pos, near.pos), choose(flat.normal, near.normal)
    return [Point(jnp.where(cap, flat.dist, near.dist), pos, normal)]
