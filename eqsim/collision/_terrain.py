"""Contact of height fields with convex shapes.

First the cells of a height field as triangular prisms; then distances of prisms; then the
collider, which walks over the cells below a shape.
"""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from .._loops import each_row
from ..kinematics.link_motion import Pose
from ..model import Collider, GeomKind
from ..model.arrays import concatenate, take
from ..spatial import Vec3
from ._convex import contact_at, find_touch, Touch
from ._convex_shapes import Core, Corner, pick, Placed
from ._direction_tables import count_rows, read_rows
from ._polytope_distance import combine, counted_first, Nearest, triangle_weights
from ._round_shapes import Feature
from .points import (
    complete,
    ContactPoints,
    Hulls,
    no_points,
    Point,
    Reach,
    Shape,
    unit,
    unit_normal,
)


# The cells of a height field as triangular prisms, and which of them a shape may touch.
#
# A cell is divided along the diagonal from its first corner to the opposite one into a left
# (0) and a right (1) half. Each is a prism between the bottom and a triangle of the surface,
# whose vertices are numbered 0 to 2 at the bottom, and 3 to 5 above:
#
#     2 ---- 1          ---- 1
#     | 0  /          /   1  |
#     |  /          /        |
#     0            0 ------- 2        x to the right, y up
#
# Source: MuJoCo, `mjc_ConvexHField`.


class Cell(NamedTuple):
    """A half of a cell: row and column of its first corner, and which half, int32."""

    row: Any
    column: Any
    half: Any


class Terrain(NamedTuple):
    """Height fields, in their frames, one per pair.

    - `heights`, `start`, `rows`, `columns`: see `Grids`.
    - `size`: half length along x, half length along y, and base, m.
    """

    heights: Any
    start: Any
    rows: Any
    columns: Any
    size: Vec3

    @property
    def steps(self) -> tuple[Any, Any]:
        """Distances of neighboring grid points along x and y."""
        last = lambda count: (count - 1).astype(self.size.x.dtype)
        return (
            2.0 * self.size.x / last(self.columns),
            2.0 * self.size.y / last(self.rows),
        )

    def corner(self, cell: Cell) -> Vec3:
        """Return the first corner of cells, at z = 0."""
        dx, dy = self.steps
        x = cell.column.astype(dx.dtype) * dx - self.size.x
        y = cell.row.astype(dy.dtype) * dy - self.size.y
        return Vec3(x, y, jnp.zeros_like(x + y))

    def vertex(self, cell: Cell, number) -> Vec3:
        """Return vertices of prisms, relative to the first corners of the cells."""
        dx, dy = self.steps
        third, upper = number % 3, number >= 3
        right = (third == 1) | ((third == 2) & (cell.half == 1))
        far = (third == 1) | ((third == 2) & (cell.half == 0))
        row, column = (
            cell.row + jnp.where(far, 1, 0),
            cell.column + jnp.where(right, 1, 0),
        )
        place = self.start + row * self.columns + column
        z = jnp.where(upper, read_rows(self.heights, place), -self.size.z)
        return Vec3(jnp.where(right, dx, 0.0), jnp.where(far, dy, 0.0), z)


def terrain_of(shape: Shape) -> Terrain:
    """Return the terrain of shapes that are height fields."""
    assert shape.grids is not None, "height fields have grids"
    return Terrain(*shape.grids, shape.size)


class Bounds(NamedTuple):
    """A shape in the frame of a height field: its pose, and what contains it.

    - `half`: half sizes of a box in the frame of the shape,
    - `radius`: radius of a ball about each point of that box.
    - `margin`: distance from which on prisms do not matter.
    """

    pose: Pose
    half: Vec3
    radius: Any
    margin: Any

    def extent(self, direction: Vec3):
        """Return how far the shape extends at most along a unit vector."""
        turned = self.pose.rot.T @ direction
        along = (jnp.abs(a) * b for a, b in zip(turned, self.half, strict=True))
        return sum(along, self.radius)

    @property
    def box(self) -> Vec3:
        """Half sizes of the box about the shape in the frame of the height field."""
        zero = jnp.zeros_like(self.radius)
        one = zero + 1.0
        axes = Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one)
        return Vec3(*map(self.extent, axes))


