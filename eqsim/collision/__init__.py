"""Collision detection: which shapes can touch, and where they do."""

from ._detect import ContactPoints as ContactPoints, detect as detect
from ._geom_frames import geom_frames as geom_frames, GeomFrames as GeomFrames
from ._plan import contact_plan as contact_plan, ContactPlan as ContactPlan
