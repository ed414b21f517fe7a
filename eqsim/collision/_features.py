"""Polygons and edges of convex shapes, and those along which two shapes touch."""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from .._primitive import are_rows_together
from ..model import GeomKind
from ..spatial import Vec3
from ._convex import ConvexSearch
from ._convex_shapes import Core, Placed
from ._direction_tables import count_rows, largest_row, read_rows
from ._round_shapes import Feature
from .points import Polygons, polygons_of, unit, unit_area


# Polygons and edges of convex shapes, for shapes that touch along them.
#
# Of a cylinder, these are the faces, as regular polygons with a corner on the x axis, and
# the line of the lateral surface that lies farthest in the direction of contact.


class Facet(NamedTuple):
    """A polygon of a solid.

    - `normal`: unit vector that leads out of the solid.
    - `holds`: true if given vertices are corners of the face; for a cylinder, if they lie
        on it.
    """

    normal: Vec3
    holds: Any


class Solid(NamedTuple):
    """Shapes of one kind with the polygons between their vertices; a capsule has none.

    Vertices are those of the core: a capsule and a cylinder have two. Corners of polygons
    are vertices too, but those of a cylinder are points of its rims.
    """

    core: Core
    polygons: Polygons | None

    @property
    def most(self) -> int:
        """The largest number of corners of a polygon."""
        return 0 if self.polygons is None else self.polygons.most

    @property
    def most_edges(self) -> int:
        """The largest value of `edge_count`."""
        kind = self.core.kind
        if kind in (GeomKind.CAPSULE, GeomKind.CYLINDER) or self.polygons is None:
            return 1
        return self.polygons.most_around

    def meeting(self, vertex) -> tuple[Any, Any]:
        """Return where the polygons that meet at a vertex start, and how many they are."""
        assert self.polygons is not None, "capsules have no polygons"
        if self.core.hulls is not None:
            vertex = vertex + self.core.hulls.start
        starts = self.polygons.vertex_starts
        start = read_rows(starts, vertex)
        return start, read_rows(starts, vertex + 1) - start

    def polygon(self, entry):
        """Return the polygon at a place that follows from `meeting`."""
        assert self.polygons is not None, "capsules have no polygons"
        return read_rows(self.polygons.around, entry)

    def outline(self, polygon) -> tuple[Any, Any]:
        """Return where the corners of a polygon start, and how many they are."""
        assert self.polygons is not None, "capsules have no polygons"
        start = read_rows(self.polygons.starts, polygon)
        return start, read_rows(self.polygons.starts, polygon + 1) - start

    def corner(self, entry):
        """Return the corner at a place that follows from `outline`."""
        assert self.polygons is not None, "capsules have no polygons"
        return read_rows(self.polygons.corners, entry)

    def place(self, corner) -> Vec3:
        """Return the place of a corner."""
        if self.core.kind is not GeomKind.CYLINDER:
            return self.core.vertex(corner)
        size = self.core.size
        cos, sin = (read_rows(x, corner) for x in _rim(str(size.x.dtype)))
        up = jnp.where(corner < _RIM_CORNERS, -1.0, 1.0).astype(size.x.dtype)
        return Vec3(size.x * cos, size.x * sin, size.y * up)

    def corners(self, polygon, size: int) -> tuple[Vec3, Any]:
        """Return the places of the corners of a polygon, clockwise seen from outside,
        `(size, *batch)`, and how many they are; the last one is repeated."""
        start, count = self.outline(polygon)
        rows = count_rows(jnp.zeros((size, *count.shape[1:]))) + 0 * count
        numbers = self.corner(start + jnp.maximum(count - 1 - rows, 0))
        return self.place(numbers), count

    def corners_from(self, polygon, vertex, size: int) -> tuple[Any, Any]:
        """Return the vertices around a polygon, counterclockwise from one of them,
        `(size, *batch)`, and how many they are; then they are repeated."""
        start, count = self.outline(polygon)
        if are_rows_together():
            first = largest_row(self._all_corners(polygon) == vertex)
            rows = count_rows(jnp.zeros((size, *first.shape[1:]))) + first
            rows = jnp.where(rows < count, rows, rows % count)
            return self.corner(start + rows), count

        def visit(carry):
            k, found = carry
            here = self.corner(start + jnp.minimum(k, count - 1)) == vertex
            return k + 1, jnp.where(here & (k < count), k, found)

        more = lambda carry: jnp.any(carry[0] < count)
        none = jnp.zeros_like(count)
        first = lax.while_loop(more, visit, (none, none))[1]
        rows = count_rows(jnp.zeros((size, *count.shape[1:]))) + first
        return self.corner(start + jnp.where(rows < count, rows, rows % count)), count

    def facet(self, polygon, vertices: tuple[Any, Any, Any], when) -> Facet:
        """Return the normal of a polygon, and whether vertices are among its corners."""
        if self.core.kind is GeomKind.CYLINDER:
            zero = jnp.zeros_like(self.core.size.x)
            holds = [polygon == vertex for vertex in vertices]
            up = jnp.where(polygon == 0, -1.0, 1.0).astype(zero.dtype)
            return Facet(Vec3(zero, zero, up), holds[0] & holds[1] & holds[2])
        if are_rows_together():
            return self._facet_together(polygon, vertices)
        start, count = self.outline(polygon)
        origin = self.core.vertex(self.corner(start))
        last = jnp.where(when, count, 0)

        def visit(carry):
            k, before, area, size, held = carry
            number = self.corner(start + jnp.minimum(k, count - 1))
            active = k < last
            here = self.core.vertex(number) - origin
            grown = area + before.cross(here)
            area = Vec3(*(jnp.where(active, x, y) for x, y in zip(grown, area)))
            size = jnp.where(active, jnp.maximum(size, here.dot(here)), size)
            held = tuple(x | (active & (number == y)) for x, y in zip(held, vertices))
            return k + 1, here, area, size, held

        zero, never = origin - origin, origin.x != origin.x
        none = jnp.zeros_like(count) + 0 * zero.x.astype(count.dtype)
        more = lambda carry: jnp.any(carry[0] < last)
        held = tuple(never | (y != y) for y in vertices)
        begin = none, zero, zero, zero.x, held
        _, _, area, size, held = lax.while_loop(more, visit, begin)
        return Facet(unit_area(area, size), held[0] & held[1] & held[2])

    def _all_corners(self, polygon):
        """Return the corners of a polygon, `(most, *batch)`; the last one is repeated."""
        start, count = self.outline(polygon)
        rows = count_rows(jnp.zeros((self.most, *count.shape[1:])))
        return self.corner(start + jnp.minimum(rows, count - 1))

    def _facet_together(self, polygon, vertices: tuple[Any, Any, Any]) -> Facet:
        """Return what `facet` returns, from all corners together."""
        numbers = self._all_corners(polygon)
        arms = self.core.vertex(numbers) - self.core.vertex(numbers[:1])
        one, two = (
            Vec3(*(x[rows] for x in arms)) for rows in (slice(-1), slice(1, None))
        )
        total = lambda x: jnp.sum(x, axis=0, keepdims=True)
        held = [jnp.any(numbers == x, axis=0, keepdims=True) for x in vertices]
        area = Vec3(*map(total, one.cross(two)))
        size = jnp.max(arms.dot(arms), axis=0, keepdims=True)
        return Facet(unit_area(area, size), held[0] & held[1] & held[2])

    def edge_count(self, vertices: tuple[Any, Any, Any]):
        """Return how many edges are tried: all that meet at one vertex, or the one between
        two."""
        kind = self.core.kind
        if kind in (GeomKind.CAPSULE, GeomKind.CYLINDER):
            several = jnp.ones_like(vertices[0])
        elif kind is GeomKind.BOX:
            several = jnp.full_like(vertices[0], 3)
        else:
            several = self.meeting(vertices[0])[1]
        return jnp.where(vertices[0] == vertices[1], several, 1)

    def edge_end(self, vertices: tuple[Any, Any, Any], number):
        """Return the other vertex of an edge."""
        kind, vertex = self.core.kind, vertices[0]
        if kind in (GeomKind.CAPSULE, GeomKind.CYLINDER):
            other = 1 - vertex
        elif kind is GeomKind.BOX:
            other = vertex ^ (1 << number)
        else:
            start, count = self.meeting(vertex)
            entry = start + jnp.minimum(number, count - 1)
            other = self._before(self.polygon(entry), vertex)
        return jnp.where(vertices[0] == vertices[1], other, vertices[1])

    def edge_place(self, vertex, normal: Vec3) -> Vec3:
        """Return the end of an edge at a vertex.

        **Arguments:**

        - `normal`: the direction of contact, out of this solid and in its frame.
        """
        place = self.core.vertex(vertex)
        if self.core.kind is not GeomKind.CYLINDER:
            return place
        zero = jnp.zeros_like(normal.z)
        across = unit(Vec3(normal.x, normal.y, zero), Vec3(zero, zero, zero))
        return place + (across * self.core.size.x)

    def has_edge(self, normal: Vec3):
        """Return whether there is one line of a cylinder that lies farthest in a direction;
        true for other shapes."""
        if self.core.kind is not GeomKind.CYLINDER:
            return normal.x == normal.x
        tiny = 64 * float(jnp.finfo(normal.x.dtype).eps)
        return normal.x * normal.x + normal.y * normal.y > tiny**2

    def _before(self, polygon, vertex):
        """Return the corner of a polygon before a vertex."""
        start, count = self.outline(polygon)
        if are_rows_together():
            first = largest_row(self._all_corners(polygon) == vertex)
            return self.corner(start + jnp.where(first > 0, first, count) - 1)

        def visit(carry):
            k, last, found = carry
            number = self.corner(start + jnp.minimum(k, count - 1))
            found = jnp.where((number == vertex) & (k < count), last, found)
            return k + 1, number, found

        last = self.corner(start + count - 1)
        more = lambda carry: jnp.any(carry[0] < count)
        none = jnp.zeros_like(count)
        return lax.while_loop(more, visit, (none, last, last))[2]


