"""Contacts of pairs that are near: lists whose lengths follow what touches.

Most of the pairs of shapes that could touch are far apart. The *broad phase* compares boxes
along the axes of the world, and then boxes along the axes of the shapes, of all pairs, and
lists those that are near, for each kind of pair. In kernels, it also seeks planes between
shapes (`_polytope_distance.py`). The *narrow phase* visits these lists, and appends the points
that touch to lists of contacts, one for each dimension of the contact space. In kernels, each
environment walks along its own lists, so that in a group of environments, pass k computes the
k-th near pair of each. Elsewhere, the near pairs of all environments are computed together
(`_lists.py`).

Lists hold the worst case, so that nothing is dropped but points on a height field beyond its
capacity; only what is used is ever touched.
"""

import functools as ft
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from .._lists import (
    for_lanes,
    Lanes,
    lanes_per_chunk,
    read_rows,
    read_rows_of,
    table_rows,
    write_rows,
)
from .._primitive import are_rows_together
from ..kinematics.link_motion import Kinematics, Pose, take_poses
from ..model import GeomKind, System
from ..model.arrays import concatenate, put, take
from ..model.pairs import collider_of
from ..spatial import Mat3, Vec3
from ..spatial.vectors import vec3
from ._bounds import hull_changes, shape_boxes, shape_extents
from ._convex_shapes import WITH_BALL
from ._direction_tables import direction_tables
from ._polytope_distance import ConvexBound, find_plane
from ._terrain import reaches_ground
from .narrow_phase import collide, is_long
from .plan import gaps, ListPlan, PairGroup
from .points import (
    ContactPoints,
    gap,
    Grids,
    Hulls,
    Reach,
    Shape,
    shape_sizes,
    shape_tables,
    Shared,
)


class ListFrames(NamedTuple):
    """Listed shapes in the nodes that carry them.

    - `pose`, `size`: frame and sizes of each shape; of height fields, `HeightFields.size`;
        of meshes, if there are height fields, half sizes of boxes about their origins.
    - `center`, `half`: center, in the node, and half sizes of the box about each shape.
    - `ball`: radius of the ball about each point of a sphere or a capsule, m; 0 for others.
    - `hulls`: see `hull_changes`.
    - `margin`: distance within which points of each pair are computed, m: of the shapes,
        whose sum counts, and of explicit pairs.
    """

    pose: Pose
    size: Vec3
    center: Vec3
    half: Vec3
    ball: Any
    hulls: tuple[Any, Any]
    margin: tuple[Any, Any]


def list_frames(sys: System, plan: ListPlan, pose: Pose) -> ListFrames:
    """Compute the frames of the listed shapes.

    **Arguments:**

    - `pose`: frames of all shapes in the nodes that carry them.
    """
    own = take(pose, plan.geoms)
    center, half = shape_boxes(sys, plan.geoms)
    size = _sizes(sys, plan)
    rounded = [sys.geoms.kinds[geom] in WITH_BALL for geom in plan.geoms]
    shape = -1, *(1 for _ in size.x.shape[1:])
    ball = jnp.asarray(np.array(rounded, float).reshape(shape), size.x.dtype) * size.x
    margin, both = (sys.geoms.margin, sys.pairs.margin), gaps(sys)
    if both is not None:
        margin = margin[0] + both[0], margin[1] + both[1]
    margin = take(margin[0], plan.geoms), margin[1]
    hulls = hull_changes(sys, plan.geoms, center, half)
    return ListFrames(own, size, own.point(center), half, ball, hulls, margin)


def _sizes(sys: System, plan: ListPlan) -> Vec3:
    """Return the sizes of the listed shapes, see `ListFrames`."""
    kinds = [sys.geoms.kinds[geom] for geom in plan.geoms]
    size = take(shape_sizes(sys), plan.geoms)
    if GeomKind.HFIELD not in kinds:
        return size
    rows = lambda wanted: [k for k, kind in enumerate(kinds) if kind is wanted]
    fields, meshes = rows(GeomKind.HFIELD), rows(GeomKind.MESH)
    others = [k for k in range(len(kinds)) if k not in {*fields, *meshes}]
    of_fields = [sys.geoms.data[plan.geoms[k]] for k in fields]
    parts = [take(size, others), vec3(take(sys.height_fields.size, of_fields))]
    if meshes:
        parts.append(take(shape_extents(sys), [plan.geoms[k] for k in meshes]))
    return put(concatenate(parts), [*others, *fields, *meshes], len(kinds))


