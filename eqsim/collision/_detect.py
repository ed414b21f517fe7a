"""Collision detection: from coordinates to contact points."""

from ..kinematics._forward import Kinematics, take_poses
from ..model import collider_of, concatenate, System, take
from ._geom_frames import GeomFrames
from ._near import near_points, Reach
from ._plan import ContactPlan
from ._points import complete, ContactPoints, Shape


# Smoothed contacts act within this number of widths: beyond, their weight is below 1e-17.
_WIDTHS = 40.0


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
        collider = collider_of(*kinds)
        one, two = take(shapes, first), take(shapes, second)
        if not collider.one_by_one:
            parts += [complete(point) for point in collider.find(one, two)]
            continue
        margin = take(geoms.margin, rows)
        if width is not None:
            margin = margin + _WIDTHS * width
        reach = Reach(take(geoms.extents, first), take(geoms.extents, second), margin)
        parts += near_points(collider, one, two, reach)
    return take(concatenate(parts), plan.order)
