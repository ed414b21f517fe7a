"""Shapes in the world, the points at which two of them touch, and points of near pairs."""

import dataclasses
import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from .._loops import each_row
from ..kinematics.link_motion import Pose
from ..model import Collider, GeomKind, HullGraph, System
from ..model.arrays import per_row
from ..model.kinds import AnyKind
from ..spatial import Mat3, safe_sqrt, Vec3
from ..spatial.vectors import vec3
from ._direction_tables import direction_tables


# Shapes in the world, and the points at which two of them touch.


def shape_sizes(sys: System) -> Vec3:
    """Return the sizes of all shapes, `(ngeom, *batch)`, zero where a kind has fewer."""
    counts = np.array([kind.num_sizes for kind in sys.geoms.kinds])
    sizes = enumerate(vec3(sys.geoms.size))
    return Vec3(*(x * per_row(counts > k, x) for k, x in sizes))


class Polygons(eqx.Module):
    """Polygons of the convex hulls of meshes, all hulls one after the other.

    - `starts`: first entry of each polygon in `corners`, and the end.
    - `corners`: vertices around each polygon, counterclockwise seen from outside, counted
        from the first vertex of the hull.
    - `vertex_starts`: first entry of each vertex in `around`, and the end.
    - `around`: the polygons that meet at each vertex.
    - `neighbor_starts`, `neighbors`: see `HullGraph`; None if they are not known.
    - `farthest`: see `DirectionTables`; None if it is not known.
    - `most`: the largest number of corners of a polygon.
    - `most_vertices`: the largest number of vertices of a hull.
    - `most_around`: the largest number of polygons that meet at a vertex.
    """

    starts: Any
    corners: Any
    vertex_starts: Any
    around: Any
    most: int = eqx.field(static=True)
    neighbor_starts: Any = None
    neighbors: Any = None
    farthest: Any = None
    most_vertices: int = eqx.field(static=True, default=0)
    most_around: int = eqx.field(static=True, default=0)


def polygons_of(vertex_starts, polygon_starts, corner_starts, corners) -> Polygons:
    """Return polygons with what meets at each vertex; arguments as in `HullGraph`."""
    around: list[list[int]] = [[] for _ in range(int(vertex_starts[-1]))]
    for hull in range(len(vertex_starts) - 1):
        for polygon in range(polygon_starts[hull], polygon_starts[hull + 1]):
            first, last = corner_starts[polygon], corner_starts[polygon + 1]
            for corner in corners[first:last]:
                around[vertex_starts[hull] + corner].append(polygon)
    whole = lambda x: np.asarray(x, np.int32)
    ends = np.cumsum([0, *map(len, around)])
    return Polygons(
        starts=whole(corner_starts),
        corners=whole(corners),
        vertex_starts=whole(ends),
        around=whole([polygon for polygons in around for polygon in polygons]),
        most=int(np.max(np.diff(corner_starts), initial=0)),
        most_around=max(map(len, around), default=0),
    )


def hull_tables(sys: System) -> tuple[Vec3, Polygons]:
    """Return the vertices and the polygons of the hulls of all meshes."""
    return vec3(sys.meshes.vertices), hull_polygons(sys.meshes.hulls)


@ft.lru_cache(maxsize=256)
def hull_polygons(graph: HullGraph) -> Polygons:
    """Return the polygons and edges of the hulls of all meshes."""
    starts = graph.vertex_starts, graph.polygon_starts, graph.corner_starts
    tables = direction_tables(graph)
    return dataclasses.replace(
        polygons_of(*starts, graph.corners),
        neighbor_starts=np.asarray(graph.neighbor_starts, np.int32),
        neighbors=np.asarray(graph.neighbors, np.int32),
        farthest=None if tables is None else np.asarray(tables.farthest, np.int32),
        most_vertices=int(np.max(np.diff(graph.vertex_starts), initial=0)),
    )