class Walk(NamedTuple):
    """A way over the cells under a shape.

    - `cell`: present cell.
    - `first`: first column, `stop`: row and column behind the last ones.
    - `going`: true if there are cells left.
    """

    cell: Cell
    first: Any
    stop: tuple[Any, Any]
    going: Any


def first_cell(terrain: Terrain, bounds: Bounds) -> Walk:
    """Begin a walk over the cells below or above the box about a shape."""
    box, pos = bounds.box, bounds.pose.pos
    ranges = []
    counts, steps = (terrain.columns, terrain.rows), terrain.steps
    for k, (count, step) in enumerate(zip(counts, steps, strict=True)):
        low, last = pos[k] - box[k] - bounds.margin, count - 1
        high = pos[k] + box[k] + bounds.margin
        place = lambda x, k=k, step=step: (x + terrain.size[k]) / step
        ranges.append(
            (_whole(jnp.floor(place(low)), last), _whole(jnp.ceil(place(high)), last))
        )
    (left, right), (near, far) = ranges
    going = (left < right) & (near < far)
    zero = jnp.zeros_like(left + near)
    # Cells are read also where there are none to visit.
    left = jnp.minimum(left, terrain.columns - 2) + zero
    near = jnp.minimum(near, terrain.rows - 2) + zero
    return Walk(Cell(near, left, zero), left, (far + zero, right + zero), going)


def _whole(x, last):
    """Convert to integers from 0 to `last`, whatever is not a number too."""
    within = jnp.clip(x, 0.0, last.astype(x.dtype)).astype(jnp.int32)
    return jnp.clip(within, 0, last)


def next_prism(terrain: Terrain, bounds: Bounds, walk: Walk, skip: bool) -> Walk:
    """Advance to the next prism that the shape may touch.

    **Arguments:**

    - `skip`: true to leave the present prism.
    """
    walk = _moved(walk) if skip else walk
    here = walk.going != walk.going

    def step(state):
        walk, found = state
        now = may_touch(terrain, bounds, walk.cell)
        other = jtu.tree_map(
            lambda x, y: jnp.where(now | found, x, y), walk, _moved(walk)
        )
        return other, found | now

    more = lambda state: jnp.any(state[0].going & ~state[1])
    return lax.while_loop(more, step, (walk, here))[0]


def _moved(walk: Walk) -> Walk:
    row, column, half = walk.cell
    turn = half == 1
    over = turn & (column + 1 >= walk.stop[1])
    column = jnp.where(over, walk.first, jnp.where(turn, column + 1, column))
    row = jnp.where(over & walk.going, row + 1, row)
    going = walk.going & (row < walk.stop[0])
    # Cells are read also where the way has ended.
    row = jnp.minimum(row, jnp.maximum(walk.stop[0] - 1, 0))
    return walk._replace(cell=Cell(row, column, 1 - half), going=going)


def may_touch(terrain: Terrain, bounds: Bounds, cell: Cell):
    """Return whether no face of a prism, and no axis, separates a shape from it by more
    than the margin."""
    numbers = [jnp.full_like(cell.half, k) for k in (3, 4, 5)]
    a, b, c = (terrain.vertex(cell, number) for number in numbers)
    pos = bounds.pose.pos - terrain.corner(cell)
    box = bounds.box
    gaps = [jnp.maximum(-pos[k], pos[k] - b[k]) - box[k] for k in (0, 1)]
    top = jnp.maximum(jnp.maximum(a.z, b.z), c.z)
    gaps += [pos.z - top - box.z, -terrain.size.z - pos.z - box.z]
    side = jnp.where(cell.half == 0, 1.0, -1.0).astype(pos.x.dtype)
    slope = unit_normal(b - a, c - a) * side
    across = unit(Vec3(b.y * side, -b.x * side, jnp.zeros_like(side + b.x)))
    gaps += [slope.dot(pos - a) - bounds.extent(slope)]
    gaps += [across.dot(pos) - bounds.extent(across)]
    gap = gaps[0]
    for other in gaps[1:]:
        gap = jnp.maximum(gap, other)
    return gap < bounds.margin


