"""Collision detection: from coordinates to contact points."""

import dataclasses
import functools as ft
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..kinematics._forward import Kinematics, take_poses
from ..model import (
    Collider,
    collider_of,
    concatenate,
    GeomKind,
    HullGraph,
    System,
    take,
)
from ..spatial import vec3
from ._geom_frames import GeomFrames
from ._near import near_points, Reach
from ._plan import ContactPlan
from ._points import (
    complete,
    ContactPoints,
    Hulls,
    Polygons,
    polygons_of,
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
    for kinds, (first, second), rows in zip(
        plan.kinds, plan.geoms, plan.group_pairs, strict=True
    ):
        one = with_hulls(sys, first, take(shapes, first))
        two = with_hulls(sys, second, take(shapes, second))
        reach = None
        if collider_of(*kinds).one_by_one:
            margin = take(geoms.margin, rows)
            if width is not None:
                margin = margin + _WIDTHS * width
            extents = take(geoms.extents, first), take(geoms.extents, second)
            reach = Reach(*extents, margin)
        parts += pair_points(kinds, one, two, reach)
    return take(concatenate(parts), plan.order)


def with_hulls(sys: System, geoms: Sequence[int], shapes: Shape) -> Shape:
    """Add their hulls to shapes, if they are meshes."""
    if not geoms or sys.geoms.kinds[geoms[0]] is not GeomKind.MESH:
        return shapes
    spans = np.array(
        [sys.meshes.hulls.span(sys.geoms.data[k]) for k in geoms], np.int32
    )
    column = lambda x: x.reshape(-1, *(1 for _ in shapes.size.x.shape[1:]))
    start, count = column(spans[:, 0]), column(spans[:, 1] - spans[:, 0])
    points, polygons = vec3(sys.meshes.vertices), _polygons(sys.meshes.hulls)
    hulls = Hulls(points, jnp.asarray(start), jnp.asarray(count), polygons)
    return shapes._replace(hulls=hulls)


@ft.lru_cache(maxsize=256)
def _polygons(graph: HullGraph) -> Polygons:
    starts = graph.vertex_starts, graph.polygon_starts, graph.corner_starts
    return polygons_of(*starts, graph.corners)


def pair_points(
    kinds: tuple[GeomKind, GeomKind],
    one: Shape,
    two: Shape,
    reach: Reach | None = None,
) -> list[ContactPoints]:
    """Compute the points of all pairs of two kinds of shapes, slot by slot.

    **Arguments:**

    - `reach`: how far pairs matter; without it, all of them do.
    """
    return _points(collider_of(*kinds), one, two, reach)


def nearest_points(
    kinds: tuple[GeomKind, GeomKind], one: Shape, two: Shape
) -> list[ContactPoints]:
    """Compute points of all pairs of two kinds of shapes, slot by slot, of which the
    valid one with the smallest distance lies between the shapes."""
    collider = collider_of(*kinds)
    if collider.nearest is not None:
        collider = dataclasses.replace(
            collider, find=collider.nearest, num_points=1, one_by_one=True
        )
    return _points(collider, one, two, None)


def _points(collider: Collider, one: Shape, two: Shape, reach: Reach | None):
    if not collider.one_by_one:
        return [complete(point) for point in collider.find(one, two)]
    if reach is None:
        reach = Reach(one.size, two.size, jnp.full_like(one.size.x, _EVERYWHERE))
    return near_points(collider, one, two, reach)