def solid(core: Core) -> Solid:
    """Return shapes with their polygons."""
    if core.kind is GeomKind.CAPSULE:
        return Solid(core, None)
    if core.kind is GeomKind.BOX:
        return Solid(core, _box())
    if core.kind is GeomKind.CYLINDER:
        return Solid(core, _faces())
    assert core.hulls is not None, "meshes have hulls"
    assert core.hulls.polygons is not None, "several points need polygons"
    return Solid(core, core.hulls.polygons)


# Corners of the sides of a box, those along an axis before those against it. Bit `k` of a
# vertex tells on which side along axis `k` it is. Where they start is MuJoCo's choice, which
# decides which points are left of more than four.
_SIDES = (
    (5, 1, 3, 7),
    (0, 4, 6, 2),
    (6, 7, 3, 2),
    (0, 1, 5, 4),
    (4, 5, 7, 6),
    (1, 0, 2, 3),
)


# MuJoCo's choice.
_RIM_CORNERS = 16


@ft.lru_cache(maxsize=1)
def _faces() -> Polygons:
    """Return the faces of cylinders; at each of the two vertices, there is one."""
    rim = np.arange(_RIM_CORNERS, dtype=np.int32)
    whole = lambda *xs: np.array(xs, np.int32)
    return Polygons(
        starts=whole(0, _RIM_CORNERS, 2 * _RIM_CORNERS),
        # Corner 0 comes first when they are read clockwise, as MuJoCo does.
        corners=np.concatenate([rim[::-1], _RIM_CORNERS + np.roll(rim, -1)]),
        vertex_starts=whole(0, 1, 2),
        around=whole(0, 1),
        most=_RIM_CORNERS,
        most_around=1,
    )


