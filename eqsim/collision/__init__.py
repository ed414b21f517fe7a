"""Collision detection: which shapes can touch, and where they do.

Shapes are tested by bounds, near pairs are listed for each robot, and each pair of kinds
has one collider. Reading order:

- `plan`: which points are always computed, and which pairs are listed; static.
- `points`: shapes in the world, and the points at which two of them touch.
- `_detect`: from coordinates to contact points; `pair_lists`: lists of near pairs, by the
  bounds of `_bounds`.
- `narrow_phase`: the table of colliders. Closed forms: `primitives`, `_boxes`. Convex
  shapes: `_convex_shapes` (support functions, with `_direction_tables` for meshes),
  `_polytope_distance`, `_round_shapes`, `_convex`; several points along faces:
  `_features`, `_manifold`; height fields: `_terrain`.

Constraints, pipelines and sensors may import this package. A new pair of kinds is one line
in `narrow_phase`.
"""

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
