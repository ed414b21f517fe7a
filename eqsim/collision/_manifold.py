r"""Several points of two solids that touch along a face or an edge, as in MuJoCo.

What touches is found by `touching`. Then points are taken from the overlap of a polygon,
the base, with its counterpart on the other solid, the subject:

- *Two polygons.* The base is that of the first solid. The subject is projected onto its
  plane and clipped by its sides. From each corner of the overlap, the distance to the plane
  of the subject is measured along its normal; the contact normal is opposite to that.
- *An edge and a polygon.* The edge is clipped by the planes through the sides of the polygon
  along its normal. The points are the ends of what is left, and the distance is that from
  the plane. An end that was clipped counts twice if the other end is beyond the margin.
- *A cylinder.* Its faces are polygons, and the line of its lateral surface that is nearest
  is an edge, see `_solids`.
- *A capsule and a polygon.* The edge is the axis, moved across itself by the radius and
  half of the margin along the contact normal of the single point. The half margin is added
  to the distance again.

Points beyond the margin are left out; of more than four, `four_corners` are left. If none is
left, or nothing touches along a face or an edge, there is a single point.

The choice of corners and sides has no derivatives; the points are differentiable functions
of the vertices of these.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..kinematics._forward import Pose
from ..model import GeomKind
from ..spatial import Vec3
from ._clipping import (
    aligned_lines,
    four_corners,
    kept,
    Outline,
    overlap,
    Plane,
    side_of,
)
from ._convex import computed_where, convex_search, single_point
from ._cores import Core, pick, Placed
from ._features import nearest_numbers, Touching, touching, Vertices
from ._points import Point, Shape, unit
from ._rows import count_rows, read_rows
from ._shapes import capsule_cylinder
from ._solids import solid


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
    corners = _corners(lax.stop_gradient(meeting), found, margin)
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
    area = two ^ one
    return unit(Vec3(*(jnp.sum(x, axis=0, keepdims=True) for x in area)))


def _corners(meeting: _Meeting, found: Touching, margin) -> Corners:
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
    facing = -(own | meeting.outward)
    return z * facing - (own | (foot - _first(meeting.subject)))


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
    across = (pick(meeting.base, following) - on_plane) ^ meeting.outward
    first, second = across | (start - on_plane), across | (end - on_plane)
    fall = first - second
    use = corners.cut & (fall != 0.0)
    share = jnp.where(use, first / jnp.where(use, fall, 1.0), 0.0)
    point = start + ((end - start) * share)
    outward = meeting.outward
    height = outward | (point - _first(meeting.base))
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
        away = (own | ((foot - origin) - outer)) + corners.lift
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
    along = lax.stop_gradient(offset.rot.columns[2] | normal)
    zero = jnp.zeros_like(along, jnp.int32)
    # Both vertices if no face is near: normals of the lateral surface are perpendicular to
    # the axis, up to rounding.
    lateral = jnp.abs(along) < 64 * float(jnp.finfo(along.dtype).eps)
    one = jnp.where(along < 0.0, 1, 0)
    other = jnp.where(lateral, 1 - one, one)
    vertices = (zero, zero, zero), (one, other, other)
    approach = Approach(Placed(first, second, offset), vertices, normal)
    return several_points(approach, single, capsule, margin)