@ft.lru_cache(maxsize=4)
def _rim(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of both faces of a cylinder of radius 1."""
    angle = np.arange(_RIM_CORNERS) * (2 * np.pi / _RIM_CORNERS)
    twice = lambda x: np.tile(x, 2).astype(dtype)
    return twice(np.cos(angle)), twice(np.sin(angle))


@ft.lru_cache(maxsize=1)
def _box() -> Polygons:
    starts, corners = range(0, 25, 4), [x for side in _SIDES for x in side]
    return polygons_of((0, 8), (0, 6), starts, corners)


# Polygons or edges of two solids that touch along a face or a line, as in MuJoCo.
#
# The search for the nearest points ends with up to three vertices of each solid: a vertex,
# an edge or a face. Polygons are tried that have all of them as corners.
#
# 1. Two polygons, one of each solid, whose outer normals are opposite up to
#    $\arccos 0.996 = 5.1°$. Of several, the pair that is most nearly opposite.
# 2. Otherwise an edge of the solid with fewer vertices, and a polygon of the other one that
#    faces it and whose plane is parallel to the edge up to $\arcsin 0.0888 = 5.1°$. The
#    first that is found: polygon by polygon, edge by edge. If both have two vertices, edges
#    of the first solid are tried before those of the second. From a single vertex, all of
#    its edges are tried.
#
# MuJoCo 4.0: `mjc_multicontact`, measured with the Python package; see also `alignedFaces`
# and `alignedFaceEdge` of MuJoCo 3.12.


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
    level = lambda x: on_face & (normal.dot(core.vertex(x) - top) >= -rounding)
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
            facing = normal.dot(turn @ own)
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
        tried = holds & (outward.dot(toward) > least) & ~edge.found

        def inner(carry):
            k, edge = carry
            end = solid.edge_end(vertices, jnp.minimum(k, count - 1))
            along = edge_to_first(unit(solid.core.vertex(end) - start))
            hit = tried & (k < count) & ~edge.found
            hit = hit & (jnp.abs(along.dot(outward)) < _PARALLEL)
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
    cosine = Vec3(*(x[:, None] for x in first.normal)).dot(_ahead(outward))
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
    tried = polygons.holds & when & (outward.dot(toward) > least)

    def one(k):
        end = solid.edge_end(vertices, jnp.minimum(k, count - 1))
        return end, edge_to_first(unit(solid.core.vertex(end) - start)), k < count

    numbers = jnp.arange(solid.most_edges, dtype=jnp.int32)
    ends, along, exists = jtu.tree_map(lambda x: x[:, 0], jax.vmap(one)(numbers))
    across = Vec3(*(x[:, None] for x in outward))
    parallel = jnp.abs(_ahead(along).dot(across)) < _PARALLEL
    found, (row, column) = _first_of(tried[:, None] & exists[None] & parallel)
    polygon, end = read_rows(polygons.number, row), read_rows(ends, column)
    keep = lambda x: jnp.where(found, x, 0)
    return _Edge(found, keep(polygon), (keep(vertices[0]), keep(end)))
