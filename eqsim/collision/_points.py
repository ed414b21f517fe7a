"""Shapes in the world, and the points at which two of them touch."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..kinematics._forward import Pose
from ..spatial import Mat3, Vec3


class Hulls(NamedTuple):
    """Vertices of the convex hulls of meshes.

    - `points`: of all meshes one after the other, in their frames, `(nvertex, *batch)`.
        They are not one per shape.
    - `start`, `count`: which of them belong to the mesh of each shape, `(nshape, *batch)`.
    """

    points: Any
    start: Any
    count: Any


class Shape(NamedTuple):
    """Shapes of one kind: pose in the world, sizes (see `Geoms.size`), and hulls if they
    are meshes."""

    pose: Pose
    size: Vec3
    hulls: Hulls | None = None


class Point(NamedTuple):
    """A possible contact of each pair.

    - `dist`: distance of the surfaces, negative in penetration.
    - `pos`: position halfway between the surfaces.
    - `normal`: unit vector from the first shape to the second.
    - `tangent`: direction of the first friction axis, None if it is free.
    - `valid`: whether the point exists (None: always).
    """

    dist: Any
    pos: Vec3
    normal: Vec3
    tangent: Vec3 | None = None
    valid: Any = None


def unit(v: Vec3, fallback: Vec3 | None = None) -> Vec3:
    """Normalize `v`; where it is zero up to rounding, return `fallback` (by default the
    x axis), with derivative zero."""
    square = v | v
    tiny = square < (64 * float(jnp.finfo(square.dtype).eps)) ** 2
    scale = jnp.where(tiny, 0.0, 1.0 / jnp.sqrt(jnp.where(tiny, 1.0, square)))
    if fallback is None:
        one, zero = jnp.ones_like(square), jnp.zeros_like(square)
        fallback = Vec3(one, zero, zero)
    return Vec3(*(a * scale + jnp.where(tiny, b, 0.0) for a, b in zip(v, fallback)))


def contact_frame(normal: Vec3, tangent: Vec3 | None) -> Mat3:
    """Return frames with the rows normal and two friction axes (MuJoCo:
    `mju_makeFrame`)."""
    if tangent is None:
        upright = jnp.abs(normal.y) < 0.5
        one, zero = jnp.ones_like(normal.x), jnp.zeros_like(normal.x)
        tangent = Vec3(
            zero, jnp.where(upright, one, zero), jnp.where(upright, zero, one)
        )
    first = unit(tangent - (normal * (normal | tangent)))
    return Mat3(*normal, *first, *(normal ^ first))


class ContactPoints(NamedTuple):
    """Possible contacts, sorted as `ContactPlan` says, `(npoint, *batch)`.

    - `dist`: distance of the surfaces, m; negative in penetration.
    - `pos`: position in the world, halfway between the surfaces.
    - `frame`: rows are the normal (from the first shape to the second) and two friction
        axes.
    - `valid`: whether the point exists at all.
    """

    dist: Any
    pos: Vec3
    frame: Mat3
    valid: Any


def complete(point: Point) -> ContactPoints:
    """Return a point with its frame; None becomes what it stands for."""
    frame = contact_frame(point.normal, point.tangent)
    valid = point.valid
    if valid is None:
        valid = jnp.ones_like(point.dist, dtype=bool)
    full = ContactPoints(point.dist, point.pos, frame, valid)
    shape = jnp.broadcast_shapes(*(x.shape for x in jtu.tree_leaves(full)))
    return jtu.tree_map(lambda x: jnp.broadcast_to(x, shape), full)
