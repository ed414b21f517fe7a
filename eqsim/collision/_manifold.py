"""Several contact points of two shapes that touch along a face or an edge.

First the overlap of two polygons in a plane; then hulls on planes; then pairs of solids.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._primitive import are_rows_together
from ..kinematics.link_motion import Pose
from ..model import GeomKind
from ..spatial import Vec3
from ._convex import computed_where, convex_search, single_point
from ._convex_shapes import Core, pick, Placed
from ._direction_tables import count_rows, read_rows, write_row
from ._features import nearest_numbers, Solid, solid, Touching, touching, Vertices
from .points import Point, Shape, unit, unit_area
from .primitives import capsule_cylinder


# The overlap of two convex polygons, or of a segment and one, in a plane.
#
# The subject is cut by the line through each side of the base, one after the other
# (Sutherland and Hodgman, *Reentrant polygon clipping*, 1974). Each corner of what is left is
# told by the two lines that cross there, such that its place can be computed again, with
# derivatives.
#
# Of more than four corners, MuJoCo keeps the four that a greedy search for the quadrilateral
# of largest area ends with.


class Plane(NamedTuple):
    """Coordinates in a plane: a point of it, and its normal."""

    origin: Vec3
    normal: Vec3

    @property
    def axes(self) -> tuple[Vec3, Vec3]:
        """Two unit vectors in the plane; with the normal they are right-handed."""
        x, y, z = map(jnp.abs, self.normal)
        zero, one = jnp.zeros_like(x), jnp.ones_like(x)
        flat = (x <= y) & (x <= z)
        other = Vec3(jnp.where(flat, one, zero), jnp.where(flat, zero, one), zero)
        first = unit(other - (self.normal * self.normal.dot(other)))
        return first, self.normal.cross(first)

    def coordinates(self, points: Vec3) -> tuple[Any, Any]:
        """Return the coordinates of the projections of points."""
        arm = points - self.origin
        first, second = self.axes
        return first.dot(arm), second.dot(arm)

    def height(self, points: Vec3):
        """Return the distances of points from the plane."""
        return self.normal.dot(points - self.origin)


class Outline(NamedTuple):
    """A polygon: its corners, `(n, *batch)`, of which the first `count` exist.

    - `x`, `y`: coordinates.
    - `z`: height of the corner of the subject, which need not be planar, over the plane.
    - `before`, `after`: numbers of the lines that cross there. The first `n / 2` belong to
        the subject, the others to the base.
    """

    x: Any
    y: Any
    z: Any
    before: Any
    after: Any
    count: Any


def overlap(base: tuple, subject: tuple, counts: tuple, tolerance: float) -> Outline:
    """Return the part of a subject that is inside of a base; both clockwise.

    **Arguments:**

    - `base`, `subject`: coordinates of the corners, `(size, *batch)` each; those of the
        subject with heights over the plane of the base.
    - `counts`: numbers of corners of base and subject.
    - `tolerance`: points count as inside up to this distance.
    """
    size = base[0].shape[0]
    double = lambda x: jnp.concatenate([x, jnp.zeros_like(x)])
    rows = count_rows(jnp.zeros((2 * size, *counts[1].shape[1:]))) + 0 * counts[1]
    before = jnp.where(rows == 0, counts[1] - 1, rows - 1)
    x, y, z = (x + 0.0 * counts[0].astype(x.dtype) for x in map(double, subject))
    start = Outline(x, y, z, before, rows, counts[1])

    def cut(carry):
        k, outline = carry
        active = k < counts[0]
        side = side_of(base, counts[0], jnp.minimum(k, counts[0] - 1))
        cut = _cut(outline, side, k + size, active, tolerance)
        choose = lambda x, y: jnp.where(active, x, y)
        return k + 1, jtu.tree_map(choose, cut, outline)

    more = lambda carry: jnp.any((carry[0] < counts[0]) & (carry[1].count > 0))
    return lax.while_loop(more, cut, (jnp.zeros_like(counts[0]), start))[1]


class Side(NamedTuple):
    """A line: a point, and the unit vector to the side that is kept."""

    x: Any
    y: Any
    inward_x: Any
    inward_y: Any

    def height(self, x, y):
        """Return the distance of a point from the line, positive on the side kept."""
        return (x - self.x) * self.inward_x + (y - self.y) * self.inward_y

    def holds(self, ends: list, tolerance):
        """Return whether both ends of a side of another polygon lie on this line."""
        one, two = (jnp.abs(self.height(*end)) <= tolerance for end in ends)
        return one & two

    @property
    def is_upper(self):
        """True for one of two opposite sides of a polygon."""
        return 0.83 * self.inward_x + 0.56 * self.inward_y < 0.0


def side_of(base: tuple, count, number) -> Side:
    """Return the line through a side of a polygon of `count` corners."""
    following = jnp.where(number + 1 < count, number + 1, 0)
    x, y = (read_rows(c, number) for c in base)
    along_x, along_y = (
        read_rows(base[0], following) - x,
        read_rows(base[1], following) - y,
    )
    square = along_x**2 + along_y**2
    positive = square > 0.0
    scale = jnp.where(positive, 1.0 / jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)
    return Side(x, y, along_y * scale, -along_x * scale)


_ALIGNED = 2.0**-22
"""Distance of aligned sides, relative to the size of a polygon. Vertices of meshes are
rounded to single precision."""


def aligned_lines(base: tuple, subject: tuple, counts: tuple, lines):
    """Replace lines by those of the other polygon that lie on them, where these are chosen:
    those of the base on its upper sides, those of the subject on lower sides. See `Outline`
    for the numbers.

    A corner where aligned sides meet moves with the one polygon in one direction and with
    the other in the opposite direction. If all aligned sides were those of one polygon, the
    overlap would move with it, instead of half as far.

    **Arguments:**

    - `base`, `subject`, `counts`: see `overlap`.
    - `lines`: numbers of lines, `(n, *batch)`.
    """
    size = base[0].shape[0]
    most = [jnp.max(jnp.abs(c), axis=0, keepdims=True) for c in base]
    small = _ALIGNED * (most[0] + most[1])
    of_base = lines >= size
    number = jnp.where(of_base, lines - size, lines)
    ends = _ends(subject, counts[1], jnp.where(of_base, 0, number))
    side = side_of(base, counts[0], jnp.where(of_base, number, 0))

    def visit(carry):
        k, found = carry
        here, there = (jnp.minimum(k, count - 1) for count in counts)
        other = side_of(base, counts[0], here)
        to_base = other.holds(ends, small) & other.is_upper & ~of_base
        to_base = to_base & (k < counts[0])
        own = side.holds(_ends(subject, counts[1], there), small)
        to_subject = own & ~side.is_upper & of_base & (k < counts[1])
        found = jnp.where(to_base, k + size, jnp.where(to_subject, k, found))
        return k + 1, found

    more = lambda carry: jnp.any(carry[0] < jnp.maximum(*counts))
    start = jnp.zeros_like(counts[0] + counts[1]), lines
    return lax.while_loop(more, visit, start)[1]


def _ends(polygon: tuple, count, number) -> list:
    """Return the coordinates of both ends of a side."""
    following = jnp.where(number + 1 < count, number + 1, 0)
    return [[read_rows(c, k) for c in polygon[:2]] for k in (number, following)]


def _cut(old: Outline, side: Side, line, active, tolerance) -> Outline:
    """Return what is left of a polygon on one side of a line."""
    limit = jnp.where(active, old.count, 0)

    def edge(k, here):
        """Return the corner at which an edge crosses the line, if it does, and the next
        corner, if it is left."""
        following = jnp.where(k + 1 < old.count, k + 1, 0)
        there = jtu.tree_map(lambda x: read_rows(x, following), old[:-1])
        one, two = side.height(*here[:2]), side.height(*there[:2])
        inside, enters = one > -tolerance, two > -tolerance
        across = inside ^ enters
        rise = two - one
        share = -one / jnp.where(rise == 0.0, 1.0, rise)
        crosses = across & (rise != 0.0) & (share >= 0.0) & (share <= 1.0) & (k < limit)
        place = (p + share * (q - p) for p, q in zip(here[:3], there[:3], strict=True))
        lines = jnp.where(enters, line, here[4]), jnp.where(enters, here[4], line)
        return (*place, *lines), crosses, there, enters & (k < limit)

    if are_rows_together():
        corner, crosses, there, enters = edge(count_rows(old.x), old[:-1])
        twice = lambda x, y: jnp.stack([x, y], 1).reshape(-1, *x.shape[1:])
        return _chosen(jtu.tree_map(twice, corner, there), twice(crosses, enters))

    def visit(carry):
        k, last, new = carry
        corner, crosses, there, enters = edge(k, last)
        new = _with_corner(new, corner, crosses)
        return k + 1, there, _with_corner(new, there, enters)

    none = old._replace(count=jnp.zeros_like(old.count))
    first = jtu.tree_map(lambda x: x[:1], old[:-1])
    more = lambda carry: jnp.any(carry[0] < limit)
    zero = jnp.zeros_like(old.count)
    return lax.while_loop(more, visit, (zero, first, none))[2]


def _chosen(corners: tuple, chosen) -> Outline:
    """Return an outline of half as many rows, of the chosen ones of some corners."""
    size, rows = chosen.shape[0] // 2, count_rows(chosen)
    place = jnp.cumsum(chosen, axis=0, dtype=jnp.int32) - 1
    others = jnp.indices(chosen.shape, dtype=jnp.int32, sparse=True)[1:]
    place = jnp.where(chosen, place, chosen.shape[0])
    number = jnp.zeros((size, *chosen.shape[1:]), jnp.int32)
    number = number.at[(place, *others)].set(rows, mode="drop")
    count = jnp.sum(chosen, axis=0, keepdims=True, dtype=jnp.int32)
    x, y, z, before, after = (read_rows(x, number) for x in corners)
    return Outline(x, y, z, before, after, count)


def _with_corner(outline: Outline, corner: tuple, when) -> Outline:
    count = outline.count
    x, y, z, before, after = (
        write_row(old, count, value, when)
        for old, value in zip(outline[:-1], corner, strict=True)
    )
    return Outline(x, y, z, before, after, count + jnp.where(when, 1, 0))


def kept(outline: Outline, keep) -> Outline:
    """Return the corners that are kept, `(n, *batch)`."""
    new = outline._replace(count=jnp.zeros_like(outline.count))
    if are_rows_together():
        chosen = keep & (count_rows(keep) < outline.count)
        none = jnp.zeros_like(chosen)
        double = lambda x: jnp.concatenate([x, x])
        corners = tuple(map(double, outline[:-1]))
        return _chosen(corners, jnp.concatenate([chosen, none]))

    def visit(carry):
        k, new = carry
        corner = jtu.tree_map(lambda x: read_rows(x, k), outline[:-1])
        when = read_rows(keep, k) & (k < outline.count)
        return k + 1, _with_corner(new, corner, when)

    more = lambda carry: jnp.any(carry[0] < outline.count)
    return lax.while_loop(more, visit, (jnp.zeros_like(outline.count), new))[1]


class _Quad(NamedTuple):
    """Search for four corners: the current and the best ones, the best area, which corner
    is moved next (0: the fourth, 1: the third, 2: the second), and how often the first
    one was moved."""

    corners: tuple[Any, Any, Any, Any]
    best: tuple[Any, Any, Any, Any]
    area: Any
    moved: Any


def four_corners(x, y, count, *, with_first: bool = False) -> tuple[Any, Any, Any, Any]:
    """Return four corners of a polygon: all it has, or those of a large quadrilateral.

    **Arguments:**

    - `with_first`: true to keep the first corner.
    """
    tries = jnp.minimum(count, 1) if with_first else count
    last, same = x.shape[0] - 1, 1024 * float(jnp.finfo(x.dtype).eps)
    point = lambda k: [read_rows(c, jnp.minimum(k, last)) for c in (x, y)]
    following = lambda k: jnp.where(k + 1 < count, k + 1, 0)

    def area(a, b, c, d):
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = map(point, (a, b, c, d))
        return jnp.abs((ax - cx) * (by - dy) - (ay - cy) * (bx - dx))

    def step(quad: _Quad) -> _Quad:
        a, b, c, d = quad.corners
        moves = [quad.moved == k for k in range(3)]
        ahead = lambda move, k: jnp.where(move, following(k), k)
        tried = a, ahead(moves[2], b), ahead(moves[1], c), ahead(moves[0], d)
        size = area(*tried)
        active = a < tries
        # Rounding does not choose between equal areas.
        better = active & (size > quad.area + same * quad.area)
        choose = lambda when, new, old: jtu.tree_map(
            lambda p, q: jnp.where(when, p, q), new, old
        )
        corners = choose(better, tried, quad.corners)
        best = choose(better, tried, quad.best)
        # The first corner moves on, and pushes those that it reaches.
        stuck = active & ~better & moves[0]
        push_b = b == a
        pushed_b = jnp.where(push_b, following(b), b)
        push_c = push_b & (c == pushed_b)
        pushed_c = jnp.where(push_c, following(c), c)
        pushed_d = jnp.where(push_c & (d == pushed_c), following(d), d)
        corners = choose(stuck, (a + 1, pushed_b, pushed_c, pushed_d), corners)
        onward = jnp.where(moves[0], jnp.where(better, 1, 0), quad.moved)
        onward = jnp.where(moves[1] & ~better, 2, onward)
        onward = jnp.where(moves[2] & ~better, 0, onward)
        return _Quad(corners, best, jnp.where(better, size, quad.area), onward)

    zero = jnp.zeros_like(count)
    many = count > 4
    one, two, three = (jnp.minimum(k, jnp.maximum(count - 1, 0)) for k in (1, 2, 3))
    first = jnp.where(many, zero, count)
    best = zero, one, two, three
    start = _Quad((first, one, two, three), best, area(*best), zero)
    more = lambda quad: jnp.any(quad.corners[0] < tries)
    return lax.while_loop(more, step, start).best


# Points at which convex hulls touch planes, as in MuJoCo.
#
# Of the polygons that meet at the lowest vertex, the one whose outer normal is most nearly
# opposite to that of the plane is taken. Its corners are the points; of more than four,
# `four_corners` are left, one of which is the lowest vertex. Those above the origin of the
# mesh, its center of mass, are left out.
#
# MuJoCo 4.0: `mjc_PlaneConvex`, measured with the Python package.


def plane_mesh(
    kinds: tuple[GeomKind, GeomKind], one: Shape, two: Shape, margin: Any
) -> list[Point]:
    """Return up to four points of hulls on planes; those beyond the margin are
    not valid."""
    normal = one.pose.rot.columns[2]
    core = Core(kinds[1], two.size, two.hulls)
    down = two.pose.rot.T @ -normal
    numbers, count = _lowest_vertices(*lax.stop_gradient((solid(core), down)))
    vertices = two.pose.point(core.vertex(numbers))
    dist = normal.dot(vertices - one.pose.pos)
    pos = vertices - (normal * (0.5 * dist))
    below = normal.dot(vertices - two.pose.pos) < 0.0
    valid = (count_rows(dist) < count) & (dist < margin) & below
    row = lambda x, k: x[k : k + 1]
    return [
        Point(
            row(dist, k), Vec3(*(row(x, k) for x in pos)), normal, None, row(valid, k)
        )
        for k in range(4)
    ]


def _lowest_vertices(hull: Solid, down: Vec3) -> tuple[Any, Any]:
    """Return the vertices that touch, `(4, *batch)`, and how many they are."""
    lowest = hull.core.support(down).number
    start, count = hull.meeting(lowest)

    def visit(carry):
        k, best, most = carry
        polygon = hull.polygon(start + jnp.minimum(k, count - 1))
        active = k < count
        along = hull.facet(polygon, (lowest, lowest, lowest), active).normal.dot(down)
        better = active & ((k == 0) | (along > most))
        best, most = jnp.where(better, polygon, best), jnp.where(better, along, most)
        return k + 1, best, most

    more = lambda carry: jnp.any(carry[0] < count)
    none = jnp.zeros_like(count)
    polygon = lax.while_loop(more, visit, (none, none, 0.0 * down.x))[1]
    facet = hull.facet(polygon, (lowest, lowest, lowest), count > 0)
    vertices, corners = hull.corners_from(polygon, lowest, hull.most)
    places = hull.core.vertex(vertices)
    origin = Vec3(*(x[:1] for x in places))
    x, y = Plane(origin, facet.normal).coordinates(places)
    four = four_corners(x, y, corners, with_first=True)
    rows = jnp.minimum(jnp.concatenate(four), hull.most - 1)
    return read_rows(vertices, rows), corners


# Several points of two solids that touch along a face or an edge, as in MuJoCo.
#
# What touches is found by `touching`. Then points are taken from the overlap of a polygon,
# the base, with its counterpart on the other solid, the subject:
#
# - *Two polygons.* The base is that of the first solid. The subject is projected onto its
#   plane and clipped by its sides. From each corner of the overlap, the distance to the plane
#   of the subject is measured along its normal; the contact normal is opposite to that.
# - *An edge and a polygon.* The edge is clipped by the planes through the sides of the polygon
#   along its normal. The points are the ends of what is left, and the distance is that from
#   the plane. An end that was clipped counts twice if the other end is beyond the margin.
# - *A cylinder.* Its faces are polygons, and the line of its lateral surface that is nearest
#   is an edge, see `_solids`.
# - *A capsule and a polygon.* The edge is the axis, moved across itself by the radius and
#   half of the margin along the contact normal of the single point. The half margin is added
#   to the distance again.
#
# Points beyond the margin are left out; of more than four, `four_corners` are left. If none is
# left, or nothing touches along a face or an edge, there is a single point.
#
# The choice of corners and sides has no derivatives; the points are differentiable functions
# of the vertices of these.


class Corners(NamedTuple):
    """Origin of points, `(4, *batch)` each: a line, and the plane that cuts it.

    - `line`: number of a side of the base or the subject, or of the end of an edge.
    - `of_base`: true if the line is a side of the base.
    - `plane`: side of the base through which the plane goes.
    - `cut`: true if there is a plane; otherwise the point is the start of the line.
    - `lift`: added to the distance of corners of the base; zero if the subject is planar.
    - `valid`: true if there is a point.
    """

    line: Any
    of_base: Any
    plane: Any
    cut: Any
    lift: Any
    valid: Any


class _Meeting(NamedTuple):
    """Base and subject in the frame of the first solid.

    - `base`, `base_count`: corners of the base, clockwise seen from outside.
    - `outward`: normal of the base.
    - `subject`, `subject_count`, `subject_outward`: the same of the subject; None: only
        edges can touch.
    - `edge`: ends of the edge.
    - `has_edge`: true if the edge is unique, which it is not where a face of a cylinder
        touches.
    - `back`: added to distances from edges.
    """

    base: Vec3
    base_count: Any
    outward: Vec3
    subject: Vec3 | None
    subject_count: Any
    subject_outward: Vec3
    edge: tuple[Vec3, Vec3]
    has_edge: Any
    back: Any


def polytope_points(
    kinds: tuple[GeomKind, GeomKind], one: Shape, two: Shape, margin: Any
) -> list[Point]:
    """Return up to four points of two convex shapes; two if the first is a capsule.

    **Arguments:**

    - `kinds`: kinds of the shapes, each `CAPSULE`, `CYLINDER`, `BOX` or `MESH`; meshes with
        polygons. A capsule comes first.
    - `margin`: distance beyond which points are not asked for.
    """
    search = convex_search(kinds, one, two, margin)
    single, numbers = single_point(search, one), nearest_numbers(search)
    approach = Approach(search.placed, numbers, search.normal)
    return several_points(approach, single, one, margin)


class Approach(NamedTuple):
    """Two solids in the frame of the first one, and where they are nearest.

    - `vertices`: three of each solid.
    - `normal`: direction from the first to the second solid.
    """

    placed: Placed
    vertices: tuple[Vertices, Vertices]
    normal: Vec3


def several_points(
    approach: Approach, single: Point, one: Shape, margin: Any
) -> list[Point]:
    """Return the points of a face or an edge, or the single one if there are none.

    **Arguments:**

    - `single`: the deepest point.
    - `one`: the first solid.
    """
    size = 2 if approach.placed.first.kind is GeomKind.CAPSULE else 4

    def several(given, _):
        own, margin = given
        points, valid = _several(own, margin)
        return jtu.tree_map(lambda x: x[:size], (points, valid))

    zero = jnp.zeros((size, *single.dist.shape[1:]), single.dist.dtype)
    nowhere = Vec3(zero, zero, zero)
    none = (zero, nowhere, nowhere), jnp.zeros(zero.shape, bool)
    near = lax.stop_gradient(single.dist) < margin
    (dist, pos, normal), valid = computed_where(near, several, (approach, margin), none)
    valid = valid & near
    many = valid[:1]
    points = []
    for k in range(size):
        row = lambda x, k=k: x[k : k + 1]
        choose = lambda x, y, k=k: jnp.where(row(valid), row(x), y)
        place, facing = one.pose.point(pos), one.pose.rot @ normal
        own = Point(dist, place, facing)
        chosen = [jtu.tree_map(choose, a, b) for a, b in zip(own[:3], single[:3])]
        exists = jnp.ones_like(many) if k == 0 else row(valid)
        points.append(Point(*chosen, valid=exists))
    return points


def _several(approach: Approach, margin):
    """Return distances, positions and normals of up to four points in the frame of the
    first shape, and which exist."""
    placed, normal = approach.placed, approach.normal
    fixed = lax.stop_gradient(placed)
    solids = solid(fixed.first), solid(fixed.second)
    found = touching(fixed, solids, approach.vertices, lax.stop_gradient(normal))
    meeting = _meeting(placed, found, normal, margin)
    corners = _overlap_corners(lax.stop_gradient(meeting), found, margin)
    point, outward = _evaluated(meeting, found, corners)
    return (*point, outward), corners.valid


def _meeting(placed: Placed, found: Touching, normal: Vec3, margin) -> _Meeting:
    """Return what touches, as functions of the poses and vertices."""
    solids = solid(placed.first), solid(placed.second)
    size = max(each.most for each in solids)
    offset = placed.offset
    second_is_base = found.first_edge
    choose = lambda x, y: Vec3(
        *(jnp.where(second_is_base, p, q) for p, q in zip(x, y, strict=True))
    )
    second, second_count = solids[1].corners(found.polygons[1], size)
    second = offset.point(second)
    second_out = _normal(second)
    base, count, outward, subject = second, second_count, second_out, None
    if solids[0].polygons is not None:
        first, first_count = solids[0].corners(found.polygons[0], size)
        base, subject = choose(second, first), second
        count = jnp.where(second_is_base, second_count, first_count)
        outward = choose(second_out, _normal(first))
    back = jnp.zeros_like(outward.x)
    edge, back_normal = [], offset.rot.T @ -normal
    for end in found.ends:
        # Numbers of vertices of the other solid are replaced by one that exists.
        one = solids[0].edge_place(jnp.where(found.first_edge, end, 0), normal)
        two = solids[1].edge_place(jnp.where(found.second_edge, end, 0), back_normal)
        if placed.first.kind is GeomKind.CAPSULE:
            across = Vec3(normal.x, normal.y, jnp.zeros_like(normal.z))
            one = one + (across * (placed.first.radius + 0.5 * margin))
            back = back * 0.0 + 0.5 * margin
        edge.append(choose(one, offset.point(two)))
    has_edge = jnp.where(
        found.first_edge, solids[0].has_edge(normal), solids[1].has_edge(back_normal)
    )
    subject_parts = subject, second_count, second_out
    return _Meeting(base, count, outward, *subject_parts, tuple(edge), has_edge, back)


def _normal(points: Vec3) -> Vec3:
    """Return the outer normal of a polygon whose corners turn clockwise; the last one may
    be repeated."""
    origin = Vec3(*(x[:1] for x in points))
    arms = points - origin
    one, two = (Vec3(*(x[rows] for x in arms)) for rows in (slice(-1), slice(1, None)))
    area = two.cross(one)
    size = jnp.max(arms.dot(arms), axis=0, keepdims=True)
    return unit_area(Vec3(*(jnp.sum(x, axis=0, keepdims=True) for x in area)), size)


def _overlap_corners(meeting: _Meeting, found: Touching, margin) -> Corners:
    """Return where the points come from; without derivatives."""
    plane = Plane(_first(meeting.base), meeting.outward)
    base = plane.coordinates(meeting.base)
    corners = _clipped_edge(meeting, found, plane, base, margin)
    if meeting.subject is None:
        return corners
    faces = _clipped_face(meeting, found, plane, base, margin)
    choose = lambda x, y: jnp.where(found.faces, x, y)
    return jtu.tree_map(choose, faces, corners)


def _clipped_face(
    meeting: _Meeting, found: Touching, plane: Plane, base: tuple, margin
) -> Corners:
    assert meeting.subject is not None, "both solids have faces"
    size = base[0].shape[0]
    both_counts = meeting.base_count, meeting.subject_count
    counts = tuple(jnp.where(found.faces, count, 0) for count in both_counts)
    subject = *plane.coordinates(meeting.subject), plane.height(meeting.subject)
    outline = overlap(base, subject, counts, _tolerance(base[0]))
    outline = kept(outline, outline.z <= margin)
    four = four_corners(outline.x, outline.y, outline.count)
    numbers = jnp.concatenate(four)
    lines = [read_rows(x, numbers) for x in (outline.before, outline.after)]
    lines = aligned_lines(base, subject, counts, jnp.concatenate(lines))
    before, after = lines[:4], lines[4:]
    base_before, base_after = before >= size, after >= size
    both = base_before & base_after
    # The line is a side of the subject if there is one; two of its sides meet in a corner,
    # at which the second one starts.
    line = jnp.where(both, before, jnp.where(base_before, after, before))
    line = jnp.where(base_before | base_after, line, after)
    plane_line = jnp.where(both, after, jnp.where(base_before, before, after))
    valid = count_rows(numbers) < outline.count
    number = lambda x: jnp.where(x >= size, x - size, x)
    cut = base_before | base_after
    lift = jnp.where(both, _lift(meeting, plane, outline, numbers), 0.0)
    return Corners(number(line), both, number(plane_line), cut, lift, valid)


def _lift(meeting: _Meeting, plane: Plane, outline: Outline, numbers):
    """Return how far the subject is from its plane at corners of the overlap. Polygons of
    meshes are merged from triangles, and not exactly planar."""
    assert meeting.subject is not None, "both solids have faces"
    x, y, z = (read_rows(each, numbers) for each in outline[:3])
    first, second = plane.axes
    foot = plane.origin + ((first * x) + (second * y))
    own = meeting.subject_outward
    facing = -own.dot(meeting.outward)
    return z * facing - own.dot(foot - _first(meeting.subject))


def _clipped_edge(
    meeting: _Meeting, found: Touching, plane: Plane, base: tuple, margin
) -> Corners:
    """Clip an edge between two shares of its length."""
    ends = [plane.coordinates(end) for end in meeting.edge]
    count, tolerance = meeting.base_count, _tolerance(base[0])
    edges = (found.first_edge | found.second_edge) & meeting.has_edge
    last = jnp.where(edges, count, 0)

    def visit(carry):
        k, start, end, planes, left = carry
        here = jnp.minimum(k, count - 1)
        side = side_of(base, count, here)
        first, second = (side.height(*each) for each in ends)
        rise = second - first
        share = -first / jnp.where(rise == 0.0, 1.0, rise)
        # Of two ends that lie on opposite sides, one moves with the edge.
        outside = side.is_upper & (jnp.abs(rise) > 2.0 * tolerance)
        limit = jnp.where(outside, tolerance, -tolerance)
        inside = [first + rise * at > limit for at in (start, end)]
        active = (k < last) & left
        cut = active & (inside[0] ^ inside[1])
        at_start, at_end = cut & inside[1], cut & inside[0]
        start, end = jnp.where(at_start, share, start), jnp.where(at_end, share, end)
        planes = jnp.where(at_start, k, planes[0]), jnp.where(at_end, k, planes[1])
        return k + 1, start, end, planes, left & ~(active & ~(inside[0] | inside[1]))

    more = lambda carry: jnp.any(carry[0] < last)
    zero, length = jnp.zeros_like(count), jnp.zeros_like(plane.normal.x)
    start = zero, length, length + 1.0, (zero - 1, zero - 1), edges
    _, *shares, planes, left = lax.while_loop(more, visit, start)
    heights = [plane.height(end) for end in meeting.edge]
    rise = heights[1] - heights[0]
    near = [left & (heights[0] + rise * at + meeting.back <= margin) for at in shares]
    # An end that was cut counts twice if it is the only one.
    line = jnp.concatenate([jnp.where(near[0], 0, 1), jnp.where(near[1], 1, 0)])
    chosen = jnp.where(line == 0, planes[0], planes[1])
    alone = jnp.where(near[0], planes[0], planes[1]) >= 0
    valid = [near[0] | near[1], (near[0] & near[1]) | ((near[0] | near[1]) & alone)]
    pad = lambda x: jnp.concatenate([x, x])
    cut, never = chosen >= 0, jnp.zeros_like(line, bool)
    valid = jnp.concatenate([*valid, *[near[0] & ~near[0]] * 2])
    plane_number = jnp.maximum(chosen, 0)
    lift = pad(jnp.zeros_like(jnp.concatenate(shares)))
    return Corners(pad(line), pad(never), pad(plane_number), pad(cut), lift, valid)


def _evaluated(
    meeting: _Meeting, found: Touching, corners: Corners
) -> tuple[tuple[Any, Vec3], Vec3]:
    """Return distances and positions of points, `(4, *batch)`, and their normals."""
    start, end = _segments(meeting, found, corners)
    count = meeting.base_count
    following = jnp.where(corners.plane + 1 < count, corners.plane + 1, 0)
    on_plane = pick(meeting.base, corners.plane)
    across = (pick(meeting.base, following) - on_plane).cross(meeting.outward)
    first, second = across.dot(start - on_plane), across.dot(end - on_plane)
    fall = first - second
    use = corners.cut & (fall != 0.0)
    share = jnp.where(use, first / jnp.where(use, fall, 1.0), 0.0)
    point = start + ((end - start) * share)
    outward = meeting.outward
    height = outward.dot(point - _first(meeting.base))
    foot = point - (outward * height)
    # An edge and a polygon.
    dist = height + meeting.back
    middle = ((point + foot) + (outward * meeting.back)) * 0.5
    facing = jnp.where(found.first_edge, -1.0, 1.0)
    normal = outward * facing
    if meeting.subject is not None:
        own = meeting.subject_outward
        # Points of the subject are not exactly in its plane, see `_lift`.
        origin = _first(meeting.subject)
        outer = (point - origin) * jnp.where(corners.of_base, 0.0, 1.0)
        away = own.dot((foot - origin) - outer) + corners.lift
        choose = lambda x, y: jnp.where(found.faces, x, y)
        either = lambda x, y: Vec3(*map(choose, x, y))
        dist, normal = choose(away, dist), either(-own, normal)
        middle = either(foot - (own * (0.5 * away)), middle)
    full = lambda v: Vec3(*(x + jnp.zeros_like(dist) for x in v))
    return (dist, middle), full(normal)


def _segments(
    meeting: _Meeting, found: Touching, corners: Corners
) -> tuple[Vec3, Vec3]:
    """Return the ends of the line on which each point lies, `(4, *batch)`."""
    one, two = meeting.edge
    choose = lambda when, x, y: Vec3(*(jnp.where(when, p, q) for p, q in zip(x, y)))
    ends = [choose(corners.line == 0, a, b) for a, b in ((one, two), (two, one))]
    if meeting.subject is None:
        return ends[0], ends[1]

    def corner(points, count, ahead):
        number = jnp.minimum(corners.line + ahead, points.x.shape[0] - 1)
        number = jnp.where(corners.line + ahead < count, number, 0)
        return pick(points, number)

    for ahead in (0, 1):
        base = corner(meeting.base, meeting.base_count, ahead)
        subject = corner(meeting.subject, meeting.subject_count, ahead)
        line = choose(corners.of_base, base, subject)
        ends[ahead] = choose(found.faces, line, ends[ahead])
    return ends[0], ends[1]


def _first(points: Vec3) -> Vec3:
    return Vec3(*(x[:1] for x in points))


def _tolerance(x) -> float:
    return 4.0 * float(jnp.finfo(x.dtype).eps)


def capsule_cylinder_points(
    capsule: Shape, cylinder: Shape, margin: Any
) -> list[Point]:
    """Return up to two points, see `several_points`, or that of `capsule_cylinder`."""
    (single,) = capsule_cylinder(capsule, cylinder)
    rot = capsule.pose.rot.T
    offset = Pose(rot @ cylinder.pose.rot, rot @ (cylinder.pose.pos - capsule.pose.pos))
    first = Core(GeomKind.CAPSULE, capsule.size)
    second = Core(GeomKind.CYLINDER, cylinder.size)
    normal = rot @ single.normal
    along = lax.stop_gradient(offset.rot.columns[2].dot(normal))
    zero = jnp.zeros_like(along, jnp.int32)
    # Both vertices if no face is near: normals of the lateral surface are perpendicular to
    # the axis, up to rounding.
    lateral = jnp.abs(along) < 64 * float(jnp.finfo(along.dtype).eps)
    one = jnp.where(along < 0.0, 1, 0)
    other = jnp.where(lateral, 1 - one, one)
    vertices = (zero, zero, zero), (one, other, other)
    approach = Approach(Placed(first, second, offset), vertices, normal)
    return several_points(approach, single, capsule, margin)
