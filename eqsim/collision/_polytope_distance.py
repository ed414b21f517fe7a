"""Distance and penetration depth of convex polytopes.

Three searches, from cheap to costly: a plane between two shapes (Chung and Wang), the expanding
polytope algorithm for shapes that overlap, and the algorithm of Gilbert, Johnson and Keerthi
for shapes that do not, which hands over to the second one.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._loops import once
from .._primitive import are_rows_together
from ..kinematics.link_motion import Pose
from ..model import GeomKind
from ..model.kinds import AnyKind
from ..spatial import Vec3
from ._convex_shapes import across, Core, Corners, pick, Placed
from ._direction_tables import (
    count_rows,
    largest_row,
    outer_point,
    read_rows,
    write_row,
)
from .points import Shape, unit


# A plane between two convex shapes.
#
# Shapes are farther apart than $m$ if along some unit vector $d$ the second one lies beyond the
# first one, $w \cdot d > m$, with the difference $w$ of the points of both that are nearest to
# each other along $d$. If they are not, $d$ is reflected, $d - 2 (w \cdot d) w / |w|^2$, which
# turns it away from $w$. Most pairs are told apart by the first few directions.
#
# Hulls of meshes are replaced by tables, see `_direction_tables.py`, which bound them from outside.
# What is found apart is certainly apart.
#
# Source: Chung, Wang, *Quick collision detection of polytopes in virtual environments*, 1996.


_PLANE_STEPS = 10
_ROUNDING = 64


class ConvexBound(NamedTuple):
    """Convex shapes of one kind, and bounds of those that are meshes.

    - `shape`: poses and sizes.
    - `center`: a point within each shape, in the world.
    - `heights`, `start`: see `outer_point`; None for other kinds.
    - `scale`, `slack`: size of the hulls in units of those of the table, and the largest
        distance of a vertex from that of the table, m.
    """

    shape: Shape
    center: Vec3
    heights: Any = None
    start: Any = None
    scale: Any = None
    slack: Any = None

    def support(self, kind: AnyKind, direction: Vec3) -> Vec3:
        """Return a point that lies as far as the shape in the direction of a unit vector, or
        slightly farther; all in the frame of the shape."""
        if kind is GeomKind.MESH:
            point = outer_point(self.heights, self.start, direction)
            return (point * self.scale) + (direction * self.slack)
        assert isinstance(kind, GeomKind), "shapes of other kinds have no searches"
        core = Core(kind, self.shape.size)
        return core.point(core.support(direction)) + (direction * core.radius)


class _Search(NamedTuple):
    """A unit vector, the number of directions that were tried, whether no more are needed,
    and whether a plane has been found."""

    direction: Vec3
    steps: Any
    done: Any
    apart: Any


def find_plane(
    kinds: tuple[AnyKind, AnyKind], one: ConvexBound, two: ConvexBound, margin, when
):
    """Return whether a plane was found between shapes that are farther apart than a margin.

    **Arguments:**

    - `when`: pairs for which it is asked.
    """
    turn, pose = one.shape.pose.rot.T, two.shape.pose
    offset = Pose(turn @ pose.rot, turn @ (pose.pos - one.shape.pose.pos))
    eps = _ROUNDING * float(jnp.finfo(margin.dtype).eps)
    size = lambda v: jnp.abs(v.x) + jnp.abs(v.y) + jnp.abs(v.z)

    def visit(search: _Search) -> _Search:
        direction = search.direction
        first = one.support(kinds[0], direction)
        second = two.support(kinds[1], offset.rot.T @ -direction)
        second = offset.rot @ second
        apart = offset.pos + second - first
        along, square = apart.dot(direction), apart.dot(apart)
        rounding = eps * (size(offset.pos) + size(first) + size(second) + margin)
        found = along > margin + rounding
        share = jnp.where(square > 0.0, 2.0 * along / square, 0.0)
        return _Search(
            direction - (apart * share),
            search.steps + 1,
            search.done | found | (search.steps >= _PLANE_STEPS - 1),
            search.apart | (found & ~search.done),
        )

    begin = unit(turn @ (two.center - one.center))
    none = jnp.zeros_like(when, jnp.int32)
    start = _Search(begin, none, ~when, when & ~when)
    going = lambda search: jnp.any(~search.done)
    return lax.while_loop(going, visit, start).apart


# Penetration depth of two convex polytopes: expanding polytope algorithm.
#
# The difference $M = \{a - b\}$ of two convex sets contains the origin where they overlap,
# and its face nearest to the origin is the shortest way out. A polytope inside of $M$ is
# expanded at its own nearest face until that is a face of $M$. Faces are compared by the
# signed distance of their planes, so that the origin may lie outside at first. What decides on
# vertices and faces is evaluated once: contradictory decisions leave the polytope open.
#
# Source: van den Bergen, *Proximity queries and penetration depth computation on 3D game
# objects*, 2001.


# A vertex is a bit of an int32, and takes five bits where several are packed into one.
_VERTICES = 32
_FACES = 2 * _VERTICES - 4
_HALF = _FACES // 2
_NEVER = 1e30
# Round shapes need no more: Newton's method follows. As a share of their size.
_ROUND_SHARE = 1e-4


class Face(NamedTuple):
    """The face of $M$ whose plane has the smallest signed distance from the origin.

    - `corners`: counterclockwise, seen from outside.
    - `dist`: its signed distance; negative if the origin is outside.
    """

    corners: tuple[Corners, Corners, Corners]
    dist: Any


class _Faces(NamedTuple):
    """Faces of the polytope: numbers of three corners in one integer, outer normals,
    signed distances of the planes from the origin; infinite where there is no face."""

    corners: Any
    normal: Vec3
    dist: Any


class _Polytope(NamedTuple):
    """A polytope inside of $M$.

    - `corners`, `points`: vertices, `(_VERTICES, *batch)`.
    - `faces`: `(_FACES, *batch)`.
    - `num_points`, `num_faces`: numbers of vertices and faces.
    - `lowest`: corners of the face with the least height, like `_Faces.corners`.
    - `height`: support function of $M$ at its normal, an upper bound of the depth.
    - `done`: true if no more are needed.
    """

    corners: Corners
    points: Vec3
    faces: _Faces
    num_points: Any
    num_faces: Any
    lowest: Any
    height: Any
    done: Any


def nearest_face(placed: Placed, toward: Vec3, when) -> Face:
    """Return the face of $M$ that is nearest to the origin.

    If there is no room for more vertices, it is the face of a polytope inside of $M$ at
    whose normal $M$ is lowest.

    **Arguments:**

    - `toward`: a direction from the first to the second set.
    - `when`: condition under which the result is used.
    """
    start = _tetrahedron(placed, _first_tetrahedron(placed, toward), ~when)
    size = jnp.sqrt(jnp.max(start.points.dot(start.points), axis=0, keepdims=True))
    rounding = 64 * float(jnp.finfo(size.dtype).eps) * size
    enough = _ROUND_SHARE * size if placed.is_round else rounding
    expand = lambda polytope: _expanded(placed, polytope, rounding, enough)
    more = lambda polytope: jnp.any(~polytope.done)
    end = lax.while_loop(more, expand, start)
    numbers = _unpacked(end.lowest)
    row = lambda k: jtu.tree_map(lambda x: read_rows(x, k), end.corners)
    a, b, c = map(row, numbers)
    points = tuple(pick(end.points, k) for k in numbers)
    return Face((a, b, c), _face(numbers, points).dist)


def _first_tetrahedron(placed: Placed, toward: Vec3) -> list[Corners]:
    """Return four points of $M$ that are not in one plane. The first three
    turn counterclockwise, seen from outside."""

    def visit(k, found):
        # The points that are farthest along a direction, and against it.
        (a, b, c, _), direction = found
        one, two = placed.support(direction), placed.support(-direction)
        origin, other = (placed.difference(_either(k == 0, x, a)) for x in (one, two))
        far = lambda corners: jnp.abs(
            direction.dot(placed.difference(corners) - origin)
        )
        new = _either(far(one) >= far(two), one, two)
        a, b = _either(k == 0, one, a), _either(k == 0, two, b)
        c = _either(k == 1, new, c)
        origin = placed.difference(a)
        line = placed.difference(b) - origin
        normal = line.cross(placed.difference(c) - origin)
        beside = across(line)
        onward = Vec3(*(jnp.where(k == 0, x, y) for x, y in zip(beside, normal)))
        return (a, b, c, new), onward

    none = jtu.tree_map(lambda x: x * 0, placed.support(toward))
    start = (none, none, none, none), toward
    (a, b, c, d), normal = lax.fori_loop(0, 3, visit, start)
    outward = normal.dot(placed.difference(d) - placed.difference(a)) < 0.0
    return [a, _either(outward, b, c), _either(outward, c, b), d]


def _either(first, one: Corners, two: Corners) -> Corners:
    """Choose between two points."""
    return once(jtu.tree_map(lambda x, y: jnp.where(first, x, y), one, two))


def _tetrahedron(placed: Placed, corners: list[Corners], done) -> _Polytope:
    points = [placed.difference(each) for each in corners]
    fill = lambda xs, size: jnp.concatenate([*xs, *[xs[-1]] * (size - len(xs))])
    column = lambda *xs: fill(list(xs), _VERTICES)
    stored, vertices = jtu.tree_map(column, *corners), jtu.tree_map(column, *points)
    zero = jnp.zeros_like(points[0].x)
    whole = lambda value: (value + zero).astype(jnp.int32)
    faces = [
        _face(tuple(map(whole, three)), tuple(points[k] for k in three))
        for three in ((0, 1, 2), (0, 3, 1), (1, 3, 2), (2, 3, 0))
    ]
    joined = jtu.tree_map(lambda *xs: fill(list(xs), _FACES), *faces)
    empty = count_rows(joined.dist) >= len(faces)
    joined = joined._replace(dist=jnp.where(empty, jnp.inf, joined.dist))
    four = whole(4)
    nowhere = zero + jnp.inf
    return _Polytope(stored, vertices, joined, four, four, whole(0), nowhere, done)


def _packed(numbers: tuple) -> Any:
    first, *rest = numbers
    for k, number in enumerate(rest, 1):
        first = first | (number << (5 * k))
    return first


def _unpacked(packed, size: int = 3) -> tuple:
    return tuple((packed >> (5 * k)) & (_VERTICES - 1) for k in range(size))


def _face(corners: tuple, points: tuple[Vec3, ...]) -> _Faces:
    """Return one face; a face without area is never the nearest one."""
    a, b, c = points
    one, two = b - a, c - a
    normal = one.cross(two)
    area, tiny = normal.dot(normal), float(jnp.finfo(a.x.dtype).eps) ** 2
    flat = area <= tiny * one.dot(one) * two.dot(two)
    scale = jnp.where(flat, 0.0, 1.0 / jnp.sqrt(jnp.where(flat, 1.0, area)))
    normal = normal * scale
    return _Faces(_packed(corners), normal, jnp.where(flat, _NEVER, normal.dot(a)))


def _expanded(placed: Placed, polytope: _Polytope, rounding, enough) -> _Polytope:
    """Return the polytope with one more vertex, beyond its nearest face, if that is more
    than `enough` inside of $M$."""
    faces, together = polytope.faces, are_rows_together()
    nearest = _nearest_together if together else _nearest
    best = once(nearest(faces.dist))
    normal, dist = pick(faces.normal, best), read_rows(faces.dist, best)
    numbers = read_rows(faces.corners, best)
    known = lambda x: read_rows(x, _unpacked(numbers)[0])
    near = jtu.tree_map(known, polytope.corners)
    corners = once(placed.support(normal, near))
    point = once(placed.difference(corners))
    height = normal.dot(point)
    # A comparison that is true for what is not a number too.
    reached = ~(height - dist > enough)
    lower = once(~polytope.done & (reached | (height < polytope.height)))
    done = polytope.done | reached
    done = once(done | (polytope.num_points >= _VERTICES))
    at = polytope.num_points
    put = _put_together if together else write_row
    write = lambda x, y: put(x, at, y, ~done)
    # Faces without area are not visible, nor are those that do not exist.
    visible = faces.normal.dot(point) - faces.dist > rounding
    chosen = once(tuple(jnp.where(done, 0, word) for word in _as_bits(visible)))
    grown = polytope._replace(
        corners=jtu.tree_map(write, polytope.corners, corners),
        points=jtu.tree_map(write, polytope.points, point),
        lowest=jnp.where(lower, numbers, polytope.lowest),
        height=jnp.where(lower, height, polytope.height),
        done=done,
    )
    fan = _with_fan_together if together else _with_fan
    faces, num_faces = fan(grown, chosen)
    return grown._replace(
        faces=faces,
        num_points=at + jnp.where(done, 0, 1).astype(at.dtype),
        num_faces=num_faces,
    )


def _with_fan(polytope: _Polytope, chosen: tuple) -> tuple[_Faces, Any]:
    """Replace faces by those that join their outline with the vertex that comes last;
    return the faces and how many there are.

    **Arguments:**

    - `chosen`: faces, as bits of two integers.
    """
    at, points = polytope.num_points, polytope.points
    edges, count = _outline(polytope.faces.corners, chosen, at)
    tip = pick(points, jnp.minimum(at, _VERTICES - 1))

    def join(carry):
        k, free, number, new = carry
        one, two = _unpacked(read_rows(edges, jnp.minimum(k, _VERTICES - 1)), 2)
        added = once(_face((one, two, at), (pick(points, one), pick(points, two), tip)))
        needed = k < count
        added = added._replace(dist=jnp.where(needed, added.dist, jnp.inf))
        place, rest = _lowest(free)
        reused = place < _FACES
        place = jnp.where(reused, place, number)
        keep = needed | reused
        new = jtu.tree_map(lambda x, y: write_row(x, place, y, keep), new, added)
        return k + 1, rest, jnp.where(keep & ~reused, number + 1, number), new

    more = lambda carry: jnp.any((carry[0] < count) | (carry[1][0] | carry[1][1] != 0))
    start = jnp.zeros_like(count), chosen, polytope.num_faces, polytope.faces
    end = lax.while_loop(more, join, start)
    return end[3], end[2]


def _outline(corners, chosen, like):
    """Return the edges between faces that are chosen and others, `(_VERTICES, *batch)`,
    in the sense of the former, and how many they are."""
    last = corners.shape[0] - 1
    going = lambda carry: jnp.any((carry[0][0] | carry[0][1]) != 0)

    def sides(chosen):
        face, rest = _lowest(chosen)
        a, b, c = _unpacked(read_rows(corners, jnp.minimum(face, last)))
        return ((a, b), (b, c), (c, a)), face <= last, rest

    def mark(carry):
        each, exists, rest = sides(carry[0])
        marks = carry[1]
        for one, two in each:
            bits = read_rows(marks, one) | (1 << two)
            marks = write_row(marks, one, bits, exists)
        return rest, marks

    def collect(carry):
        each, exists, rest = sides(carry[0])
        _, edges, count = carry
        for one, two in each:
            open_ = exists & (((read_rows(marks, two) >> one) & 1) == 0)
            edges = write_row(edges, count, _packed((one, two)), open_)
            count = jnp.where(open_, count + 1, count)
        return rest, edges, count

    none = jnp.zeros((_VERTICES, *like.shape[1:]), like.dtype)
    marks = lax.while_loop(going, mark, (chosen, none))[1]
    start = chosen, none, jnp.zeros_like(like)
    _, edges, count = lax.while_loop(going, collect, start)
    return edges, jnp.minimum(count, _VERTICES)


# The same outside of kernels: all rows in one operation, without loops.


def _put_together(x, number, value, when):
    """Replace one row of each lane, where `when` holds."""
    return jnp.where((count_rows(x) == number) & when, value, x)


def _nearest_together(dist):
    """Return the row of the least distance."""
    return largest_row(-dist)


def _with_fan_together(polytope: _Polytope, chosen: tuple) -> tuple[_Faces, Any]:
    """Return what `_with_fan` returns. On an outline, an edge begins at each vertex; of
    several edges that begin at one, two are kept."""
    faces, at = polytope.faces, polytope.num_points
    ways, row = _outline_together(faces.corners, chosen), count_rows(faces.dist)
    words = tuple(_total(jnp.where(way != 0, 1 << count_rows(way), 0)) for way in ways)
    first, total = (_count_bits(word) for word in words)
    total = first + total
    low, high = chosen
    reused = _count_bits(low) + _count_bits(high)
    visible = _flagged(chosen, row)
    below = lambda word, k: _count_bits(word & ((1 << jnp.clip(k, 0, _HALF)) - 1))
    # The number of the new face in each row, if there is one.
    number = jnp.where(
        visible,
        below(low, row) + below(high, row - _HALF),
        reused + row - polytope.num_faces,
    )
    added = number < total
    new = visible | (row >= polytope.num_faces)
    second = number >= first
    place = jnp.where(second, number - first, number)
    begin = _nth_bit(jnp.where(second, words[1], words[0]), place)
    pick_way = lambda way: read_rows(way, begin)
    word = jnp.where(second, pick_way(ways[1]), pick_way(ways[0]))
    finish = 31 - lax.clz(word & -word)
    finish = jnp.where(word == 0, 0, finish)
    points = polytope.points
    tip = pick(points, jnp.minimum(at, _VERTICES - 1))
    fan = once(
        _face((begin, finish, at), (pick(points, begin), pick(points, finish), tip))
    )
    fan = fan._replace(dist=jnp.where(added, fan.dist, jnp.inf))
    due = new & (added | visible)
    grown = jtu.tree_map(lambda x, y: jnp.where(due, x, y), fan, faces)
    return grown, polytope.num_faces + jnp.maximum(total - reused, 0)


def _total(bits):
    return jnp.sum(bits, axis=0, keepdims=True, dtype=jnp.int32)


def _outline_together(corners, chosen: tuple) -> tuple[Any, Any]:
    """Return, for each vertex, the other ends of the edges of the outline that begin there,
    as bits: at most one in each of two integers."""
    row = count_rows(corners)
    visible = _flagged(chosen, row)
    a, b, c = _unpacked(corners)
    vertex = jnp.arange(_VERTICES, dtype=jnp.int32)
    vertex = vertex.reshape(-1, *(1 for _ in corners.shape))

    def bits(starts, ends):
        # Each directed edge belongs to one face, so that a sum joins the bits.
        found = 0
        for start, end in zip(starts, ends, strict=True):
            here = visible[None] & (start[None] == vertex)
            found += jnp.where(here, 1 << end[None], 0)
        return jnp.sum(found, axis=1, dtype=jnp.int32)

    forward, backward = bits((a, b, c), (b, c, a)), bits((b, c, a), (a, b, c))
    left = forward & ~backward
    one = left & -left
    rest = left & ~one
    return one, rest & -rest


def _flagged(chosen: tuple[Any, Any], row):
    """Return which rows are chosen, see `_as_bits`."""
    (low, high), first = chosen, row < _HALF
    word = jnp.where(first, low, high)
    return ((word >> jnp.where(first, row, row - _HALF)) & 1) == 1


def _count_bits(word):
    return lax.population_count(word)


def _nth_bit(word, n):
    """Return the place of a bit that is set: the one with `n` others below it."""
    place, left = jnp.zeros_like(n + word), n + 0 * word
    for size in (16, 8, 4, 2, 1):
        part = lax.shift_right_logical(word + 0 * place, place) & ((1 << size) - 1)
        count = _count_bits(part)
        beyond = left >= count
        place = jnp.where(beyond, place + size, place)
        left = jnp.where(beyond, left - count, left)
    return jnp.minimum(place, _VERTICES - 1)


def _as_bits(chosen) -> tuple[Any, Any]:
    """Return which rows are chosen, as bits of two integers."""
    bits = jnp.where(chosen, 1 << (count_rows(chosen) % _HALF), 0)
    return _total(bits[:_HALF]), _total(bits[_HALF:])


def _lowest(chosen: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
    """Return the first row that is chosen, `_FACES` or more if there is none, and the
    others."""
    low, high = chosen
    first = low != 0
    word = jnp.where(first, low, high)
    row = 31 - lax.clz(word & -word)
    row = jnp.where(first, row, jnp.where(word == 0, _FACES, row + _HALF))
    left = word & (word - 1)
    return row, (jnp.where(first, left, low), jnp.where(first, high, left))


def _nearest(dist):
    """Return the row of the least distance."""
    rows = count_rows(dist)
    while dist.shape[0] > 1:
        half = (dist.shape[0] + 1) // 2
        left = dist.shape[0] - half
        less = dist[half:] < dist[:left]
        join = lambda x, less=less, half=half, left=left: jnp.concatenate(
            [jnp.where(less, x[half:], x[:left]), x[left:half]]
        )
        dist, rows = join(dist), join(rows)
    return rows


# Distance of two convex polytopes: the algorithm of Gilbert, Johnson and Keerthi.
#
# The point of the difference $M = \{a - b\}$ that is nearest to the origin is sought on
# triangles of vertices of $M$, each of which leads nearer.
#
# Source: Gilbert, Johnson, Keerthi, *A fast procedure for computing the distance between
# complex objects in three-dimensional space*, 1988; the nearest point of a triangle as in
# Ericson, *Real-Time Collision Detection*, 2005, section 5.1.5.


_DISTANCE_STEPS = 32
# What Newton's method can begin with, as a share of the size of round shapes.
# Distances beyond this, as a share of the size, are told from a penetration by this
# search: the squares of the machine's rounding, times a safe number.
_SURE = 512.0


class Nearest(NamedTuple):
    """Points of $M$ whose convex hull holds the one nearest to the origin.

    - `corners`: three points, those that count first.
    - `count`: number of vertices that hold the nearest point: 1, 2 or 3.
    - `outside`: true if the origin is outside of $M$.
    """

    corners: tuple[Corners, ...]
    count: Any
    outside: Any


class Search(NamedTuple):
    """A triangle of points of $M$ near the origin.

    - `corners`, `points`: the points, as those of the shapes and as their differences.
    - `steps`: number of steps.
    - `done`: true if no more are needed.
    - `sure`: true if the origin is certainly outside. Shapes that can touch along faces
        must also be farther apart than asked for: nearer, the faces are needed.
    """

    corners: tuple[Corners, Corners, Corners]
    points: tuple[Vec3, Vec3, Vec3]
    steps: Any
    done: Any
    sure: Any


def nearest_triangle(
    placed: Placed, corners: tuple[Corners, Corners, Corners], reach, when
) -> Search:
    """Return vertices of $M$ nearest to the origin, if this is outside of it.

    **Arguments:**

    - `corners`: three vertices.
    - `reach`: distance beyond which it is enough to know that it is exceeded.
    - `when`: condition under which it is computed; otherwise `corners` are returned.
    """
    a, b, c = map(placed.difference, corners)
    none = jnp.zeros_like(when, jnp.int32)
    first = Search(corners, (a, b, c), none, ~when, when & ~when)
    going = lambda search: jnp.any(~search.done)
    return lax.while_loop(going, lambda search: _nearer(placed, reach, search), first)


def _nearer(placed: Placed, reach, search: Search) -> Search:
    """Return the search after one more vertex."""
    old = search.corners, search.points
    point = combine(triangle_weights(*search.points), search.points)
    square = point.dot(point)
    corners = once(placed.support(-point, search.corners[0]))
    vertex = once(placed.difference(corners))
    eps = float(jnp.finfo(square.dtype).eps)
    along = point.dot(vertex)
    largest = jnp.maximum(square, vertex.dot(vertex))
    rounding = 8.0 * eps * largest
    if placed.is_round:
        rounding = rounding + _ROUND_SHARE * jnp.sqrt(square * largest)
    # A comparison that is true for what is not a number too.
    end = ~(square - along > rounding) | (search.steps >= _DISTANCE_STEPS)
    # The plane through the vertex lies between the origin and the set.
    beyond = (along > 0.0) & (along * along > reach * reach * square)
    sure = beyond
    if not placed.is_flat:
        sure = sure | (end & (along > 0.0) & (square > _SURE * eps * largest))
    best, least = old, square
    for k in range(3):
        swap = lambda items, new, k=k: (*items[:k], new, *items[k + 1 :])
        other = swap(old[0], corners), swap(old[1], vertex)
        nearest = combine(triangle_weights(*other[1]), other[1])
        better = once(nearest.dot(nearest) < least)
        choose = lambda x, y, better=better: jnp.where(better, x, y)
        best = jtu.tree_map(choose, other, best)
        least = jnp.minimum(least, nearest.dot(nearest))
    a, b, c = search.points
    end = once(end | beyond | _holds_origin(a, b, c, vertex))
    stays = once(search.done | end)
    keep = lambda x, y: jnp.where(stays, y, x)
    corners, points = jtu.tree_map(keep, best, old)
    sure = search.sure | (sure & ~search.done)
    done = stays | ~(least < square)
    return Search(corners, points, search.steps + 1, done, sure)


def _holds_origin(a: Vec3, b: Vec3, c: Vec3, d: Vec3):
    """Return whether the origin lies in a tetrahedron."""
    side = b.cross(c)
    first, last = side.dot(d), -side.dot(a)
    across = a.cross(d)
    second, third = across.dot(c), -across.dot(b)
    least = jnp.minimum(jnp.minimum(first, second), jnp.minimum(third, last))
    most = jnp.maximum(jnp.maximum(first, second), jnp.maximum(third, last))
    return (least > 0.0) | (most < 0.0)


def combine(weights, points) -> Vec3:
    """Return a weighted sum of three points."""
    a, b, c = (p * w for p, w in zip(points, weights, strict=True))
    return (a + b) + c


def triangle_weights(a: Vec3, b: Vec3, c: Vec3) -> tuple[Any, Any, Any]:
    """Return the weights of three points whose weighted mean is the point of their
    triangle that is nearest to the origin. Triangles may be segments or points."""
    ab, ac = b - a, c - a
    ab_a, ac_a, ab_b, ac_b = -ab.dot(a), -ac.dot(a), -ab.dot(b), -ac.dot(b)
    ab_c, ac_c = -ab.dot(c), -ac.dot(c)
    of_c = ab_a * ac_b - ab_b * ac_a
    of_b = ab_c * ac_a - ab_a * ac_c
    of_a = ab_b * ac_c - ab_c * ac_b
    zero = jnp.zeros_like(of_a)
    one = zero + 1.0
    safe = lambda x: jnp.where(x > 0.0, x, 1.0)
    on_ab = ab_a / safe(ab_a - ab_b)
    on_ac = ac_a / safe(ac_a - ac_c)
    from_b, from_c = ac_b - ab_b, ab_c - ac_c
    on_bc = from_b / safe(from_b + from_c)
    total = safe(of_a + of_b + of_c)
    cases = (
        ((ab_a <= 0.0) & (ac_a <= 0.0), (one, zero, zero)),
        ((ab_b >= 0.0) & (ac_b <= ab_b), (zero, one, zero)),
        ((of_c <= 0.0) & (ab_a >= 0.0) & (ab_b <= 0.0), (1.0 - on_ab, on_ab, zero)),
        ((ac_c >= 0.0) & (ab_c <= ac_c), (zero, zero, one)),
        ((of_b <= 0.0) & (ac_a >= 0.0) & (ac_c <= 0.0), (1.0 - on_ac, zero, on_ac)),
        ((of_a <= 0.0) & (from_b >= 0.0) & (from_c >= 0.0), (zero, 1.0 - on_bc, on_bc)),
    )
    first, second, third = of_a / total, of_b / total, of_c / total
    for holds, weights in reversed(cases):
        first = jnp.where(holds, weights[0], first)
        second = jnp.where(holds, weights[1], second)
        third = jnp.where(holds, weights[2], third)
    return first, second, third


def sorted_vertices(
    corners: tuple[Corners, ...], points: tuple[Vec3, ...], outside
) -> Nearest:
    """Bring the vertices that hold the nearest point to the front. All count where the
    origin is inside."""
    weights = triangle_weights(*points)
    return counted_first(corners, [(x > 0.0) | ~outside for x in weights], outside)


def counted_first(corners: tuple[Corners, ...], counts: list, outside) -> Nearest:
    """Bring the vertices that count to the front; the last of them is repeated."""
    count = sum(x.astype(jnp.int32) for x in counts)
    pick = lambda first, one, two: jtu.tree_map(
        lambda x, y: jnp.where(first, x, y), one, two
    )
    a, b, c = corners
    first = pick(counts[0], a, pick(counts[1], b, c))
    last = pick(counts[2], c, pick(counts[1], b, a))
    second = pick(count == 3, b, last)
    return Nearest((first, second, last), count, outside)