class Hulls(NamedTuple):
    """Convex hulls of meshes.

    - `points`: vertices of all meshes one after the other, in their frames,
        `(nvertex, *batch)`. They are not one per shape.
    - `start`, `count`: first vertex and number of vertices of the mesh of each shape,
        `(nshape, *batch)`.
    - `polygons`: polygons between the vertices; None if they are not needed.
    - `tables`: first entry of the mesh of each shape in `Polygons.farthest`; None if it is
        not used.
    """

    points: Any
    start: Any
    count: Any
    polygons: Polygons | None = None
    tables: Any = None


class Grids(NamedTuple):
    """Grids of height fields.

    - `heights`: heights of the grid points of all height fields one after the other, row
        after row, `(nheight, *batch)`. They are not one per shape.
    - `start`, `rows`, `columns`: first grid point, and number of rows and columns, of the
        height field of each shape, `(nshape, *batch)`.
    """

    heights: Any
    start: Any
    rows: Any
    columns: Any


class Shared(NamedTuple):
    """What the shapes of all pairs share.

    - `points`, `polygons`: see `Hulls`; None if no shape is a mesh.
    - `heights`: see `Grids`; None if no shape is a height field.
    """

    points: Any = None
    polygons: Polygons | None = None
    heights: Any = None


def shape_tables(sys: System) -> Shared:
    """Return what the shapes of all pairs share."""
    points, polygons = hull_tables(sys)
    return Shared(points, polygons, sys.height_fields.heights)


class Shape(NamedTuple):
    """Shapes of one kind: pose in the world, sizes (see `Geoms.size`; of height fields,
    `HeightFields.size`), hulls if they are meshes, grids if they are height fields."""

    pose: Pose
    size: Vec3
    hulls: Hulls | None = None
    grids: Grids | None = None


class Point(NamedTuple):
    """A possible contact of each pair.

    - `dist`: distance of the surfaces, negative in penetration.
    - `pos`: position halfway between the surfaces.
    - `normal`: unit vector from the first shape to the second.
    - `tangent`: direction of the first friction axis, None if it is free.
    - `valid`: true if the point exists (None: always).
    """

    dist: Any
    pos: Vec3
    normal: Vec3
    tangent: Vec3 | None = None
    valid: Any = None


def unit(v: Vec3, fallback: Vec3 | None = None, size: Any = None) -> Vec3:
    """Normalize `v`; where it is zero up to rounding, return `fallback` (by default the
    x axis), with derivative zero.

    **Arguments:**

    - `v`: vectors.
    - `fallback`: returned in place of a zero vector.
    - `size`: length relative to which rounding is measured; None or zero: one.
    """
    if size is not None:
        # A constant factor changes neither the result nor its derivatives.
        positive = size > float(jnp.finfo(size.dtype).tiny)
        scale = jnp.where(positive, 1.0 / jnp.where(positive, size, 1.0), 1.0)
        v = v * lax.stop_gradient(scale)
    square = v.dot(v)
    tiny = square < (64 * float(jnp.finfo(square.dtype).eps)) ** 2
    scale = jnp.where(tiny, 0.0, 1.0 / jnp.sqrt(jnp.where(tiny, 1.0, square)))
    if fallback is None:
        one, zero = jnp.ones_like(square), jnp.zeros_like(square)
        fallback = Vec3(one, zero, zero)
    return Vec3(*(a * scale + jnp.where(tiny, b, 0.0) for a, b in zip(v, fallback)))


def unit_normal(one: Vec3, two: Vec3, fallback: Vec3 | None = None) -> Vec3:
    """Return the unit vector perpendicular to two vectors of similar lengths, between 1e-9
    and 1e5 m in single precision; where these are parallel up to rounding, `fallback`, see
    `unit`."""
    size = safe_sqrt(one.dot(one) * two.dot(two))
    return unit(one.cross(two), fallback, size)


def unit_area(area: Vec3, size: Any) -> Vec3:
    """Normalize the area of a polygon, the sum of cross products of vectors to its corners.

    **Arguments:**

    - `size`: largest product of the lengths of two such vectors.
    """
    return unit(area, None, size)


