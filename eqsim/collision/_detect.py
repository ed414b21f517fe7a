"""Collision detection: from coordinates to contact points."""

import jax.numpy as jnp

from ..kinematics._forward import Kinematics, take_poses
from ..model import collider_of, concatenate, GeomKind, System, take
from ._geom_frames import GeomFrames
from ._near import near_points, Reach
from ._plan import ContactPlan
from ._points import complete, ContactPoints, Shape


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
        one, two, reach = take(shapes, first), take(shapes, second), None
        if collider_of(*kinds).one_by_one:
            margin = take(geoms.margin, rows)
            if width is not None:
                margin = margin + _WIDTHS * width
            extents = take(geoms.extents, first), take(geoms.extents, second)
            reach = Reach(*extents, margin)
        parts += pair_points(kinds, one, two, reach)
    return take(concatenate(parts), plan.order)


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
    collider = collider_of(*kinds)
    if not collider.one_by_one:
        return [complete(point) for point in collider.find(one, two)]
    if reach is None:
        reach = Reach(one.size, two.size, jnp.full_like(one.size.x, _EVERYWHERE))
    return near_points(collider, one, two, reach)
