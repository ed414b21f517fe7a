r"""Polygons and edges of convex shapes, for shapes that touch along them.

Of a cylinder, these are the faces, as regular polygons with a corner on the x axis, and
the line of the lateral surface that lies farthest in the direction of contact.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._calls import are_rows_together
from ..model import GeomKind
from ..spatial import Vec3
from ._cores import Core
from ._points import Polygons, polygons_of, unit
from ._rows import count_rows, largest_row, read_rows


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
            k, before, area, held = carry
            number = self.corner(start + jnp.minimum(k, count - 1))
            active = k < last
            here = self.core.vertex(number) - origin
            grown = area + (before ^ here)
            area = Vec3(*(jnp.where(active, x, y) for x, y in zip(grown, area)))
            held = tuple(x | (active & (number == y)) for x, y in zip(held, vertices))
            return k + 1, here, area, held

        zero, never = origin - origin, origin.x != origin.x
        none = jnp.zeros_like(count) + 0 * zero.x.astype(count.dtype)
        more = lambda carry: jnp.any(carry[0] < last)
        held = tuple(never | (y != y) for y in vertices)
        _, _, area, held = lax.while_loop(more, visit, (none, zero, zero, held))
        return Facet(unit(area), held[0] & held[1] & held[2])

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
        return Facet(unit(Vec3(*map(total, one ^ two))), held[0] & held[1] & held[2])

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