def contact_frame(normal: Vec3, tangent: Vec3 | None) -> Mat3:
    """Return frames with the rows normal and two friction axes (MuJoCo:
    `mju_makeFrame`)."""
    if tangent is None:
        upright = jnp.abs(normal.y) < 0.5
        one, zero = jnp.ones_like(normal.x), jnp.zeros_like(normal.x)
        tangent = Vec3(
            zero, jnp.where(upright, one, zero), jnp.where(upright, zero, one)
        )
    first = unit(tangent - (normal * normal.dot(tangent)))
    return Mat3(*normal, *first, *normal.cross(first))


class ContactPoints(NamedTuple):
    """Possible contacts, sorted as `ContactPlan` says, `(npoint, *batch)`.

    - `dist`: distance of the surfaces, m; negative in penetration.
    - `pos`: position in the world, halfway between the surfaces.
    - `frame`: rows are the normal (from the first shape to the second) and two friction
        axes.
    - `valid`: true if the point exists at all.
    - `crowded`: true if the pair has more points than there is room for; None: no pair
        can have more.
    """

    dist: Any
    pos: Vec3
    frame: Mat3
    valid: Any
    crowded: Any = None

    def unless_crowded(self, converged):
        """Return `converged`, but false if there are more points than room for them."""
        if self.crowded is None:
            return converged
        return converged & ~jnp.any(self.crowded, axis=0)


def complete(point: Point) -> ContactPoints:
    """Return a point with its frame; None becomes what it stands for."""
    frame = contact_frame(point.normal, point.tangent)
    valid = point.valid
    if valid is None:
        valid = jnp.ones_like(point.dist, dtype=bool)
    full = ContactPoints(point.dist, point.pos, frame, valid)
    shape = jnp.broadcast_shapes(*(x.shape for x in jtu.tree_leaves(full)))
    return jtu.tree_map(lambda x: jnp.broadcast_to(x, shape), full)


# Contact points of pairs without a closed form; on a CPU, only of pairs that are near.


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
    return size if isinstance(kind, GeomKind) else kind.extents(size)


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

    (first, first_shared), (second, second_shared) = map(apart, (first, second))
    assert collider.num_points is not None, "no height fields are among the pairs"
    count = collider.num_points

    def visit(pair):
        one, two, bounds = jtu.tree_map(lambda x: x[None], pair)
        one, two = together(one, first_shared), together(two, second_shared)
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


def apart(shape: Shape) -> tuple[Shape, Shared]:
    """Separate what all pairs share of hulls and grids from what each pair has."""
    hulls, grids, shared = shape.hulls, shape.grids, Shared()
    if hulls is not None:
        shared = shared._replace(points=hulls.points, polygons=hulls.polygons)
        hulls = hulls._replace(points=None, polygons=None)
    if grids is not None:
        shared = shared._replace(heights=grids.heights)
        grids = grids._replace(heights=None)
    return shape._replace(hulls=hulls, grids=grids), shared


def together(shape: Shape, shared: Shared) -> Shape:
    """Undo `apart`."""
    hulls, grids = shape.hulls, shape.grids
    if hulls is not None:
        hulls = hulls._replace(points=shared.points, polygons=shared.polygons)
    if grids is not None:
        grids = grids._replace(heights=shared.heights)
    return shape._replace(hulls=hulls, grids=grids)


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
    extent = Vec3(*(_sizes(row).dot(second) for row in turn.rows))
    if on_plane:
        return seen.z - extent.z
    back = two.pose.rot.T @ apart
    depth = Vec3(*(_sizes(column).dot(first) for column in turn.columns))
    over = _sizes(seen) - first, _sizes(back) - second
    radius = lambda half: safe_sqrt(half.dot(half))
    bounds = [*(over[0] - extent), *(over[1] - depth)]
    bounds += [_length(over[0]) - radius(second), _length(over[1]) - radius(first)]
    return ft.reduce(jnp.maximum, bounds)


def _sizes(v: Vec3) -> Vec3:
    return Vec3(*map(jnp.abs, v))


def _length(over: Vec3):
    """Return the distance of a point from a box, of what it exceeds this by."""
    over = Vec3(*(jnp.maximum(x, 0.0) for x in over))
    return safe_sqrt(over.dot(over))