class PairList(NamedTuple):
    """Some pairs of a group.

    - `pairs`: rows of `ListPlan`, `(capacity, *batch)`.
    - `count`: number of them, `(*batch)`.
    """

    pairs: Any
    count: Any


class ContactList(NamedTuple):
    """Contacts of one dimension of the contact space, `(capacity, *batch)`.

    - `pair`, `slot`: pair of each contact, and number of the point among those of the pair.
    - `dist`, `pos`, `normal`, `tangent`: see `ContactPoints`; normal and first friction
        axis of the frame.
    - `count`: number of contacts, `(*batch)`.
    """

    pair: Any
    slot: Any
    dist: Any
    pos: Vec3
    normal: Vec3
    tangent: Vec3
    count: Any


class Listing(NamedTuple):
    """Pairs that touch, and contacts.

    - `touching`: pairs with contacts, for each group.
    - `contacts`: contacts, by the dimension of the contact space.
    - `crowded`: number of pairs with more points than there is room for, `(*batch)`; None:
        no pair can have more.
    """

    touching: tuple[PairList, ...]
    contacts: dict[int, ContactList]
    crowded: Any = None

    def unless_crowded(self, converged):
        """Return `converged`, but false if there are more points than room for them."""
        return converged if self.crowded is None else converged & (self.crowded == 0)


def world_shapes(kin: Kinematics, plan: ListPlan, frames: ListFrames) -> Shape:
    """Return the listed shapes in the world."""
    return Shape(take_poses(kin.pose, plan.carriers) @ frames.pose, frames.size)


def list_contacts(
    sys: System, plan: ListPlan, frames: ListFrames, kin: Kinematics, reach
) -> Listing:
    """Find the pairs that touch, and the contacts. Derivatives are zero.

    **Arguments:**

    - `reach`: distance beyond the margin at which a contact exists, m, `(1, *batch)`;
        None: zero.
    """
    frames, kin, reach = lax.stop_gradient((frames, kin, reach))
    shapes, nodes = world_shapes(kin, plan, frames), take_poses(kin.pose, plan.carriers)
    boxes = _boxes(shapes.pose.rot, nodes.point(frames.center), frames, reach)
    touching, contacts, crowded = [], {}, None
    for condim in sorted(set(plan.condim)):
        contacts[condim] = _no_contacts(plan.capacity(condim), shapes.pose.pos.x)
    for group in plan.groups:
        visit = _Visit(sys, plan, group, shapes, frames.margin, reach)
        near = _near_pairs(visit, boxes, frames.hulls)
        narrow = _with_touching_lanes if are_rows_together() else _with_touching
        found, contacts, more = narrow(visit, near, contacts)
        touching.append(found)
        if visit.on_terrain:
            crowded = more if crowded is None else crowded + more
    return Listing(tuple(touching), contacts, crowded)


def pair_margin(plan: ListPlan, margins, reach, pair, one, two, read=read_rows):
    """Return the distance at which contacts of pairs exist, `(k, *batch)`.

    **Arguments:**

    - `margins`, `reach`: see `ListFrames.margin` and `list_contacts`.
    - `pair`, `one`, `two`: numbers of the pairs and their shapes.
    - `read`: function that returns entries of a table at their numbers.
    """
    of_shapes, of_pairs = margins
    margin = read(of_shapes, one) + read(of_shapes, two)
    if max(plan.explicit) >= 0:
        entry = table_rows(plan.explicit, pair)
        own = read(of_pairs, jnp.maximum(entry, 0))
        margin = jnp.where(entry >= 0, own, margin)
    return margin if reach is None else margin + reach