def reaches_ground(one: Shape, center: Pose, half: Vec3, margin) -> Any:
    """Return whether boxes about shapes reach below the highest grid point under them.

    **Arguments:**

    - `one`: height fields.
    - `center`, `half`: centers of the boxes with their orientation, and half sizes.
    - `margin`: distance from which on nothing is near.
    """
    terrain, rot = terrain_of(one), one.pose.rot.T
    pose = Pose(rot @ center.rot, rot @ (center.pos - one.pose.pos))
    bounds = Bounds(pose, half, jnp.zeros_like(margin), margin)
    walk = first_cell(terrain, bounds)
    bottom = pose.pos.z - bounds.box.z - margin
    last_row, last_column = walk.stop

    def step(state):
        row, column, found = state
        place = terrain.start + row * terrain.columns + column
        found = found | (read_rows(terrain.heights, place) > bottom)
        over = column >= last_column
        row = jnp.minimum(jnp.where(over, row + 1, row), last_row + 1)
        return row, jnp.where(over, walk.first, column + 1), found

    more = lambda state: jnp.any(walk.going & ~state[2] & (state[0] <= last_row))
    never = walk.going != walk.going
    start = walk.cell.row, walk.first, never
    return walk.going & lax.while_loop(more, step, start)[2]


def top_middle(terrain: Terrain, cell: Cell) -> Vec3:
    """Return the middle of the triangle above, relative to the first corner."""
    numbers = [jnp.full_like(cell.half, k) for k in (3, 4, 5)]
    a, b, c = (terrain.vertex(cell, number) for number in numbers)
    return (a + b + c) * (1.0 / 3.0)


# Nearest points of a triangular prism and a point or a segment, in closed form.
#
# Spheres and capsules are balls about points and segments. On height fields they are by far
# the most frequent shapes, so they do without the iterations of general convex shapes.
#
# - If they overlap, the shortest way out is along a normal of the difference $M$ of both
#   sets: that of a face of the prism, or of an edge and the segment.
# - If they are apart, the nearest points are an end of the segment and a point of a
#   triangle, or a point inside of the segment and one of an edge.
#
# Source: Ericson, *Real-Time Collision Detection*, 2005, sections 5.1 and 5.2.


# Vertices as numbered above; counterclockwise seen from outside, for the left half.
_FACES = np.array([(3, 4, 5), (0, 2, 1), (0, 1, 4), (1, 2, 5), (2, 0, 3)])
_TRIANGLES = np.concatenate([_FACES, [(0, 4, 3), (1, 5, 4), (2, 3, 5)]])
_EDGES = np.array(
    [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)]
)


class _Candidates(NamedTuple):
    """Faces, edges or points of $M$ that may be nearest, `(n, *batch)`.

    - `measure`: the nearest one has the smallest.
    - `first`, `second`: numbers of the vertices of prism and segment, three of each.
    - `weights`: weights of the three points; positive for those that count.
    """

    measure: Any
    first: tuple[Any, Any, Any]
    second: tuple[Any, Any, Any]
    weights: tuple[Any, Any, Any]


def nearest_of_prism(points: Vec3, right, ends: Vec3) -> Nearest:
    """Return what is nearest of a prism and a point or a segment.

    **Arguments:**

    - `points`: vertices of the prism, `(6, *batch)`.
    - `right`: true if it is the right half of a cell.
    - `ends`: the point or the ends of the segment, `(1 or 2, *batch)`.
    """
    two = ends.x.shape[0] == 2
    inside = [_faces(points, right, ends)]
    outside = [_corners(points, ends, k) for k in range(ends.x.shape[0])]
    if two:
        inside += _edges_across(points, ends)
        outside += [_edges_apart(points, ends), _vertices_apart(points, ends)]
    deepest, nearest = (_smallest(concatenate(each)) for each in (inside, outside))
    apart = ~(deepest.measure > 0.0)
    best = jtu.tree_map(lambda x, y: jnp.where(apart, x, y), nearest, deepest)
    corners = tuple(
        (Corner(a, None), Corner(b, None))
        for a, b in zip(best.first, best.second, strict=True)
    )
    return counted_first(corners, [x > 0.0 for x in best.weights], apart)


