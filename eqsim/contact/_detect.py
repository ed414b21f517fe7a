"""From coordinates to contact points."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..kinematics._forward import Kinematics
from ..model import concatenate, put, System, take, tree
from ..spatial import Mat3, Vec3
from ._parameters import GeomFrames
from ._plan import ContactPlan
from ._shapes import contact_frame, FUNCTIONS, Point, Shape


class ContactPoints(NamedTuple):
    """Possible contacts, sorted as `ContactPlan` says, `(npoint, *batch)`.

    - `pos`: in the world, halfway between the surfaces.
    - `frame`: rows are the normal (from the first shape to the second) and two friction
        axes.
    """

    dist: Any
    pos: Vec3
    frame: Mat3
    valid: Any


def detect(sys: System, plan: ContactPlan, geoms: GeomFrames, kin: Kinematics):
    """Distances, positions and frames of all points."""
    carriers = tree(sys).link_nodes
    nodes = [-1 if link < 0 else carriers[link] for link in sys.geoms.links]
    shapes = _place(geoms, kin, nodes, plan)
    parts = []
    for kinds, group in zip(plan.kinds, plan.groups, strict=True):
        one, two = (
            take(shapes, [plan.pairs[pair][k] for pair in group]) for k in (0, 1)
        )
        parts += [_complete(point) for point in FUNCTIONS[kinds](one, two)]
    return take(concatenate(parts), plan.order)


def _place(geoms: GeomFrames, kin: Kinematics, nodes, plan: ContactPlan) -> Shape:
    """The shapes in the world, carried by `nodes`, of which -1 is the world; those that
    touch nothing are left at zero."""
    used = sorted({geom for pair in plan.pairs for geom in pair[:2]})
    moving = [geom for geom in used if nodes[geom] >= 0]
    fixed = [geom for geom in used if nodes[geom] < 0]
    carrier = take(kin.pose, [nodes[geom] for geom in moving])
    pose = concatenate([take(geoms.pose, fixed), carrier @ take(geoms.pose, moving)])
    return Shape(put(pose, fixed + moving, len(nodes)), geoms.size)


def _complete(point: Point) -> ContactPoints:
    frame = contact_frame(point.normal, point.tangent)
    valid = point.valid
    if valid is None:
        valid = jnp.ones_like(point.dist, dtype=bool)
    full = ContactPoints(point.dist, point.pos, frame, valid)
    batch = jnp.broadcast_shapes(*(x.shape for x in jtu.tree_leaves(full)))
    return jtu.tree_map(lambda x: jnp.broadcast_to(x, batch), full)