def _empty(size: int, batch, dtype):
    """Return a list of which no row is used."""
    return lax.empty((size, *batch), dtype)


def _no_contacts(capacity: int, like) -> ContactList:
    batch = like.shape[1:]
    three = lambda: Vec3(*(_empty(capacity, batch, like.dtype) for _ in range(3)))
    return ContactList(
        pair=_empty(capacity, batch, jnp.int32),
        slot=_empty(capacity, batch, jnp.int32),
        dist=_empty(capacity, batch, like.dtype),
        pos=three(),
        normal=three(),
        tangent=three(),
        count=jnp.zeros(batch, jnp.int32),
    )


# Broad phase.


_BLOCK = 8
"""Pairs whose boxes along the axes of the world are compared together."""


class _Boxes(NamedTuple):
    """Boxes about the shapes in the world.

    - `pose`, `half`: frames and half sizes of boxes along the axes of the shapes.
    - `low`, `high`: corners of boxes along the axes of the world. Those of two shapes
        overlap if the shapes are nearer than the margin of their pair.
    """

    pose: Pose
    half: Vec3
    low: Vec3
    high: Vec3


def _boxes(rot: Mat3, center: Vec3, frames: ListFrames, reach) -> _Boxes:
    """Return the boxes about shapes.

    **Arguments:**

    - `rot`, `center`: orientation of the shapes, and centers of the boxes, in the world.
    - `reach`: see `list_contacts`.
    """
    ball, (margin, of_pairs) = frames.ball, frames.margin
    if of_pairs.shape[0]:
        # Explicit pairs have margins of their own.
        most = jnp.max(of_pairs, axis=0, keepdims=True)
        margin = jnp.maximum(margin, 0.5 * most)
    around = ball + margin
    if reach is not None:
        around = around + 0.5 * reach
    core = Vec3(*(x - ball for x in frames.half))
    extent = [Vec3(*map(jnp.abs, row)).dot(core) + around for row in rot.rows]
    low, high = (
        Vec3(*(x + sign * e for x, e in zip(center, extent, strict=True)))
        for sign in (-1.0, 1.0)
    )
    return _Boxes(Pose(rot, center), frames.half, low, high)


def _near_pairs(visit: "_Visit", boxes: _Boxes, hulls) -> PairList:
    """List the pairs of a group that may be nearer than their margin.

    **Arguments:**

    - `hulls`: see `ListFrames`.
    """
    plan, group = visit.plan, visit.group
    size = len(group.pairs)
    together = are_rows_together()
    block = size if together else min(_BLOCK, size)
    pairs = np.array(group.pairs + group.pairs[:1] * (-size % block), np.int32)
    valid = np.arange(len(pairs)) < size
    first, second = np.array(plan.first)[pairs], np.array(plan.second)[pairs]
    batch = boxes.pose.pos.x.shape[1:]
    cut = lambda x: jnp.asarray(x.reshape(-1, block, *(1 for _ in batch)))
    tables = tuple(
        cut(x) for x in (pairs, first.astype(np.int32), second.astype(np.int32), valid)
    )
    on_plane = group.kinds[0] is GeomKind.PLANE
    # A collider with a closed form takes less time than a closer look.
    first_suffices = not (on_plane or collider_of(*group.kinds).has_reach)

    def overlap(pair, one, two):
        if visit.on_terrain:
            return _reaches_ground(visit, boxes, pair, one, two)
        margin = visit.margin(pair, one, two)
        box, other = (read_rows_of(boxes, side) for side in (one, two))
        return _overlap(box, other, margin, on_plane)

    def examine(near: PairList, rows):
        pair, one, two, valid = rows
        candidates = valid & jnp.ones((block, *batch), bool)
        if not on_plane:
            candidates &= _overlap_along_world(boxes, one, two)
        if together:
            found = candidates & overlap(pair, one, two)
            return _appended(near, pair, found), None

        def closer(carry):
            k, near = carry
            row = jnp.full((1, *batch), k)
            own = read_rows(candidates, row)
            pairs = read_rows_of((pair, one, two), row)
            never = ft.partial(jnp.zeros_like, own)
            if not first_suffices:
                check = ft.partial(overlap, *pairs)
                own = own & lax.cond(jnp.any(own), check, never)
            if _seeks_planes(visit):
                check = ft.partial(_has_plane, visit, boxes, hulls, *pairs, own)
                own = own & ~lax.cond(jnp.any(own), check, never)
            return k + 1, _appended(near, pairs[0], own)

        any_near = jnp.any(candidates)
        more = lambda carry: (carry[0] < block) & any_near
        return lax.while_loop(more, closer, (0, near))[1], None

    start = PairList(_empty(size, batch, jnp.int32), jnp.zeros(batch, jnp.int32))
    return lax.scan(examine, start, tables)[0]