def _smallest(all_of_them: _Candidates) -> _Candidates:
    best = jnp.argmin(all_of_them.measure, axis=0, keepdims=True).astype(jnp.int32)
    return jtu.tree_map(lambda x: read_rows(x, best), all_of_them)


def _numbers(table, like) -> tuple[Any, Any, Any]:
    """Return the columns of a table as arrays of the shape of `like`."""
    zero = jnp.zeros(like.shape, jnp.int32)
    shape = -1, *(1 for _ in like.shape[1:])
    columns = np.asarray(table, np.int32).T
    a, b, c = (zero + jnp.asarray(column.reshape(shape)) for column in columns)
    return a, b, c


def _ones(like) -> tuple[Any, Any, Any]:
    one = jnp.ones_like(like)
    return one, one, one


def _faces(points: Vec3, right, ends: Vec3) -> _Candidates:
    """Compare the depths below the faces of the prism."""
    a, b, c = (take(points, _FACES[:, k]) for k in range(3))
    side = jnp.where(right, -1.0, 1.0).astype(a.x.dtype)
    normal = unit_normal(b - a, c - a) * side
    low, second = normal.dot(take(ends, [0])), jnp.zeros(a.x.shape, jnp.int32)
    if ends.x.shape[0] == 2:
        other = normal.dot(take(ends, [1]))
        second, low = jnp.where(other < low, 1, second), jnp.minimum(low, other)
    depth = normal.dot(a) - low
    one, two, three = _numbers(_FACES, depth)
    turned = one, jnp.where(right, three, two), jnp.where(right, two, three)
    return _Candidates(depth, turned, (second, second, second), _ones(depth))


def _edges_across(points: Vec3, ends: Vec3) -> list[_Candidates]:
    """Compare the depths along normals of an edge and the segment, both ways."""
    start, stop = (take(points, _EDGES[:, k]) for k in range(2))
    first, last = take(ends, [0]), take(ends, [1])
    edge, line = stop - start, last - first
    across = edge.cross(line)
    eps = float(jnp.finfo(across.x.dtype).eps)
    slanted = across.dot(across) > (64 * eps) ** 2 * edge.dot(edge) * line.dot(line)
    normal = unit_normal(edge, line)
    heights = [normal.dot(take(points, [k])) for k in range(6)]
    top = bottom = heights[0]
    for height in heights[1:]:
        top, bottom = jnp.maximum(top, height), jnp.minimum(bottom, height)
    rounding = 64 * eps * jnp.maximum(jnp.abs(top), jnp.abs(bottom))
    at, depth = normal.dot(start), normal.dot(start - first)
    found = []
    for sign, reached in ((1.0, at >= top - rounding), (-1.0, at <= bottom + rounding)):
        measure = jnp.where(slanted & reached, sign * depth, jnp.inf)
        # The corners turn so that the normal leads out of the difference.
        order = (0, 0, 1) if sign > 0.0 else (0, 1, 0)
        ends_in_order = (0, 1, 0) if sign > 0.0 else (0, 0, 1)
        numbers = _numbers(_EDGES[:, order], depth)
        others = _numbers(np.tile(ends_in_order, (len(_EDGES), 1)), depth)
        found.append(_Candidates(measure, numbers, others, _ones(depth)))
    return found


