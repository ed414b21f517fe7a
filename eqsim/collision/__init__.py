"""Collision detection: which shapes can touch, and where they do.

Shapes are tested by bounds, near pairs are listed for each robot, and each pair of kinds
has one collider. Reading order:

- `plan`: which points are always computed, and which pairs are listed; static.
- `points`: shapes in the world, and the points at which two of them touch.
- `detection`: from coordinates to contact points; `pair_lists`: lists of near pairs, by the
  bounds of `_bounds`.
- `narrow_phase`: the table of colliders. Closed forms: `primitives`, `_boxes`. Convex
  shapes: `_convex_shapes` (support functions, with `_direction_tables` for meshes),
  `_polytope_distance`, `_round_shapes`, `_convex`; several points along faces:
  `_features`, `_manifold`; height fields: `_terrain`; distance fields:
  `_field_contacts`.

Constraints, pipelines and sensors may import this package. A new pair of kinds is one line
in `narrow_phase`; kinds that touch distance fields are in `_field_contacts.TOUCHING`.
"""

from . import narrow_phase as narrow_phase
from .detection import detect as detect, in_contact as in_contact
from .plan import contact_plan as contact_plan
from .points import (
    ContactPoints as ContactPoints,
    Point as Point,
    Reach as Reach,
    Shape as Shape,
)
