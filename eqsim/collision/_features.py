r"""Polygons or edges of two solids that touch along a face or a line, as in MuJoCo.

The search for the nearest points ends with up to three vertices of each solid: a vertex,
an edge or a face. Polygons are tried that have all of them as corners.

1. Two polygons, one of each solid, whose outer normals are opposite up to
   $\arccos 0.996 = 5.1°$. Of several, the pair that is most nearly opposite.
2. Otherwise an edge of the solid with fewer vertices, and a polygon of the other one that
   faces it and whose plane is parallel to the edge up to $\arcsin 0.0888 = 5.1°$. The
   first that is found: polygon by polygon, edge by edge. If both have two vertices, edges
   of the first solid are tried before those of the second. From a single vertex, all of
   its edges are tried.

MuJoCo 4.0: `mjc_multicontact`, measured with the Python package; see also `alignedFaces`
and `alignedFaceEdge` of MuJoCo 3.12.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._calls import are_rows_together
from ..model import GeomKind
from ..spatial import Vec3
from ._convex import ConvexSearch
from ._cores import Placed
from ._points import unit
from ._round import Feature
from ._rows import largest_row, read_rows
from ._solids import Solid


_OPPOSITE = -0.996
_PARALLEL = 0.0888
# 1e-15 in double precision, as in MuJoCo.
_FACING_EPS = 4


class Touching(NamedTuple):
    """Features that touch. Polygons and vertices are indices.

    - `faces`: true if it is two polygons.
    - `first_edge`: true if it is an edge of the first solid and a polygon of the second.
    - `second_edge`: true if it is a polygon of the first solid and an edge of the second.
    - `polygons`: polygon of the first solid, and of the second.
    - `ends`: the two vertices of the edge.
    """

    faces: Any
    first_edge: Any
    second_edge: Any
    polygons: tuple[Any, Any]
    ends: tuple[Any, Any]


class _Sides(NamedTuple):
    """Two solids in the frame of the first: which vertices of each are nearest, and how
    many different ones."""

    placed: Placed
    solids: tuple[Solid, Solid]
    vertices: tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]
    counts: tuple[Any, Any]


Vertices = tuple[Any, Any, Any]
"""Numbers of three vertices, some of which may be the same."""


def nearest_numbers(search: ConvexSearch) -> tuple[Vertices, Vertices]:
    """Return the vertices of both solids that are nearest, without derivatives."""
    corners, feature = search.nearest.corners, search.feature

    def numbers(corners, which) -> Vertices:
        a, b, c = corners
        return a[which].number, b[which].number, c[which].number

    def nearest(which) -> Vertices:
        near = numbers(corners, which)
        if feature is None:
            return near
        found = numbers(feature.corners, which)
        return _nearest_of_round(search, feature, which, near, found)

    return nearest(0), nearest(1)


def _nearest_of_round(
    search: ConvexSearch, feature: Feature, which: int, near: Vertices, found: Vertices
) -> Vertices:
    """Return the vertices that count. On a face of a cylinder, all lie that are as high as
    the one found."""
    a, b, c = found
    b, c = (jnp.where(feature.count > k, x, a) for k, x in ((1, b), (2, c)))
    placed = lax.stop_gradient(search.placed)
    core = (placed.first, placed.second)[which]
    normal = feature.normal
    if which:
        normal = placed.offset.rot.T @ -normal
    top = core.vertex(a)
    size = jnp.abs(top.x) + jnp.abs(top.y) + jnp.abs(top.z)
    rounding = 64 * float(jnp.finfo(size.dtype).eps) * size
    on_face = feature.face == 2 - which
    level = lambda x: on_face & ((normal | (core.vertex(x) - top)) >= -rounding)
    one, two, three = (jnp.where(level(x), x, a) for x in near)
    pick = lambda x, y: jnp.where(on_face, x, y)
    return pick(one, a), pick(two, b), pick(three, c)


def touching(
    placed: Placed,
    solids: tuple[Solid, Solid],
    numbers: tuple[Vertices, Vertices],
    normal: Vec3,
) -> Touching:
    """Return what touches.

    **Arguments:**

    - `numbers`: for each solid, the three vertices that are nearest.
    - `normal`: direction from the first to the second solid, in the frame of the first.
    """
    vertices, counts = zip(*map(_different, solids, numbers), strict=True)
    sides = _Sides(placed, solids, vertices, counts)
    never = counts[0] < 0
    zero = jnp.zeros_like(counts[0])
    one_face = solids[0].polygons is not None
    two_face = solids[1].polygons is not None
    faces, polygons, edge = never, (zero, zero), _Edge(never, zero, (zero, zero))
    first_edge = second_edge = never
    opposite, edge_on_face = _opposite, _edge_on_face
    if are_rows_together():
        opposite, edge_on_face = _opposite_together, _edge_on_face_together
    if one_face and two_face:
        faces, polygons = opposite(sides)
    if two_face:
        when = ~faces & (counts[0] < 3) & (counts[0] <= counts[1])
        edge = edge_on_face(sides, 0, normal, when)
        first_edge = edge.found
        polygons = polygons[0], jnp.where(first_edge, edge.polygon, polygons[1])
    if one_face:
        when = ~faces & ~first_edge & (counts[1] < 3)
        other = edge_on_face(sides, 1, normal, when)
        second_edge = other.found
        polygons = jnp.where(second_edge, other.polygon, polygons[0]), polygons[1]
        choose = lambda x, y: jnp.where(second_edge, x, y)
        edge = jtu.tree_map(choose, other, edge)
    return Touching(faces, first_edge, second_edge, polygons, edge.ends)


def _different(solid: Solid, numbers: Vertices) -> tuple[Vertices, Any]:
    """Return three vertices, different ones first, and how many different ones there are.
    The ends of capsules and cylinders count as one."""
    a, b, c = numbers
    second = jnp.where(a == b, c, b)
    two = (a == b) | (a == c) | (b == c)
    third = jnp.where(two, second, c)
    count = jnp.where(a == second, 1, jnp.where(two, 2, 3))
    if solid.core.kind in (GeomKind.CAPSULE, GeomKind.CYLINDER):
        count = jnp.ones_like(count)
    return (a, second, third), count


def _opposite(sides: _Sides) -> tuple[Any, tuple[Any, Any]]:
    """Return the two polygons that are most nearly opposite, and whether they are."""
    turn = sides.placed.offset.rot

    def outer(polygon, normal, holds, carry):
        def inner(second, own, also, carry):
            best, one, two = carry
            facing = normal | (turn @ own)
            better = also & (facing < best)
            choose = lambda x, y: jnp.where(better, x, y)
            return choose(facing, best), choose(polygon, one), choose(second, two)

        return _each_polygon(sides, 1, holds, inner, carry)

    always = sides.counts[0] > 0
    none = jnp.zeros_like(sides.counts[0])
    least = none * turn.xx * 0.0 + _OPPOSITE
    start = least, none, none
    best, one, two = _each_polygon(sides, 0, always, outer, start)
    return best < _OPPOSITE, (one, two)


class _Edge(NamedTuple):
    """An edge that touches a polygon.

    - `found`: true if there is one.
    - `polygon`: index of the polygon.
    - `ends`: vertices of the edge.
    """

    found: Any
    polygon: Any
    ends: tuple[Any, Any]


def _edge_on_face(sides: _Sides, number: int, normal: Vec3, when) -> _Edge:
    """Return the first edge of one solid that touches a polygon of the other.

    **Arguments:**

    - `number`: index of the solid with the edge.
    """
    solid, vertices = sides.solids[number], sides.vertices[number]
    toward = normal if number == 1 else -normal
    to_first, edge_to_first = _turns(sides, number)
    start, count = solid.core.vertex(vertices[0]), solid.edge_count(vertices)
    least = _FACING_EPS * float(jnp.finfo(normal.x.dtype).eps)

    def outer(polygon, own, holds, edge):
        outward = to_first(own)
        tried = holds & ((outward | toward) > least) & ~edge.found

        def inner(carry):
            k, edge = carry
            end = solid.edge_end(vertices, jnp.minimum(k, count - 1))
            along = edge_to_first(unit(solid.core.vertex(end) - start))
            hit = tried & (k < count) & ~edge.found
            hit = hit & (jnp.abs(along | outward) < _PARALLEL)
            new = _Edge(hit | edge.found, polygon, (vertices[0], end))
            choose = lambda x, y: jnp.where(hit, x, y)
            return k + 1, jtu.tree_map(choose, new, edge)

        more = lambda carry: jnp.any(tried & (carry[0] < count) & ~carry[1].found)
        return lax.while_loop(more, inner, (jnp.zeros_like(count), edge))[1]

    zero = jnp.zeros_like(count)
    none = _Edge(when & ~when, zero, (zero, zero))
    return _each_polygon(sides, 1 - number, when, outer, none)


def _turns(sides: _Sides, number: int):
    """Return rotations to the frame of the first solid: of polygons, and of edges of the
    solid `number`."""
    turn = sides.placed.offset.rot
    from_second = lambda v: turn @ v
    keep = lambda v: v
    return (keep, from_second) if number else (from_second, keep)


def _each_polygon(sides: _Sides, number: int, when, visit, start):
    """Visit the polygons that have all of the nearest vertices of a solid as corners.

    **Arguments:**

    - `when`: condition under which they are visited.
    - `visit`: function of the polygon, its normal in the frame of its solid, whether it
        is to be visited, and what is carried.
    """
    solid, vertices = sides.solids[number], sides.vertices[number]
    first, count = solid.meeting(vertices[0])
    last = jnp.where(when, count, 0)

    def step(carry):
        k, kept = carry
        polygon = solid.polygon(first + jnp.minimum(k, count - 1))
        active = k < last
        facet = solid.facet(polygon, vertices, active)
        return k + 1, visit(polygon, facet.normal, facet.holds & active, kept)

    more = lambda carry: jnp.any(carry[0] < last)
    return lax.while_loop(more, step, (jnp.zeros_like(count), start))[1]


# The same outside of kernels: all polygons and edges in one operation.


class _Polygons(NamedTuple):
    """Polygons that meet at a vertex, `(n, *batch)`: numbers, outer normals, and whether they
    exist and have the nearest vertices as corners."""

    number: Any
    normal: Vec3
    holds: Any


def _polygons(sides: _Sides, number: int) -> _Polygons:
    solid, vertices = sides.solids[number], sides.vertices[number]
    assert solid.polygons is not None, "capsules have no polygons"
    first, count = solid.meeting(vertices[0])
    always = count == count

    def one(k):
        polygon = solid.polygon(first + jnp.minimum(k, count - 1))
        facet = solid.facet(polygon, vertices, always)
        return _Polygons(polygon, facet.normal, facet.holds & (k < count))

    found = jax.vmap(one)(jnp.arange(solid.polygons.most_around, dtype=jnp.int32))
    return jtu.tree_map(lambda x: x[:, 0], found)


def _first_of(flags) -> tuple[Any, tuple[Any, Any]]:
    """Return whether any of the flags `(m, n, *batch)` is set, and the first, row by row."""
    size, flat = flags.shape[1], flags.reshape(-1, *flags.shape[2:])
    place = largest_row(flat)
    return jnp.any(flat, axis=0, keepdims=True), (place // size, place % size)


def _opposite_together(sides: _Sides) -> tuple[Any, tuple[Any, Any]]:
    """Return what `_opposite` returns."""
    turn = sides.placed.offset.rot
    first, second = _polygons(sides, 0), _polygons(sides, 1)
    outward = turn @ second.normal
    cosine = Vec3(*(x[:, None] for x in first.normal)) | _ahead(outward)
    facing = jnp.where(first.holds[:, None] & second.holds[None], cosine, jnp.inf)
    least = jnp.min(facing, axis=(0, 1))[None]
    _, (row, column) = _first_of(facing == least[None])
    found = least < _OPPOSITE
    one, two = read_rows(first.number, row), read_rows(second.number, column)
    return found, (jnp.where(found, one, 0), jnp.where(found, two, 0))


def _ahead(v: Vec3) -> Vec3:
    return Vec3(*(x[None] for x in v))


def _edge_on_face_together(sides: _Sides, number: int, normal: Vec3, when) -> _Edge:
    """Return what `_edge_on_face` returns."""
    solid, vertices = sides.solids[number], sides.vertices[number]
    toward = normal if number == 1 else -normal
    to_first, edge_to_first = _turns(sides, number)
    start, count = solid.core.vertex(vertices[0]), solid.edge_count(vertices)
    least = _FACING_EPS * float(jnp.finfo(normal.x.dtype).eps)
    polygons = _polygons(sides, 1 - number)
    outward = to_first(polygons.normal)
    tried = polygons.holds & when & ((outward | toward) > least)

    def one(k):
        end = solid.edge_end(vertices, jnp.minimum(k, count - 1))
        return end, edge_to_first(unit(solid.core.vertex(end) - start)), k < count

    numbers = jnp.arange(solid.most_edges, dtype=jnp.int32)
    ends, along, exists = jtu.tree_map(lambda x: x[:, 0], jax.vmap(one)(numbers))
    across = Vec3(*(x[:, None] for x in outward))
    parallel = jnp.abs(_ahead(along) | across) < _PARALLEL
    found, (row, column) = _first_of(tried[:, None] & exists[None] & parallel)
    polygon, end = read_rows(polygons.number, row), read_rows(ends, column)
    keep = lambda x: jnp.where(found, x, 0)
    return _Edge(found, keep(polygon), (keep(vertices[0]), keep(end)))
