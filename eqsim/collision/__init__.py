"""Collision detection: which shapes can touch, and where they do."""

from . import narrow_phase as narrow_phase
from ._detect import (
    detect as detect,
    geom_frames as geom_frames,
    GeomFrames as GeomFrames,
    in_contact as in_contact,
    nearest_points as nearest_points,
    pair_margins as pair_margins,
    pair_points as pair_points,
    split_frames as split_frames,
    with_hulls as with_hulls,
)
from .pair_lists import list_contacts as list_contacts, Listing as Listing
from .plan import (
    contact_plan as contact_plan,
    ContactPlan as ContactPlan,
    ListPlan as ListPlan,
    split_plan as split_plan,
)
from .points import ContactPoints as ContactPoints, Point as Point, Shape as Shape
