"""Collision detection: from coordinates to contact points."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ..kinematics._forward import Kinematics, take_poses
from ..model import Collider, collider_of, GeomKind, System
from ..model._gather import concatenate, take
from ..model._shape_kinds import AnyKind
from ..spatial import vec3
from ._geom_frames import GeomFrames
from ._near import near_points, Reach
from ._plan import ContactPlan
from ._points import (
    complete,
    ContactPoints,
    Grids,
    hull_tables,
    Hulls,
    Shape,
)


# Smoothed contacts act within this number of widths: beyond, their weight is below 1e-17.
_WIDTHS = 40.0
_EVERYWHERE = 1e6


def detect(
    sys: System, plan: ContactPlan, geoms: GeomFrames, kin: Kinematics, width=None
) -> ContactPoints:
    """Compute distances, positions and frames of all points.

    **Arguments:**

    - `width`: width of the onset of contacts, m; None if it is abrupt.
    """
    shapes = Shape(take_poses(kin.pose, plan.carriers) @ geoms.pose, geoms.size)
    parts = []
    for kinds, (first, second), rows, number in zip(
        plan.kinds, plan.geoms, plan.group_pairs, plan.num_points, strict=True
    ):
        one = with_hulls(sys, first, take(shapes, first))
        two = with_hulls(sys, second, take(shapes, second))
        reach, collider = None, collider_of(*kinds)
        if collider.has_reach:
            margin = take(geoms.margin, rows)
            if width is not None:
                margin = margin + _WIDTHS * width
            extents = take(geoms.extents, first), take(geoms.extents, second)
            reach = Reach(*extents, margin)
        if collider.num_points is None:
            found = _by_pair(collider.find(one, two, reach, number))
        else:
            found = _points(collider, one, two, reach, kinds[0] is GeomKind.PLANE)
        parts.append(jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), found))
    return concatenate(_marked(parts))


def _by_pair(slots: Sequence[ContactPoints]) -> ContactPoints:
    """Join points slot by slot, `(npair, *batch)` each: `(npair, nslot, *batch)`."""
    return jtu.tree_map(lambda *xs: jnp.stack(xs, axis=1), *slots)


def _marked(parts: list[ContactPoints]) -> list[ContactPoints]:
    """Let all parts say whether they are crowded if one of them does."""
    if all(part.crowded is None for part in parts):
        return parts
    never = lambda part: jnp.zeros_like(part.valid)
    return [
        part._replace(crowded=never(part)) if part.crowded is None else part
        for part in parts
    ]


def with_hulls(sys: System, geoms: Sequence[int], shapes: Shape) -> Shape:
    """Add their hulls to shapes, if they are meshes, or their grids, if they are height
    fields."""
    kind = sys.geoms.kinds[geoms[0]] if geoms else None
    if kind is GeomKind.HFIELD:
        return _with_grids(sys, geoms, shapes)
    if kind is not GeomKind.MESH:
        return shapes
    spans = np.array(
        [sys.meshes.hulls.span(sys.geoms.data[k]) for k in geoms], np.int32
    )
    column = lambda x: x.reshape(-1, *(1 for _ in shapes.size.x.shape[1:]))
    start, count = column(spans[:, 0]), column(spans[:, 1] - spans[:, 0])
    points, polygons = hull_tables(sys)
    hulls = Hulls(points, jnp.asarray(start), jnp.asarray(count), polygons)
    return shapes._replace(hulls=hulls)


def _with_grids(sys: System, geoms: Sequence[int], shapes: Shape) -> Shape:
    fields, which = sys.height_fields, [sys.geoms.data[geom] for geom in geoms]
    shape = -1, *(1 for _ in shapes.size.x.shape[1:])
    facts = [(fields.span(k)[0], fields.rows[k], fields.columns[k]) for k in which]
    columns = np.array(facts, np.int32).T
    grids = Grids(fields.heights, *(jnp.asarray(x.reshape(shape)) for x in columns))
    return shapes._replace(size=vec3(take(fields.size, which)), grids=grids)


def pair_points(
    kinds: tuple[AnyKind, AnyKind],
    one: Shape,
    two: Shape,
    reach: Reach | None = None,
) -> list[ContactPoints]:
    """Compute the points of all pairs of two kinds of shapes, slot by slot.

    **Arguments:**

    - `reach`: distance within which pairs are computed; None for all pairs.
    """
    on_plane = kinds[0] is GeomKind.PLANE
    return _slots(_points(collider_of(*kinds), one, two, reach, on_plane))


def nearest_points(
    kinds: tuple[AnyKind, AnyKind], one: Shape, two: Shape
) -> list[ContactPoints]:
    """Compute points of all pairs of two kinds of shapes, slot by slot, of which the
    valid one with the smallest distance lies between the shapes."""
    collider = collider_of(*kinds)
    if collider.nearest is not None:
        collider = dataclasses.replace(
            collider, find=collider.nearest, num_points=1, one_by_one=True
        )
    return _slots(_points(collider, one, two, None, kinds[0] is GeomKind.PLANE))


def _slots(points: ContactPoints) -> list[ContactPoints]:
    count = points.dist.shape[1]
    return [jtu.tree_map(lambda x: x[:, slot], points) for slot in range(count)]


def _points(
    collider: Collider, one: Shape, two: Shape, reach: Reach | None, on_plane: bool
) -> ContactPoints:
    """Compute the points of all pairs of two kinds of shapes, `(npair, nslot, *batch)`."""
    if not collider.one_by_one:
        return _by_pair([complete(point) for point in collider.find(one, two)])
    if reach is None:
        reach = Reach(one.size, two.size, jnp.full_like(one.size.x, _EVERYWHERE))
    return near_points(collider, one, two, reach, on_plane)
