r"""Contact of height fields with convex shapes.

A height field is not convex. As in MuJoCo, it is the union of triangular prisms
(`_prisms.py`), and each prism that is nearer to a shape than the margin has one contact
with it, as two convex shapes have.

**How many contacts.** Each possible contact has rows in the constraint solver, so their
number is static: `HeightFields.capacity` for each pair. MuJoCo's limit is 50 for each
pair, and more are dropped in the order of the cells. Here, the deepest ones are kept if
there are more than the capacity, so that what is lost changes the motion least, and the
points of that pair are marked as crowded: the solver then reports that it has not
converged. The capacity cannot be computed from the sizes of shape and cells: both are
arrays, which may differ between environments and change without recompiling. It would also
be several times the number of contacts on usual terrain.

**Cost.** A search, without derivatives, walks over the cells under the box about a shape,
skips those that a separating plane rules out, and compares the others by the algorithms of
two convex shapes. Each environment advances to its next prism that is not ruled out by
itself, so that a group of environments compares prisms in step. The search returns which
vertices touch; the contacts are then functions of these vertices, with derivatives. Reverse
mode does not search again, and the heights that matter are read once for all pairs: what
a shape costs does not depend on the size of the field. Spheres and capsules, which feet
mostly are, are compared in closed form (`_prism_distance.py`).

**Where MuJoCo differs.** Its search for the depth of boxes and meshes without a margin ends
where a vertex of theirs comes back, because vertices of prisms have no numbers
(`mjc_prism_support`, `epa`): depths are then too small. With a margin they are exact, and
are equal to those here.
"""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._loops import each_row
from ..kinematics._forward import Pose
from ..model import Collider, GeomKind
from ..spatial import Vec3
from ._convex import contact_at, find_touch, Touch
from ._cores import Core, Corner, pick, Placed
from ._near import no_points, Reach
from ._points import complete, ContactPoints, Hulls, Point, Shape
from ._prism_distance import nearest_of_prism
from ._prisms import (
    Bounds,
    Cell,
    first_cell,
    next_prism,
    Terrain,
    terrain_of,
    top_middle,
    Walk,
)
from ._round import Feature
from ._rows import count_rows
from ._separation import Nearest


# Balls about a point or a segment, and the number of its ends.
_NUMBER_OF_ENDS = {GeomKind.SPHERE: 1, GeomKind.CAPSULE: 2}


class Found(NamedTuple):
    """Prisms that a shape touches, and where: one row per possible contact.

    - `dist`: distance; infinite in rows without a contact.
    - `cell`: the prism.
    - `corners`: vertices of both that touch, three pairs.
    - `count`: number of vertices that hold the nearest point.
    - `side`: 1 for a polytope that is apart; else see `Feature.face`.
    - `normal`: normal of round shapes, see `Feature`; None for polytopes.
    """

    dist: Any
    cell: Cell
    corners: tuple[tuple[Any, Any], ...]
    count: Any
    side: Any
    normal: Vec3 | None


def terrain_collider(kind: GeomKind) -> Collider:
    """Return how a height field touches a kind of convex shapes."""
    return Collider(ft.partial(terrain_points, kind), None, measures=False)


def terrain_points(
    kind: GeomKind, one: Shape, two: Shape, reach: Reach, capacity: int
) -> list[ContactPoints]:
    """Return the points of all pairs of height fields with shapes, slot by slot.

    **Arguments:**

    - `kind`: kind of the second shapes.
    - `reach`: distance within which pairs are computed.
    - `capacity`: number of points of a pair.
    """
    found, crowded = _search(kind, *lax.stop_gradient((one, two, reach)), capacity)
    points = _points(kind, one, two, reach, found)
    each = lambda x: x.reshape(-1, capacity, *x.shape[1:])
    points = jtu.tree_map(each, points)
    crowded = jnp.broadcast_to(crowded[:, None], points.valid.shape)
    points = points._replace(crowded=crowded)
    slots = range(capacity)
    return [jtu.tree_map(lambda x, k=k: x[:, k], points) for k in slots]