def _overlap_along_world(boxes: _Boxes, one, two):
    """Return which pairs of boxes along the axes of the world overlap."""
    first, second = ([read_rows_of(x, k) for x in boxes[2:]] for k in (one, two))
    below = (a < b for a, b in zip(first[0], second[1], strict=True))
    above = (a < b for a, b in zip(second[0], first[1], strict=True))
    return ft.reduce(jnp.logical_and, [*below, *above])


def _overlap(one: _Boxes, two: _Boxes, margin, on_plane: bool):
    """Return which pairs of boxes may be nearer than a margin."""
    reach = Reach(one.half, two.half, margin)
    shapes = Shape(one.pose, one.half), Shape(two.pose, two.half)
    return gap(*shapes, reach, on_plane) < margin


def _reaches_ground(visit: "_Visit", boxes: _Boxes, pair, one, two):
    """Return whether shapes reach the ground of height fields, see `reaches_ground`."""
    tables = visit.tables()
    ends = [read_rows_of(visit.shapes, side) for side in (one, two)]
    first = pair_shapes(visit.plan, visit.group, tables, pair, ends)[0]
    center, half = (read_rows_of(x, two) for x in (boxes.pose, boxes.half))
    margin = visit.margin(pair, one, two)
    return reaches_ground(first, center, half, margin)


def _seeks_planes(visit: "_Visit") -> bool:
    """Return whether planes are sought between the shapes of a group: their collider is a
    long search, and bounds of their hulls are known."""
    kinds = visit.group.kinds
    known = len(visit.sys.meshes.hulls.reference) or GeomKind.MESH not in kinds
    planar = {GeomKind.PLANE, GeomKind.HFIELD} & {*kinds}
    return bool(known and not planar and is_long(collider_of(*kinds)))


def _has_plane(visit: "_Visit", boxes: _Boxes, hulls, pair, one, two, when):
    """Return whether there is a plane between the shapes of pairs, see `find_plane`."""
    plan, kinds = visit.plan, visit.group.kinds
    table = direction_tables(visit.sys.meshes.hulls)

    def bound(kind, numbers, side) -> ConvexBound:
        shape = read_rows_of(visit.shapes, side)
        found = ConvexBound(shape, read_rows_of(boxes.pose.pos, side))
        if kind is not GeomKind.MESH:
            return found
        assert table is not None, "hulls have tables"
        like = (-1, *(1 for _ in side.shape[1:]))
        heights = jnp.asarray(table.heights.reshape(like), shape.size.x.dtype)
        start = table_rows([plan.tables[geom] for geom in numbers], pair)
        scale, slack = read_rows_of(hulls, side)
        return found._replace(heights=heights, start=start, scale=scale, slack=slack)

    first, second = map(bound, kinds, (plan.first, plan.second), (one, two))
    return find_plane(kinds, first, second, visit.margin(pair, one, two), when)


def _appended(near: PairList, pair, found) -> PairList:
    place = near.count[None] + jnp.cumsum(found, axis=0, dtype=jnp.int32) - 1
    pairs = write_rows(near.pairs, place, pair, found)
    return PairList(pairs, near.count + jnp.sum(found, axis=0, dtype=jnp.int32))


# Narrow phase.


