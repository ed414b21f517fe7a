"""Collision detection: from coordinates to contact points.

First the frames of shapes, which do not depend on the state; then the points of all pairs;
then the test for contact without forces.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float

from .._batching import batch_last, full_batch
from ..kinematics.link_motion import (
    Frames,
    frames,
    Kinematics,
    kinematics,
    Pose,
    quaternions,
    take_poses,
)
from ..model import check_state, Collider, GeomKind, System, tree
from ..model.arrays import concatenate, take
from ..model.kinds import AnyKind
from ..model.pairs import collider_of
from ..spatial import quaternion_matrix, Vec3
from ..spatial.rotations import normalize4
from ..spatial.vectors import vec3
from ._bounds import shape_extents
from .pair_lists import list_contacts, list_frames, ListFrames
from .plan import contact_plan, ContactPlan, gaps, split_plan
from .points import (
    complete,
    ContactPoints,
    Grids,
    hull_tables,
    Hulls,
    near_points,
    Reach,
    Shape,
    shape_sizes,
)


# Parts of the shapes of a robot that do not depend on the state.


class GeomFrames(NamedTuple):
    """Shapes in the nodes that carry them.

    - `pose`, `size`: frame and sizes of each shape.
    - `extents`: half sizes of the box about each shape, in its frame; None if the points
        of no pair are computed only within a margin.
    - `margin`: distance within which points of each pair are computed, m; None as well.
    - `listed`: frames of the shapes of listed pairs; None if no pairs are listed.
    """

    pose: Pose
    size: Vec3
    extents: Vec3 | None
    margin: Any
    listed: ListFrames | None = None


def geom_frames(
    sys: System, fixed: Frames, plan: ContactPlan | None = None
) -> GeomFrames:
    """Compute the frames of the shapes in the nodes that carry them.

    **Arguments:**

    - `plan`: plan of the pairs that `margin` describes; None: of all pairs.
    """
    geoms, plan = sys.geoms, contact_plan(sys) if plan is None else plan
    rot = quaternion_matrix(normalize4(quaternions(geoms.quat)))
    pose = take_poses(fixed.link, geoms.links) @ Pose(rot, vec3(geoms.pos))
    size = shape_sizes(sys)
    if not any(collider_of(*kinds).has_reach for kinds in plan.kinds):
        return GeomFrames(pose, size, None, None)
    margin, beyond = pair_margins(sys, plan), pair_gaps(sys, plan)
    margin = margin if beyond is None else margin + beyond
    return GeomFrames(pose, size, shape_extents(sys), margin)


def split_frames(sys: System, fixed: Frames) -> GeomFrames:
    """Compute the frames of the shapes for the pairs that `split_plan` divides."""
    plan, listed = split_plan(sys)
    found = geom_frames(sys, fixed, plan)
    if listed is None:
        return found
    return found._replace(listed=list_frames(sys, listed, found.pose))


def pair_margins(sys: System, plan: ContactPlan):
    """Compute the distance at which the contact of each pair begins, `(npair, *batch)`.

    Margins of the two shapes add up, except for pairs that have one of their own."""
    return _sums(plan, sys.geoms.margin, sys.pairs.margin)


def pair_gaps(sys: System, plan: ContactPlan):
    """Compute the gap of each pair beyond its margin, `(npair, *batch)`; None: no pair has
    one."""
    both = gaps(sys)
    return None if both is None else _sums(plan, *both)


def _sums(plan: ContactPlan, of_geoms, of_pairs):
    mixed = [k for k, pair in enumerate(plan.pairs) if pair[2] < 0]
    own = [k for k, pair in enumerate(plan.pairs) if pair[2] >= 0]
    one, two = ([plan.pairs[k][side] for k in mixed] for side in (0, 1))
    explicit = [plan.pairs[k][2] for k in own]
    found = [take(of_geoms, one) + take(of_geoms, two), take(of_pairs, explicit)]
    order = sorted(range(len(plan.pairs)), key=[*mixed, *own].__getitem__)
    return take(concatenate(found), order)


# Collision detection: from coordinates to contact points.


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
    for kinds, (first, second), rows, number in zip(
        plan.kinds, plan.geoms, plan.group_pairs, plan.num_points, strict=True
    ):
        one = with_hulls(sys, first, take(shapes, first))
        two = with_hulls(sys, second, take(shapes, second))
        reach, collider = None, collider_of(*kinds)
        if collider.has_reach:
            margin = take(geoms.margin, rows)
            if width is not None:
                margin = margin + _WIDTHS * width
            extents = take(geoms.extents, first), take(geoms.extents, second)
            reach = Reach(*extents, margin)
        if collider.num_points is None:
            found = _by_pair(collider.find(one, two, reach, number))
        else:
            found = _points(collider, one, two, reach, kinds[0] is GeomKind.PLANE)
        parts.append(jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), found))
    return concatenate(_marked(parts))


def _by_pair(slots: Sequence[ContactPoints]) -> ContactPoints:
    """Join points slot by slot, `(npair, *batch)` each: `(npair, nslot, *batch)`."""
    return jtu.tree_map(lambda *xs: jnp.stack(xs, axis=1), *slots)


def _marked(parts: list[ContactPoints]) -> list[ContactPoints]:
    """Let all parts say whether they are crowded if one of them does."""
    if all(part.crowded is None for part in parts):
        return parts
    never = lambda part: jnp.zeros_like(part.valid)
    return [
        part._replace(crowded=never(part)) if part.crowded is None else part
        for part in parts
    ]


def with_hulls(sys: System, geoms: Sequence[int], shapes: Shape) -> Shape:
    """Add their hulls to shapes, if they are meshes, or their grids, if they are height
    fields."""
    kind = sys.geoms.kinds[geoms[0]] if geoms else None
    if kind is GeomKind.HFIELD:
        return _with_grids(sys, geoms, shapes)
    if kind is not GeomKind.MESH:
        return shapes
    spans = np.array(
        [sys.meshes.hulls.span(sys.geoms.data[k]) for k in geoms], np.int32
    )
    column = lambda x: x.reshape(-1, *(1 for _ in shapes.size.x.shape[1:]))
    start, count = column(spans[:, 0]), column(spans[:, 1] - spans[:, 0])
    points, polygons = hull_tables(sys)
    hulls = Hulls(points, jnp.asarray(start), jnp.asarray(count), polygons)
    return shapes._replace(hulls=hulls)


def _with_grids(sys: System, geoms: Sequence[int], shapes: Shape) -> Shape:
    fields, which = sys.height_fields, [sys.geoms.data[geom] for geom in geoms]
    shape = -1, *(1 for _ in shapes.size.x.shape[1:])
    facts = [(fields.span(k)[0], fields.rows[k], fields.columns[k]) for k in which]
    columns = np.array(facts, np.int32).T
    grids = Grids(fields.heights, *(jnp.asarray(x.reshape(shape)) for x in columns))
    return shapes._replace(size=vec3(take(fields.size, which)), grids=grids)


def pair_points(
    kinds: tuple[AnyKind, AnyKind],
    one: Shape,
    two: Shape,
    reach: Reach | None = None,
) -> list[ContactPoints]:
    """Compute the points of all pairs of two kinds of shapes, slot by slot.

    **Arguments:**

    - `reach`: distance within which pairs are computed; None for all pairs.
    """
    on_plane = kinds[0] is GeomKind.PLANE
    return _slots(_points(collider_of(*kinds), one, two, reach, on_plane))


def nearest_points(
    kinds: tuple[AnyKind, AnyKind], one: Shape, two: Shape
) -> list[ContactPoints]:
    """Compute points of all pairs of two kinds of shapes, slot by slot, of which the
    valid one with the smallest distance lies between the shapes."""
    collider = collider_of(*kinds)
    if collider.nearest is not None:
        collider = dataclasses.replace(
            collider, find=collider.nearest, num_points=1, one_by_one=True
        )
    return _slots(_points(collider, one, two, None, kinds[0] is GeomKind.PLANE))


def _slots(points: ContactPoints) -> list[ContactPoints]:
    count = points.dist.shape[1]
    return [jtu.tree_map(lambda x: x[:, slot], points) for slot in range(count)]


def _points(
    collider: Collider, one: Shape, two: Shape, reach: Reach | None, on_plane: bool
) -> ContactPoints:
    """Compute the points of all pairs of two kinds of shapes, `(npair, nslot, *batch)`."""
    if not collider.one_by_one:
        return _by_pair([complete(point) for point in collider.find(one, two)])
    if reach is None:
        reach = Reach(one.size, two.size, jnp.full_like(one.size.x, _EVERYWHERE))
    return near_points(collider, one, two, reach, on_plane)


# Test for contact, without solving for forces.


def in_contact(sys: System, q: Float[Array, " nq"]) -> Bool[Array, ""]:
    """Return whether any two shapes are closer than their margin and `Geoms.gap`: MuJoCo's
    `ncon > 0`, but for gaps that exert no force, which `load_mjcf` leaves out.

    For drawing first states without contact. Only collisions are computed. In a
    `lax.while_loop`, carry the result: under `vmap` a condition is computed twice, and
    rounding may decide differently where shapes just touch.

    **Arguments:**

    - `sys`: the robot. Pairs of shapes that cannot touch are left out, as in a step.
    - `q`: coordinates.
    """
    check_state(sys, q)
    if not contact_plan(sys).size:
        return jnp.zeros((), bool)
    return _touches(sys, q)


@batch_last
def _touches(sys: System, q):
    (q,) = full_batch((q,), sys)
    nodes, (plan, listed) = tree(sys), split_plan(sys)
    fixed = frames(sys, nodes)
    kin, geoms = kinematics(sys, nodes, fixed, q), split_frames(sys, fixed)
    touches = jnp.zeros(q.shape[1:], bool)
    if plan.size:
        points = detect(sys, plan, geoms, kin)
        margin, beyond = pair_margins(sys, plan), pair_gaps(sys, plan)
        margin = margin if beyond is None else margin + beyond
        margin = take(margin, plan.point_pairs)
        touches |= jnp.any(points.valid & (points.dist < margin), axis=0)
    if listed is not None:
        assert geoms.listed is not None, "listed pairs have frames"
        contacts = list_contacts(sys, listed, geoms.listed, kin, None).contacts
        for own in contacts.values():
            touches |= own.count > 0
    return touches
