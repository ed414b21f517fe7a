"""Collision detection: which shapes can touch, and where they do."""

from . import _colliders as _colliders
from ._detect import (
    detect as detect,
    nearest_points as nearest_points,
    pair_points as pair_points,
    with_hulls as with_hulls,
)
from ._geom_frames import (
    geom_frames as geom_frames,
    GeomFrames as GeomFrames,
    pair_margins as pair_margins,
)
from ._in_contact import in_contact as in_contact
from ._plan import contact_plan as contact_plan, ContactPlan as ContactPlan
from ._points import ContactPoints as ContactPoints, Point as Point, Shape as Shape