class _Visit(NamedTuple):
    """Data of a group of pairs.

    - `margins`, `reach`: see `pair_margin`.
    """

    sys: System
    plan: ListPlan
    group: PairGroup
    shapes: Shape
    margins: tuple[Any, Any]
    reach: Any

    @property
    def on_terrain(self) -> bool:
        """True if the first shapes are height fields."""
        return self.group.kinds[0] is GeomKind.HFIELD

    def tables(self) -> Shared:
        """Return what all shapes share. Derivatives are zero."""
        return lax.stop_gradient(shape_tables(self.sys))

    def margin(self, pair, one, two):
        """Return the distance at which contacts of pairs exist, see `pair_margin`."""
        return pair_margin(self.plan, self.margins, self.reach, pair, one, two)

    def counts(self, pair, condim: int):
        """Return which pairs have contacts of a dimension."""
        if len(self.plan.condims(self.group)) == 1:
            return jnp.ones_like(pair, bool)
        return table_rows(self.plan.condim, pair) == condim


def pair_shapes(
    plan: ListPlan, group: PairGroup, shared: Shared, pair, ends
) -> tuple[Shape, Shape]:
    """Return the shapes of pairs, with their hulls if they are meshes, and their grids if
    they are height fields.

    **Arguments:**

    - `shared`: see `shape_tables`.
    - `pair`: numbers of the pairs, `(k, *batch)`.
    - `ends`: their first and second shapes, without hulls.
    """
    found = []
    for kind, shape, side in zip(
        group.kinds, ends, (plan.first, plan.second), strict=True
    ):
        if kind is GeomKind.MESH:
            spans = [plan.spans[geom] for geom in side]
            start = table_rows([a for a, _ in spans], pair)
            count = table_rows([b - a for a, b in spans], pair)
            tables = table_rows([plan.tables[geom] for geom in side], pair)
            hulls = Hulls(shared.points, start, count, shared.polygons, tables)
            shape = shape._replace(hulls=hulls)
        if kind is GeomKind.HFIELD:
            columns = zip(*(plan.grids[geom] for geom in side), strict=True)
            numbers = (table_rows(column, pair) for column in columns)
            shape = shape._replace(grids=Grids(shared.heights, *numbers))
        found.append(shape)
    return found[0], found[1]


def _with_touching(
    visit: _Visit, near: PairList, contacts: dict[int, ContactList]
) -> tuple[PairList, dict[int, ContactList], Any]:
    """Append the contacts of the near pairs of a group; also return the pairs that have
    some, and the number of those that have more points than there is room for."""
    plan, group = visit.plan, visit.group
    own, tables = plan.condims(group), visit.tables()

    def body(carry):
        k, touching, lists, crowded = carry
        used = (k < near.count)[None]
        place = jnp.where(used, k, 0)
        # Those that touch are written over those that have been visited.
        pair = read_rows(touching.pairs, place)
        one, two = (table_rows(side, pair) for side in (plan.first, plan.second))
        margin = pair_margin(plan, visit.margins, visit.reach, pair, one, two)
        ends = [read_rows_of(visit.shapes, x) for x in (one, two)]
        shapes = pair_shapes(plan, group, tables, pair, ends)
        points = collide(group.kinds, group.num_points, *shapes, margin)
        exists = points.valid & (points.dist < margin[:, None]) & used[:, None]
        if points.crowded is not None:
            crowded = crowded + (points.crowded[0, 0] & used[0]).astype(crowded.dtype)
        new = []
        for condim, each in zip(own, lists, strict=True):
            here = exists & visit.counts(pair, condim)[:, None]
            new.append(_with_points(each, pair, points, here))
        touching = _appended(touching, pair, jnp.any(exists, axis=1))
        return k + 1, touching, new, crowded

    going = lambda carry: jnp.any(carry[0] < near.count)
    none = jnp.zeros_like(near.count)
    start = 0, near._replace(count=none), [contacts[condim] for condim in own], none
    _, touching, found, crowded = lax.while_loop(going, body, start)
    return touching, {**contacts, **dict(zip(own, found, strict=True))}, crowded


