"""Collision detection: from coordinates to contact points."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..kinematics._forward import Kinematics, take_poses
from ..model import concatenate, System, take
from ..spatial import Mat3, Vec3
from ._geom_frames import GeomFrames
from ._plan import ContactPlan
from ._shapes import contact_frame, FUNCTIONS, Point, Shape


class ContactPoints(NamedTuple):
    """Possible contacts, sorted as `ContactPlan` says, `(npoint, *batch)`.

    - `dist`: distance of the surfaces, m; negative in penetration.
    - `pos`: position in the world, halfway between the surfaces.
    - `frame`: rows are the normal (from the first shape to the second) and two friction
        axes.
    - `valid`: whether the point exists at all.
    """

    dist: Any
    pos: Vec3
    frame: Mat3
    valid: Any


def detect(sys: System, plan: ContactPlan, geoms: GeomFrames, kin: Kinematics):
    """Compute distances, positions and frames of all points."""
    shapes = Shape(take_poses(kin.pose, plan.carriers) @ geoms.pose, geoms.size)
    parts = []
    for kinds, (first, second) in zip(plan.kinds, plan.geoms, strict=True):
        points = FUNCTIONS[kinds](take(shapes, first), take(shapes, second))
        parts += [_complete(point) for point in points]
    return take(concatenate(parts), plan.order)


def _complete(point: Point) -> ContactPoints:
    frame = contact_frame(point.normal, point.tangent)
    valid = point.valid
    if valid is None:
        valid = jnp.ones_like(point.dist, dtype=bool)
    full = ContactPoints(point.dist, point.pos, frame, valid)
    shape = jnp.broadcast_shapes(*(x.shape for x in jtu.tree_leaves(full)))
    return jtu.tree_map(lambda x: jnp.broadcast_to(x, shape), full)
