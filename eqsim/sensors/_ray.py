r"""Intersections of rays with shapes, and tests for points inside shapes.

Each function takes n shapes of one kind and one ray per shape. It returns the distance
to the first intersection in multiples of the direction, negative if there is none. Rays
that start inside a shape hit it from within, except planes, which are hit only from
above.

Source: MuJoCo, `mju_rayGeom`, `mju_insideGeom`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..collision._shapes import Shape, unit
from ..model import GeomKind
from ..spatial import clamp, Vec3


_TINY = 1e-15


class Ray(NamedTuple):
    """Rays from a point along a unit vector."""

    point: Vec3
    direction: Vec3

    def at(self, distance) -> Vec3:
        """Return the points at some distances."""
        return self.point + (self.direction * distance)


class Hit(NamedTuple):
    """First intersections.

    - `dist`: distance; -1 if the ray misses the shape.
    - `normal`: unit normal of the surface, in the world; zero if the ray misses.
    """

    dist: Any
    normal: Vec3


def ray_shape(kind: GeomKind, shape: Shape, ray: Ray) -> Hit:
    """Intersect rays with shapes of one kind."""
    return world_hit(shape, *_FUNCTIONS[kind](shape.size, local_ray(shape, ray)))


def local_ray(shape: Shape, ray: Ray) -> Ray:
    """Return rays in the frames of shapes."""
    back = shape.pose.rot.T
    return Ray(back @ (ray.point - shape.pose.pos), back @ ray.direction)


def world_hit(shape: Shape, dist, normal: Vec3) -> Hit:
    """Return intersections in the world; negative distances are misses."""
    hit = dist >= 0.0
    world = shape.pose.rot @ normal
    normal = Vec3(*(jnp.where(hit, x, 0.0) for x in world))
    return Hit(jnp.where(hit, dist, -1.0), normal)


def inside(kind: GeomKind, shape: Shape, point: Vec3):
    """Test if points are inside shapes of one kind."""
    p = shape.pose.rot.T @ (point - shape.pose.pos)
    size = shape.size
    if kind is GeomKind.PLANE:
        return p.z < 0.0
    if kind is GeomKind.SPHERE:
        return (p | p) < size.x * size.x
    if kind is GeomKind.CAPSULE:
        over = p.z - clamp(p.z, -size.y, size.y)
        return p.x * p.x + p.y * p.y + over * over < size.x * size.x
    if kind is GeomKind.ELLIPSOID:
        scaled = Vec3(p.x / size.x, p.y / size.y, p.z / size.z)
        return (scaled | scaled) < 1.0
    if kind is GeomKind.CYLINDER:
        return (jnp.abs(p.z) < size.y) & (p.x * p.x + p.y * p.y < size.x * size.x)
    return (jnp.abs(p.x) < size.x) & (jnp.abs(p.y) < size.y) & (jnp.abs(p.z) < size.z)


class _Roots(NamedTuple):
    """Roots of a quadratic equation, the smaller first; -1 if there are none."""

    low: Any
    high: Any

    @property
    def first(self):
        """Return the smallest root that is not negative, or -1 if there is none."""
        high = jnp.where(self.high >= 0.0, self.high, -1.0)
        return jnp.where(self.low >= 0.0, self.low, high)


def _roots(a, b, c) -> _Roots:
    """Solve $a x^2 + 2 b x + c = 0$."""
    det = b * b - a * c
    real = (det >= 0.0) & (a >= _TINY)
    # The distance of a ray that grazes the surface is not differentiable.
    inner = real & (det > 0.0)
    root = jnp.where(inner, jnp.sqrt(jnp.where(inner, det, 1.0)), 0.0)
    scale = 1.0 / jnp.where(real, a, 1.0)
    low, high = (-b - root) * scale, (-b + root) * scale
    return _Roots(jnp.where(real, low, -1.0), jnp.where(real, high, -1.0))


class Best(NamedTuple):
    """The nearest intersection so far."""

    dist: Any
    normal: Vec3

    def or_nearer(self, dist, normal: Vec3, accepted) -> "Best":
        """Return this intersection, or another one that is valid and nearer."""
        nearer = accepted & (dist >= 0.0) & ((self.dist < 0.0) | (dist < self.dist))
        chosen = (jnp.where(nearer, a, b) for a, b in zip(normal, self.normal))
        return Best(jnp.where(nearer, dist, self.dist), Vec3(*chosen))


def no_hit(like) -> Best:
    """Return no intersection."""
    zero = jnp.zeros_like(like)
    return Best(zero - 1.0, Vec3(zero, zero, zero))


def safe_quotient(a, b):
    """Return $a / b$, and true if $b$ is not zero."""
    some = jnp.abs(b) > _TINY
    return jnp.where(some, a, 0.0) / jnp.where(some, b, 1.0), some


def _plane(size: Vec3, ray: Ray) -> Best:
    down = ray.direction.z <= -_TINY
    dist = jnp.where(down, -ray.point.z, -1.0) / jnp.where(down, ray.direction.z, 1.0)
    at = ray.at(dist)
    # A plane is hit only within the rectangle that is drawn.
    within = ((size.x <= 0.0) | (jnp.abs(at.x) <= size.x)) & (
        (size.y <= 0.0) | (jnp.abs(at.y) <= size.y)
    )
    zero = jnp.zeros_like(dist)
    up = Vec3(zero, zero, zero + 1.0)
    return no_hit(dist).or_nearer(dist, up, down & within)


def _sphere(size: Vec3, ray: Ray) -> Best:
    return _ball(size.x, ray, jnp.zeros_like(ray.point.z), _always)


def _always(z):
    return z == z


def _ball(radius, ray: Ray, center, accepted: Callable) -> Best:
    """Intersect with a sphere on the z axis, limited to accepted points."""
    point = Vec3(ray.point.x, ray.point.y, ray.point.z - center)
    roots = _roots(
        ray.direction | ray.direction,
        ray.direction | point,
        (point | point) - radius * radius,
    )
    best = no_hit(roots.low)
    for root in roots:
        at = point + (ray.direction * root)
        best = best.or_nearer(root, unit(at), accepted(ray.at(root).z))
    return best


def _tube(radius, ray: Ray) -> tuple[Any, Vec3]:
    """Intersect with an infinite cylinder about the z axis."""
    p, d = ray.point, ray.direction
    dist = _roots(
        d.x * d.x + d.y * d.y,
        d.x * p.x + d.y * p.y,
        p.x * p.x + p.y * p.y - radius * radius,
    ).first
    at = ray.at(dist)
    return dist, unit(Vec3(at.x, at.y, jnp.zeros_like(at.x)))


def _capsule(size: Vec3, ray: Ray) -> Best:
    radius, half = size.x, size.y
    dist, normal = _tube(radius, ray)
    between = jnp.abs(ray.at(dist).z) <= half
    best = no_hit(dist).or_nearer(dist, normal, between)
    top = _ball(radius, ray, half, lambda z: z >= half)
    bottom = _ball(radius, ray, -half, lambda z: z <= -half)
    for cap in (top, bottom):
        best = best.or_nearer(cap.dist, cap.normal, cap.dist >= 0.0)
    return best


def _ellipsoid(size: Vec3, ray: Ray) -> Best:
    p, d = ray.point, ray.direction
    weight = Vec3(*(1.0 / (s * s) for s in size))
    scale = lambda v: Vec3(*(a * b for a, b in zip(weight, v)))
    dist = _roots(scale(d) | d, scale(d) | p, (scale(p) | p) - 1.0).first
    normal = unit(scale(ray.at(dist)))
    return no_hit(dist).or_nearer(dist, normal, dist >= 0.0)


def _cylinder(size: Vec3, ray: Ray) -> Best:
    radius, half = size.x, size.y
    best = no_hit(ray.point.x)
    for side in (-1.0, 1.0):
        dist, some = safe_quotient(side * half - ray.point.z, ray.direction.z)
        at = ray.at(dist)
        on_disk = at.x * at.x + at.y * at.y <= radius * radius
        zero = jnp.zeros_like(dist)
        best = best.or_nearer(dist, Vec3(zero, zero, zero + side), some & on_disk)
    dist, normal = _tube(radius, ray)
    return best.or_nearer(dist, normal, jnp.abs(ray.at(dist).z) <= half)


def _box(size: Vec3, ray: Ray) -> Best:
    best = no_hit(ray.point.x)
    for axis, others in enumerate(((1, 2), (0, 2), (0, 1))):
        for side in (-1.0, 1.0):
            dist, some = safe_quotient(
                side * size[axis] - ray.point[axis], ray.direction[axis]
            )
            at = ray.at(dist)
            for other in others:
                some = some & (jnp.abs(at[other]) <= size[other])
            zero = jnp.zeros_like(dist)
            normal = Vec3(*(zero + side if k == axis else zero for k in range(3)))
            best = best.or_nearer(dist, normal, some)
    return best


_FUNCTIONS: dict[GeomKind, Callable[[Vec3, Ray], Best]] = {
    GeomKind.PLANE: _plane,
    GeomKind.SPHERE: _sphere,
    GeomKind.CAPSULE: _capsule,
    GeomKind.ELLIPSOID: _ellipsoid,
    GeomKind.CYLINDER: _cylinder,
    GeomKind.BOX: _box,
}