def _search(kind: GeomKind, one: Shape, two: Shape, reach: Reach, capacity: int):
    """Return what touches, `(npair, capacity, *batch)`, and whether there is more,
    `(npair, *batch)`."""
    assert one.grids is not None, "height fields have grids"
    heights, hulls = one.grids.heights, two.hulls
    grids = one.grids._replace(heights=None)
    own = hulls and hulls._replace(points=None, polygons=None)
    pairs = one._replace(grids=grids), two._replace(hulls=own), reach
    batch = jnp.broadcast_shapes(
        *(
            x.shape[1:]
            for x in jtu.tree_leaves((pairs, heights, hulls and hulls.points))
        )
    )

    def visit(pair):
        pair = jtu.tree_map(lambda x: jnp.broadcast_to(x[None], (1, *batch)), pair)
        first, second, bounds = pair
        first = first._replace(grids=first.grids._replace(heights=heights))
        if hulls is not None:
            full = second.hulls._replace(points=hulls.points, polygons=hulls.polygons)
            second = second._replace(hulls=full)
        return _search_pair(kind, first, second, bounds, capacity)

    found, crowded = each_row(visit, pairs)
    return found, crowded[:, 0]


class _State(NamedTuple):
    walk: Walk
    found: Found
    total: Any


def _search_pair(kind: GeomKind, one: Shape, two: Shape, reach: Reach, capacity: int):
    """Visit all prisms that one shape may touch."""
    terrain, core = terrain_of(one), Core(kind, two.size, two.hulls)
    rot = one.pose.rot.T
    pose = Pose(rot @ two.pose.rot, rot @ (two.pose.pos - one.pose.pos))
    half = Vec3(*(x - core.radius for x in reach.second))
    bounds = Bounds(pose, half, core.radius, reach.margin)

    def visit(state: _State) -> _State:
        each = _touching(terrain, core, bounds, state.walk.cell)
        touches = state.walk.going & (each.dist < reach.margin)
        found = _with(state.found, each, state.total, touches)
        total = state.total + touches.astype(state.total.dtype)
        return _State(next_prism(terrain, bounds, state.walk, True), found, total)

    walk = first_cell(terrain, bounds)
    shape = jax.eval_shape(lambda: _touching(terrain, core, bounds, walk.cell))
    rows = lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype)
    none = jtu.tree_map(rows, shape)
    none = none._replace(dist=jnp.full_like(none.dist, jnp.inf))
    start = _State(next_prism(terrain, bounds, walk, False), none, walk.first * 0)
    going = lambda state: jnp.any(state.walk.going)
    end = lax.while_loop(going, visit, start)
    return end.found, end.total > capacity


def _with(found: Found, each: Found, total, when) -> Found:
    """Write a contact into the next free row, or over the least deep one."""
    capacity = found.dist.shape[0]
    worst = jnp.argmax(found.dist, axis=0, keepdims=True).astype(total.dtype)
    row = jnp.where(total < capacity, total, worst)
    here = (count_rows(found.dist) == row) & when & (each.dist < found.dist)
    return jtu.tree_map(lambda x, y: jnp.where(here, y, x), found, each)


def _touching(terrain: Terrain, core: Core, bounds: Bounds, cell: Cell) -> Found:
    """Return where a prism is nearest to a shape."""
    # Coordinates about the prism: rounding does not grow with the size of the field.
    middle = top_middle(terrain, cell)
    numbers = [jnp.full_like(cell.half, k) for k in range(6)]
    vertices = [terrain.vertex(cell, number) - middle for number in numbers]
    points = Vec3(*(jnp.concatenate(x) for x in zip(*vertices, strict=True)))
    offset = bounds.pose.pos - (terrain.corner(cell) + middle)
    prism = _polytope(points, core.size)
    placed = Placed(prism, core, Pose(bounds.pose.rot, offset))
    if core.kind in _NUMBER_OF_ENDS:
        ends = _ends(placed)
        touch = Touch(nearest_of_prism(points, cell.half == 1, ends), None)
    else:
        touch = find_touch(placed, bounds.margin)
    dist = contact_at(placed, touch)[0]
    chosen, normal = touch.nearest, None
    side = chosen.outside.astype(jnp.int32)
    if touch.feature is not None:
        chosen, normal, side = touch.feature, touch.feature.normal, touch.feature.face
    corners = tuple((a.number, b.number) for a, b in chosen.corners)
    return Found(dist, cell, corners, chosen.count, side, normal)


def _ends(placed: Placed) -> Vec3:
    """Return the vertices of a point or a segment in the frame of a prism."""
    numbers = range(_NUMBER_OF_ENDS[placed.second.kind])
    like = jnp.zeros_like(placed.offset.pos.x, jnp.int32)
    ends = [placed.offset.point(placed.second.vertex(like + k)) for k in numbers]
    return Vec3(*(jnp.concatenate(x) for x in zip(*ends, strict=True)))


def _polytope(points: Vec3, size: Vec3) -> Core:
    """Return the convex hull of a few points."""
    start = jnp.zeros_like(points.x[:1], jnp.int32)
    hull = Hulls(points, start, start + points.x.shape[0])
    return Core(GeomKind.MESH, size, hull)


