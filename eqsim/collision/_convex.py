r"""Contact of two convex shapes: a ball about each point of a polytope.

A search without derivatives finds the vertices between which the shapes touch. Distance,
position and normal are then functions of these vertices, with exact derivatives as long
as the same vertices touch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._lists import where_needed
from .._primitive import are_rows_together
from ..kinematics.link_motion import Pose
from ..model import GeomKind
from ..spatial import safe_sqrt, Vec3
from ._convex_shapes import Core, Corners, Placed
from ._polytope_distance import (
    combine,
    Nearest,
    nearest_face,
    nearest_triangle,
    sorted_vertices,
)
from ._round_shapes import Feature, feature_contact, touching_feature
from .points import Point, Polygons, Shape, unit, unit_normal


class ConvexSearch(NamedTuple):
    """Nearest points of two convex shapes, in the frame of the first one.

    - `placed`: the shapes.
    - `nearest`: see `touching_vertices`.
    - `dist`: distance of the surfaces, negative in penetration.
    - `normal`: unit vector from the first to the second shape.
    - `middle`: point halfway between the surfaces.
    - `feature`: feature that touches; None if neither shape is round.
    """

    placed: Placed
    nearest: Nearest
    dist: Any
    normal: Vec3
    middle: Vec3
    feature: Feature | None


def convex_points(
    kinds: tuple[GeomKind, GeomKind], one: Shape, two: Shape, margin: Any
) -> list[Point]:
    """Return one point, see `convex_contact`."""
    return [convex_contact(kinds, one, two, margin)]


def convex_contact(
    kinds: tuple[GeomKind, GeomKind], one: Shape, two: Shape, margin: Any
) -> Point:
    """Return the deepest point of two convex shapes, or the nearest one if they are
    apart.

    **Arguments:**

    - `kinds`: kinds of the shapes.
    - `margin`: distance beyond which the point is not asked for exactly.
    """
    return single_point(convex_search(kinds, one, two, margin), one)


def single_point(search: ConvexSearch, one: Shape) -> Point:
    """Return the deepest or nearest point in the world."""
    pose = one.pose
    return Point(search.dist, pose.point(search.middle), pose.rot @ search.normal)


def convex_search(
    kinds: tuple[GeomKind, GeomKind], one: Shape, two: Shape, margin: Any
) -> ConvexSearch:
    """Return where two convex shapes are nearest; arguments as of `convex_contact`."""
    first, second = (
        Core(kind, shape.size, shape.hulls)
        for kind, shape in zip(kinds, (one, two), strict=True)
    )
    rot = one.pose.rot.T
    offset = Pose(rot @ two.pose.rot, rot @ (two.pose.pos - one.pose.pos))
    placed = Placed(first, second, offset)
    touch = find_touch(lax.stop_gradient(placed), margin)
    dist, normal, middle = contact_at(placed, touch)
    return ConvexSearch(placed, touch.nearest, dist, normal, middle, touch.feature)


class Touch(NamedTuple):
    """Features that touch where two convex shapes are nearest, found without derivatives.

    - `nearest`: see `touching_vertices`.
    - `feature`: feature that touches; None if neither shape is round.
    """

    nearest: Nearest
    feature: Feature | None


def find_touch(placed: Placed, margin: Any) -> Touch:
    """Search for what touches; `margin` as in `convex_contact`."""
    nearest = touching_vertices(
        placed, margin + placed.first.radius + placed.second.radius
    )
    if not placed.is_round:
        return Touch(nearest, None)
    near = _contact(placed, nearest)[1]
    return Touch(nearest, touching_feature(placed, nearest.corners, near))


def contact_at(placed: Placed, touch: Touch) -> tuple[Any, Vec3, Vec3]:
    """Return distance, normal and the point halfway, see `ConvexSearch`, with
    derivatives."""
    if touch.feature is None:
        depth, normal, ends = _contact(placed, touch.nearest)
    else:
        depth, normal, ends = feature_contact(placed, lax.stop_gradient(touch.feature))
    one, two = placed.first.radius, placed.second.radius
    start, end = ends[0] + (normal * one), ends[1] - (normal * two)
    return -depth - (one + two), normal, (start + end) * 0.5


class _Round(NamedTuple):
    """Three vertices; where a search for nearer ones is due; whether the first has been;
    whether the origin is outside."""

    corners: tuple[Corners, Corners, Corners]
    due: Any
    again: Any
    outside: Any


def touching_vertices(placed: Placed, reach) -> Nearest:
    """Return the vertices of the difference of two cores that are nearest to the origin:
    three if it is inside.

    What is not far enough apart to tell by a search for the nearest vertices is taken
    for a penetration. If it is none, this search begins again at the face found.
    """
    toward = unit(placed.offset.pos)
    first = placed.support(toward)
    always = toward.x == toward.x
    start = _Round((first, first, first), always, ~always, always)

    def visit(carry: _Round) -> _Round:
        search = nearest_triangle(placed, carry.corners, reach, carry.due)
        inside = carry.due & ~search.sure & ~carry.again

        corners, outside = _penetration(placed, toward, inside, search.corners)
        choose = lambda x, y: jnp.where(inside, x, y)
        corners = jtu.tree_map(choose, corners, search.corners)
        return _Round(
            corners, inside & outside, always, jnp.where(inside, outside, carry.outside)
        )

    end = lax.while_loop(lambda carry: jnp.any(carry.due), visit, start)
    points = tuple(placed.difference(each) for each in end.corners)
    return sorted_vertices(end.corners, points, end.outside)


def _penetration(placed: Placed, toward: Vec3, inside, corners: tuple) -> tuple:
    """Return the corners of the nearest face, and whether the origin is outside, where it
    is due; elsewhere the given corners."""

    def face(given, due):
        own, direction = given
        found = nearest_face(own, direction, due)
        return found.corners, found.dist < 0.0

    return computed_where(inside, face, (placed, toward), (corners, inside))


def computed_where(when, fn: Callable, given: Any, otherwise: Any) -> Any:
    """Return `fn(given, when)` if `when` holds anywhere, else `otherwise`. Outside of
    kernels, only lanes in which it holds are computed."""
    if not are_rows_together() or when.ndim != 2:
        return lax.cond(jnp.any(when), lambda: fn(given, when), lambda: otherwise)
    # Polygons have no axis of lanes.
    fixed = lambda x: isinstance(x, Polygons)
    leaves, treedef = jtu.tree_flatten(given, is_leaf=fixed)
    places = [fixed(x) for x in leaves]

    def moved(own, tables, due):
        own, tables = iter(own), iter(tables)
        full = [next(tables) if place else next(own) for place in places]
        return fn(jtu.tree_unflatten(treedef, full), due)

    moving = [x for x in leaves if not fixed(x)]
    tables = [x for x in leaves if fixed(x)]
    return where_needed(when, moved, moving, tables, otherwise)


def _contact(placed: Placed, nearest: Nearest) -> tuple[Any, Vec3, tuple[Vec3, Vec3]]:
    """Return the depth, the normal, and the points of both cores that touch."""
    ends = [placed.ends(corners) for corners in nearest.corners]
    a, b, c = (first - second for first, second in ends)
    toward_b, toward_c = b - a, c - a
    # The point nearest to the origin, of the plane, the line and the point. The area of fewer
    # than three vertices consists of rounding errors, so that its derivatives overflow.
    count = nearest.count
    weights = _plane_weights(a, toward_b, toward_c, count == 3)
    on_line = _line_weight(a, toward_b)
    zero = jnp.zeros_like(on_line)
    pick = lambda three, two, one: jnp.where(
        count == 3, three, jnp.where(count == 2, two, one)
    )
    second = pick(weights[0], on_line, zero)
    third = pick(weights[1], zero, zero)
    weights = (1.0 - second - third, second, third)
    if_triangle = lambda x, y: jnp.where(count == 3, x, y)
    or_axis = lambda x, axis: Vec3(*(if_triangle(k, zero + e) for k, e in zip(x, axis)))
    outward = unit_normal(
        or_axis(toward_b, (1.0, 0.0, 0.0)), or_axis(toward_c, (0.0, 1.0, 0.0))
    )
    point = combine(weights, (a, b, c))
    square = point.dot(point)
    apart = unit(-point)
    # Of a face the corners turn so that the normal leads out of the difference.
    turned = nearest.outside & (outward.dot(a) > 0.0)
    facing = jnp.where(turned, -1.0, 1.0)
    normal = Vec3(*map(if_triangle, outward * facing, apart))
    depth = if_triangle(outward.dot(a) * facing, -safe_sqrt(square))
    one, two = (combine(weights, side) for side in zip(*ends, strict=True))
    return depth, normal, (one, two)


def _plane_weights(a: Vec3, b: Vec3, c: Vec3, is_triangle: Any) -> tuple[Any, Any]:
    """Return the weights of two directions from a point, at which the plane of both is
    nearest to the origin; zeros where `is_triangle` is false."""
    # In units of constant lengths, as the inverse square of a small area overflows.
    sizes = [lax.stop_gradient(safe_sqrt(x.dot(x))) for x in (b, c)]
    first, other = (1.0 / jnp.where(x > 0.0, x, 1.0) for x in sizes)
    b, c = b * first, c * other
    bb, bc, cc = b.dot(b), b.dot(c), c.dot(c)
    ab, ac = -a.dot(b), -a.dot(c)
    det = bb * cc - bc * bc
    flat = (det <= 0.0) | ~is_triangle
    safe = jnp.where(flat, 1.0, det)
    second = first * (cc * ab - bc * ac) / safe
    third = other * (bb * ac - bc * ab) / safe
    return jnp.where(flat, 0.0, second), jnp.where(flat, 0.0, third)


def _line_weight(a: Vec3, b: Vec3):
    """Return the weight of a direction from a point, at which its line is nearest to the
    origin."""
    square = b.dot(b)
    positive = square > 0.0
    return jnp.where(positive, -a.dot(b) / jnp.where(positive, square, 1.0), 0.0)