def _corners(points: Vec3, ends: Vec3, which: int) -> _Candidates:
    """Compare the distances of an end from the triangles of the prism."""
    end = take(ends, [which])
    corners = tuple(take(points, _TRIANGLES[:, k]) - end for k in range(3))
    weights = triangle_weights(*corners)
    point = combine(weights, corners)
    square = point.dot(point)
    second = jnp.full(square.shape, which, jnp.int32)
    numbers = _numbers(_TRIANGLES, square)
    return _Candidates(square, numbers, (second, second, second), weights)


def _edges_apart(points: Vec3, ends: Vec3) -> _Candidates:
    """Compare the distances of points inside of the edges and of the segment."""
    start, stop = (take(points, _EDGES[:, k]) for k in range(2))
    first, last = take(ends, [0]), take(ends, [1])
    edge, line, apart = stop - start, last - first, start - first
    aa, ab, bb = edge.dot(edge), edge.dot(line), line.dot(line)
    a, b = edge.dot(apart), line.dot(apart)
    det = aa * bb - ab * ab
    slanted = det > 64 * float(jnp.finfo(det.dtype).eps) * aa * bb
    safe = jnp.where(slanted, det, 1.0)
    on_edge, on_line = (ab * b - bb * a) / safe, (aa * b - ab * a) / safe
    within = lambda x: (x > 0.0) & (x < 1.0)
    between = apart + (edge * on_edge) - (line * on_line)
    valid = slanted & within(on_edge) & within(on_line)
    square = jnp.where(valid, between.dot(between), jnp.inf)
    numbers = _numbers(_EDGES[:, (0, 0, 1)], square)
    others = _numbers(np.tile((0, 1, 0), (len(_EDGES), 1)), square)
    return _Candidates(square, numbers, others, _ones(square))


def _vertices_apart(points: Vec3, ends: Vec3) -> _Candidates:
    """Compare the distances of the vertices from points inside of the segment."""
    first, last = take(ends, [0]), take(ends, [1])
    line, apart = last - first, points - first
    square, along = line.dot(line), line.dot(apart)
    positive = square > 0.0
    share = along / jnp.where(positive, square, 1.0)
    between = apart - (line * share)
    valid = positive & (share > 0.0) & (share < 1.0)
    measure = jnp.where(valid, between.dot(between), jnp.inf)
    numbers = _numbers(np.tile(np.arange(6)[:, None], (1, 3)), measure)
    others = _numbers(np.tile((0, 1, 1), (6, 1)), measure)
    one, two, _ = _ones(measure)
    return _Candidates(measure, numbers, others, (one, two, jnp.zeros_like(one)))


# Contact of height fields with convex shapes.
#
# A height field is not convex. As in MuJoCo, it is the union of triangular prisms
# (above), and each prism that is nearer to a shape than the margin has one contact
# with it, as two convex shapes have.
#
# **How many contacts.** Each possible contact has rows in the constraint solver, so their
# number is static: `HeightFields.capacity` for each pair. MuJoCo's limit is 50 for each
# pair, and more are dropped in the order of the cells. Here, the deepest ones are kept if
# there are more than the capacity, so that what is lost changes the motion least, and the
# points of that pair are marked as crowded: the solver then reports that it has not
# converged. The capacity cannot be computed from the sizes of shape and cells: both are
# arrays, which may differ between environments and change without recompiling. It would also
# be several times the number of contacts on usual terrain.
#
# **Cost.** A search, without derivatives, walks over the cells under the box about a shape,
# skips those that a separating plane rules out, and compares the others by the algorithms of
# two convex shapes. Each environment advances to its next prism that is not ruled out by
# itself, so that a group of environments compares prisms in step. The search returns which
# vertices touch; the contacts are then functions of these vertices, with derivatives. Reverse
# mode does not search again, and the heights that matter are read once for all pairs: what
# a shape costs does not depend on the size of the field. Spheres and capsules, which feet
# mostly are, are compared in closed form (above).
#
# **Where MuJoCo differs.** Its search for the depth of boxes and meshes without a margin ends
# where a vertex of theirs comes back, because vertices of prisms have no numbers
# (`mjc_prism_support`, `epa`): depths are then too small. With a margin they are exact, and
# are equal to those here.


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
