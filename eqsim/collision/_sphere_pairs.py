"""Contact points of spheres with boxes and cylinders (MuJoCo: `mjc_SphereBox`,
`mjc_SphereCylinder`)."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..spatial import clamp, safe_sqrt, Vec3
from ..spatial._rotation import zero_length
from ._points import Point, Shape
from ._shapes import spheres


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
    square = inward | inward
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
    along = apart | axis
    across = apart - (axis * along)
    square = across | across
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
