"""Contact points of pairs without a closed form; on a CPU, only of pairs that are near."""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._loops import each_row
from ..model import Collider, GeomKind, ShapeKind
from ..model._shape_kinds import AnyKind
from ..spatial import Mat3, safe_sqrt, Vec3
from ._points import complete, ContactPoints, Hulls, Shape


class Reach(NamedTuple):
    """Bounds by which near pairs are found.

    - `first`, `second`: half sizes of boxes about the shapes, in their frames.
    - `margin`: distance below which contact points are computed.
    """

    first: Vec3
    second: Vec3
    margin: Any


def half_extents(kind: AnyKind, size: Vec3) -> Vec3:
    """Return half sizes of the boxes about shapes of one kind, in their frames."""
    if kind is GeomKind.SPHERE:
        return Vec3(size.x, size.x, size.x)
    if kind is GeomKind.CAPSULE:
        return Vec3(size.x, size.x, size.x + size.y)
    if kind is GeomKind.CYLINDER:
        return Vec3(size.x, size.x, size.y)
    return kind.extents(size) if isinstance(kind, ShapeKind) else size


def near_points(
    collider: Collider, first: Shape, second: Shape, reach: Reach, on_plane: bool
) -> ContactPoints:
    """Return the points of all pairs, `(npair, nslot, *batch)`.

    The points of pairs that are farther apart than their margin are not valid; their
    distance is a lower bound. On a CPU these pairs are skipped; on other devices all
    pairs of a group are computed.

    **Arguments:**

    - `on_plane`: true if the first shapes are planes.
    """

    (first, first_hulls), (second, second_hulls) = map(apart, (first, second))
    assert collider.num_points is not None, "no height fields are among the pairs"
    count = collider.num_points

    def visit(pair):
        one, two, bounds = jtu.tree_map(lambda x: x[None], pair)
        one, two = together(one, first_hulls), together(two, second_hulls)
        dist = lax.stop_gradient(gap(one, two, bounds, on_plane))

        def touch():
            found = collider.find(one, two, bounds.margin)
            points = [complete(point) for point in found]
            return jtu.tree_map(lambda *xs: jnp.concatenate(xs), *points)

        skipped = no_points(count, dist)
        near = dist < bounds.margin
        found = lax.cond(jnp.any(near), touch, lambda: skipped)
        # Without a kernel, the whole batch takes one branch, or both.
        keep = lambda x, y: jnp.where(near, x, y)
        return jtu.tree_map(keep, found, skipped)

    return each_row(visit, (first, second, reach))


def apart(shape: Shape) -> tuple[Shape, Hulls | None]:
    """Separate what all pairs share of the hulls of meshes from what each pair has."""
    if shape.hulls is None:
        return shape, None
    own = shape.hulls._replace(points=None, polygons=None)
    return shape._replace(hulls=own), shape.hulls


def together(shape: Shape, shared: Hulls | None) -> Shape:
    """Undo `apart`."""
    if shape.hulls is None or shared is None:
        return shape
    full = shape.hulls._replace(points=shared.points, polygons=shared.polygons)
    return shape._replace(hulls=full)


def no_points(count: int, dist) -> ContactPoints:
    """Return points that are not valid, `(count, *batch)`, of a distance."""
    dist = jnp.broadcast_to(dist, (count, *dist.shape[1:]))
    zero, one = jnp.zeros_like(dist), jnp.ones_like(dist)
    frame = Mat3(one, zero, zero, zero, one, zero, zero, zero, one)
    invalid = jnp.zeros(dist.shape, bool)
    return ContactPoints(dist, Vec3(zero, zero, zero), frame, invalid)


def gap(one: Shape, two: Shape, reach: Reach, on_plane: bool):
    """Return a lower bound of the distance of two shapes: that of the boxes about them
    along the axes of both, or that of the box about one from the sphere about the
    other."""
    apart = two.pose.pos - one.pose.pos
    turn = one.pose.rot.T @ two.pose.rot
    first, second = reach.first, reach.second
    seen = one.pose.rot.T @ apart
    extent = Vec3(*(_sizes(row) | second for row in turn.rows))
    if on_plane:
        return seen.z - extent.z
    back = two.pose.rot.T @ apart
    depth = Vec3(*(_sizes(column) | first for column in turn.columns))
    over = _sizes(seen) - first, _sizes(back) - second
    radius = lambda half: safe_sqrt(half | half)
    bounds = [*(over[0] - extent), *(over[1] - depth)]
    bounds += [_length(over[0]) - radius(second), _length(over[1]) - radius(first)]
    return ft.reduce(jnp.maximum, bounds)


def _sizes(v: Vec3) -> Vec3:
    return Vec3(*map(jnp.abs, v))


def _length(over: Vec3):
    """Return the distance of a point from a box, of what it exceeds this by."""
    over = Vec3(*(jnp.maximum(x, 0.0) for x in over))
    return safe_sqrt(over | over)