def _with_points(
    contacts: ContactList, pair, points: ContactPoints, exists
) -> ContactList:
    """Append the points of one pair, `(1, nslot, *batch)`, where they exist."""
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    exists = flat(exists)
    place = contacts.count[None] + jnp.cumsum(exists, axis=0, dtype=jnp.int32) - 1
    count = contacts.count + jnp.sum(exists, axis=0, dtype=jnp.int32)

    def write(x, value):
        value = flat(value)
        # Single rows are replaced in place by kernels.
        for k in range(exists.shape[0]):
            row = slice(k, k + 1)
            x = write_rows(x, place[row], value[row], exists[row])
        return x

    new = _values(pair, points)
    found = jtu.tree_map(write, contacts._replace(count=None), new)
    return found._replace(count=count)


def _values(pair, points: ContactPoints) -> ContactList:
    """Return the points of pairs as contacts, `(k, nslot, *batch)`, without count."""
    frame, shape = points.frame, points.dist.shape
    slot = jnp.arange(shape[1], dtype=jnp.int32)
    slot = slot.reshape(1, -1, *(1 for _ in shape[2:]))
    return ContactList(
        pair=jnp.broadcast_to(pair[:, None], shape),
        slot=jnp.broadcast_to(slot, shape),
        dist=points.dist,
        pos=points.pos,
        normal=Vec3(*frame[:3]),
        tangent=Vec3(*frame[3:6]),
        count=None,
    )


_MOST_HEIGHTS = 1 << 26
"""Heights that all lanes of a chunk hold, if each has those of its environment."""


def _with_touching_lanes(
    visit: _Visit, near: PairList, contacts: dict[int, ContactList]
) -> tuple[PairList, dict[int, ContactList], Any]:
    """Return what `_with_touching` returns; the near pairs of all environments are computed
    together."""
    plan, group = visit.plan, visit.group
    own, tables = plan.condims(group), visit.tables()

    def body(carry, lanes: Lanes):
        touching, lists, crowded = carry
        pair = lanes.read(near.pairs, lanes.row[None])
        one, two = (table_rows(side, pair) for side in (plan.first, plan.second))
        reach = None if visit.reach is None else lanes.of(visit.reach)
        margin = pair_margin(plan, visit.margins, reach, pair, one, two, lanes.read)
        ends = [lanes.read_tree(visit.shapes, x) for x in (one, two)]
        points, heights = jtu.tree_map(lanes.of, (tables.points, tables.heights))
        shared = tables._replace(points=points, heights=heights)
        shapes = pair_shapes(plan, group, shared, pair, ends)
        points = collide(group.kinds, group.num_points, *shapes, margin)
        exists = points.valid & (points.dist < margin[:, None])
        exists = exists & lanes.used[None, None]
        new = []
        for condim, each in zip(own, lists, strict=True):
            here = exists & visit.counts(pair, condim)[:, None]
            places, count = lanes.places(each.count, here[0])
            write = lambda x, y, places=places: lanes.write(x, places, y[0])
            rows = each._replace(count=None), _values(pair, points)
            new.append(jtu.tree_map(write, *rows)._replace(count=count))
        places, count = lanes.places(touching.count, jnp.any(exists, axis=1))
        if points.crowded is not None:
            own_points = points.crowded[:, 0] & lanes.used[None]
            crowded = lanes.places(crowded, own_points)[1]
        return PairList(lanes.write(touching.pairs, places, pair), count), new, crowded

    batch = near.count.shape
    none = PairList(
        _empty(near.pairs.shape[0], batch, jnp.int32), jnp.zeros_like(near.count)
    )
    start = none, [contacts[condim] for condim in own], jnp.zeros_like(near.count)
    size = lanes_per_chunk(len(group.pairs), batch)
    own_heights = math.prod(tables.heights.shape[1:]) > 1
    if visit.on_terrain and own_heights:
        size = max(2, min(size, _MOST_HEIGHTS // tables.heights.shape[0]))
    touching, found, crowded = for_lanes(near.count, size, body, start)
    return touching, {**contacts, **dict(zip(own, found, strict=True))}, crowded
