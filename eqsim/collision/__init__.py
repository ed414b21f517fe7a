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
    split_frames as split_frames,
)
from ._in_contact import in_contact as in_contact
from ._list_plan import ListPlan as ListPlan
from ._pair_lists import list_contacts as list_contacts, Listing as Listing
from ._plan import (
    contact_plan as contact_plan,
    ContactPlan as ContactPlan,
    split_plan as split_plan,
)
from ._points import ContactPoints as ContactPoints, Point as Point, Shape as Shape