class _Slot(NamedTuple):
    """A contact that was found, with everything that it depends on.

    - `dist`, `count`, `side`, `normal`: see `Found`.
    - `numbers`: vertices of the second shape that touch; of a mesh, they are counted in
        `ends`.
    - `ends`: vertices of the first shape that touch, `(3, *batch)`, and those of the second
        one if it is a mesh.
    - `size`: size of the second shape.
    - `offset`: its pose in the frame of the cell.
    - `frame`: frame of the cell in the world.
    - `margin`: distance that is reported where there is no contact.
    """

    dist: Any
    count: Any
    side: Any
    normal: Vec3 | None
    numbers: tuple[Any, Any, Any]
    ends: tuple[Vec3, Vec3 | None]
    size: Vec3
    offset: Pose
    frame: Pose
    margin: Any


def _points(
    kind: GeomKind, one: Shape, two: Shape, reach: Reach, found: Found
) -> ContactPoints:
    """Return the contacts that were found, `(npair * capacity, *batch)`."""
    slots = _slots(one, two, reach, found)
    points = each_row(ft.partial(_point_of_slot, kind), slots)
    return jtu.tree_map(lambda x: x[:, 0], points)


def _slots(one: Shape, two: Shape, reach: Reach, found: Found) -> _Slot:
    """Gather what contacts depend on, `(npair * capacity, 1 or 3, *batch)`."""
    npair, capacity = found.dist.shape[:2]
    found = jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), found)

    def repeat(x):
        full = jnp.broadcast_to(x[:, None], (npair, capacity, *x.shape[1:]))
        return full.reshape(-1, *x.shape[1:])

    assert one.grids is not None, "height fields have grids"
    first = jtu.tree_map(repeat, one._replace(grids=one.grids._replace(heights=None)))
    grids = first.grids
    assert grids is not None, "height fields have grids"
    numbers_of_grid = grids.start, grids.rows, grids.columns
    terrain = Terrain(one.grids.heights, *numbers_of_grid, first.size)
    second = jtu.tree_map(repeat, two._replace(hulls=None))
    rot, corner = first.pose.rot.T, terrain.corner(found.cell)
    place = (rot @ (second.pose.pos - first.pose.pos)) - corner
    a, b, c = (pair[1] for pair in found.corners)
    numbers, others = (a, b, c), None
    triple = lambda *xs: jnp.stack(xs, axis=1)
    if two.hulls is not None:
        start, points = repeat(two.hulls.start), two.hulls.points
        others = jtu.tree_map(triple, *(pick(points, start + k) for k in numbers))
        numbers = a * 0, b * 0 + 1, c * 0 + 2
    ends = [terrain.vertex(found.cell, pair[0]) for pair in found.corners]
    single = lambda tree: jtu.tree_map(lambda x: x[:, None], tree)
    return _Slot(
        dist=single(found.dist),
        count=single(found.count),
        side=single(found.side),
        normal=single(found.normal),
        numbers=single(numbers),
        ends=(jtu.tree_map(triple, *ends), others),
        size=single(second.size),
        offset=single(Pose(rot @ second.pose.rot, place)),
        frame=single(Pose(first.pose.rot, first.pose.point(corner))),
        margin=jnp.broadcast_to(single(repeat(reach.margin)), single(found.dist).shape),
    )


def _point_of_slot(kind: GeomKind, slot: _Slot) -> ContactPoints:
    """Return one contact, `(1, *batch)`; one that is not valid where none was found."""
    there = jnp.isfinite(slot.dist)

    def touch():
        first, second = _polytope(slot.ends[0], slot.size), Core(kind, slot.size)
        if slot.ends[1] is not None:
            second = _polytope(slot.ends[1], slot.size)
        placed = Placed(first, second, slot.offset)
        one, two, three = (
            (Corner(jnp.full_like(slot.count, k), None), Corner(number, None))
            for k, number in enumerate(slot.numbers)
        )
        corners = one, two, three
        nearest = Nearest(corners, slot.count, slot.side > 0)
        feature = None
        if slot.normal is not None:
            feature = Feature(corners, slot.count, slot.normal, slot.side)
        dist, normal, middle = contact_at(placed, Touch(nearest, feature))
        frame = slot.frame
        return complete(Point(dist, frame.point(middle), frame.rot @ normal))

    nothing = no_points(1, slot.margin)
    found = lax.cond(jnp.any(there), touch, lambda: nothing)
    keep = lambda x, y: jnp.where(there, x, y)
    return jtu.tree_map(keep, found, nothing)
