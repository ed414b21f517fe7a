"""Convex shapes as sums: a polytope, what is round about each of its points, and a ball.

| shape | polytope | round part | ball |
|---|---|---|---|
| sphere | point | | its radius |
| capsule | segment | | its radius |
| cylinder | segment | disk | |
| ellipsoid | point | ellipsoid | |
| box, mesh | its corners, its hull | | |
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from .._primitive import are_rows_together
from ..kinematics.link_motion import Pose
from ..model import GeomKind
from ..spatial import safe_sqrt, Vec3
from ._direction_tables import count_rows, largest_row, nearest_corner, read_rows
from .points import Hulls, Polygons


class Corner(NamedTuple):
    """A point on the surface of a polytope with its round part.

    - `number`: index of the vertex of the polytope.
    - `round`: point of the unit disk or sphere that the round part is stretched from;
        None if there is none.
    """

    number: Any
    round: Vec3 | None


WITH_BALL = GeomKind.SPHERE, GeomKind.CAPSULE
"""Shapes with a ball about each point."""


class Core(eqx.Module):
    """Shapes of one kind without the ball, one per pair.

    - `kind`: kind of the shapes.
    - `size`: see `Geoms.size`.
    - `hulls`: vertices, if the shapes are meshes.
    """

    kind: GeomKind = eqx.field(static=True)
    size: Vec3
    hulls: Hulls | None = None

    @property
    def radius(self):
        """Radius of the ball about each point."""
        ball = self.kind in WITH_BALL
        return self.size.x if ball else jnp.zeros_like(self.size.x)

    @property
    def is_round(self) -> bool:
        """True if there is a round part."""
        return self.kind in (GeomKind.CYLINDER, GeomKind.ELLIPSOID)

    def support(self, direction: Vec3, near: Corner | None = None) -> Corner:
        """Return the point that lies farthest in a direction, in the frame of the shape.

        **Arguments:**

        - `near`: a point near the result, with which the search begins.
        """
        unit = self.round_unit(direction) if self.is_round else None
        first = None if near is None else near.number
        return Corner(self._number(direction, first), unit)

    def point(self, corner: Corner) -> Vec3:
        """Return the place of a point, in the frame of the shape."""
        vertex = self.vertex(corner.number)
        if corner.round is None:
            return vertex
        return vertex + Vec3(*(x * s for x, s in zip(corner.round, self.round_size)))

    @property
    def round_size(self) -> Vec3:
        """Half axes of the round part."""
        size = self.size
        if self.kind is GeomKind.CYLINDER:
            return Vec3(size.x, size.x, jnp.zeros_like(size.x))
        return size

    def round_unit(self, direction: Vec3) -> Vec3:
        """Return the point of the unit disk or sphere whose image lies farthest in a
        direction; zero where all are equally far."""
        scaled = Vec3(*(x * s for x, s in zip(direction, self.round_size)))
        length = safe_sqrt(scaled.dot(scaled))
        positive = length > 0.0
        return scaled * jnp.where(positive, 1.0 / jnp.where(positive, length, 1.0), 0.0)

    def _number(self, direction: Vec3, first: Any):
        x, y, z = (jnp.where(d >= 0.0, 1, 0) for d in direction)
        if self.kind in (GeomKind.SPHERE, GeomKind.ELLIPSOID):
            return jnp.zeros_like(x)
        if self.kind in (GeomKind.CAPSULE, GeomKind.CYLINDER):
            return z
        if self.kind is GeomKind.BOX:
            return x + 2 * y + 4 * z
        assert self.hulls is not None, "meshes have vertices"
        return _farthest(self.hulls, direction, first)

    def vertex(self, number) -> Vec3:
        """Return a vertex of the polytope, in the frame of the shape."""
        size, zero = self.size, jnp.zeros_like(self.size.x)
        if self.kind in (GeomKind.SPHERE, GeomKind.ELLIPSOID):
            return Vec3(zero, zero, zero)
        bit = lambda k: (2 * ((number >> k) & 1) - 1).astype(size.x.dtype)
        if self.kind in (GeomKind.CAPSULE, GeomKind.CYLINDER):
            return Vec3(zero, zero, size.y * bit(0))
        if self.kind is GeomKind.BOX:
            return Vec3(size.x * bit(0), size.y * bit(1), size.z * bit(2))
        assert self.hulls is not None, "meshes have vertices"
        return pick(self.hulls.points, self.hulls.start + number)


FEW = 24
"""Vertices of the largest hull up to which all of them are compared."""
FEW_TOGETHER = 256
"""The same outside of kernels, where they are compared in one operation."""
EDGES_TOGETHER = 8
"""Edges of a vertex that are compared in one operation outside of kernels."""


def _farthest(hulls: Hulls, direction: Vec3, first: Any):
    """Return the vertex of a hull that lies farthest in a direction."""
    polygons, together = hulls.polygons, are_rows_together()
    if together and polygons is not None and polygons.most_vertices <= FEW_TOGETHER:
        return _farthest_together(hulls, direction, polygons.most_vertices)
    if polygons is None or polygons.most_vertices <= FEW:
        return _farthest_of_all(hulls, direction)
    seed = _seed(hulls, polygons, direction)
    if first is not None:
        # The direction may have turned far since.
        along = lambda number: pick(hulls.points, hulls.start + number).dot(direction)
        seed = jnp.where(along(first) > along(seed), first, seed)
    climb = _climbed_together if together else _climbed
    return climb(hulls, polygons, direction, seed)


def _seed(hulls: Hulls, polygons: Polygons, direction: Vec3):
    """Return a vertex with which a search begins: the one that lies farthest in a similar
    direction."""
    if hulls.tables is None or polygons.farthest is None:
        return jnp.zeros_like(hulls.start)
    like = (-1, *(1 for _ in direction.x.shape[1:]))
    table = jnp.asarray(polygons.farthest.reshape(like))
    return read_rows(table, hulls.tables + nearest_corner(direction))


def _climbed(hulls: Hulls, polygons: Polygons, direction: Vec3, first: Any):
    """Climb along the edges of a hull. At a vertex that is not the farthest, some edge
    leads farther, because the hull is convex."""
    like = (-1, *(1 for _ in hulls.start.shape[1:]))
    starts = jnp.asarray(polygons.neighbor_starts.reshape(like))
    edges = jnp.asarray(polygons.neighbors.reshape(like))
    none = jnp.zeros(direction.x.shape, jnp.int32)
    begin = hulls.start + none
    along = lambda vertex: pick(hulls.points, begin + vertex).dot(direction)

    def visit(carry):
        vertex, most, edge, last = carry
        other = read_rows(edges, jnp.minimum(edge, last - 1))
        height = along(other)
        better = (edge < last) & (height > most)
        row = begin + other
        edge = jnp.where(better, read_rows(starts, row), edge + 1)
        last = jnp.where(better, read_rows(starts, row + 1), last)
        most = jnp.where(better, height, most)
        return jnp.where(better, other, vertex), most, edge, last

    first = first + none
    row = begin + first
    start = first, along(first), read_rows(starts, row), read_rows(starts, row + 1)
    more = lambda carry: jnp.any(carry[2] < carry[3])
    return lax.while_loop(more, visit, start)[0]


def _climbed_together(hulls: Hulls, polygons: Polygons, direction: Vec3, first: Any):
    """Climb as `_climbed` does, to the best of several edges at a time."""
    starts, edges = (
        jnp.asarray(x.reshape(-1, *(1 for _ in hulls.start.shape[1:])))
        for x in (polygons.neighbor_starts, polygons.neighbors)
    )
    none = jnp.zeros(direction.x.shape, jnp.int32)
    begin = hulls.start + none
    along = lambda vertex: pick(hulls.points, begin + vertex).dot(direction)

    def visit(carry):
        vertex, most, edge, last = carry
        row = edge + count_rows(jnp.zeros((EDGES_TOGETHER, *edge.shape[1:])))
        others = read_rows(edges, jnp.minimum(row, last - 1))
        heights = along(others)
        best = largest_row(heights)
        height = jnp.max(heights, axis=0)[None]
        better = (edge < last) & (height > most)
        vertex = jnp.where(better, read_rows(others, best), vertex)
        next_row = begin + vertex
        edge = jnp.where(better, read_rows(starts, next_row), edge + EDGES_TOGETHER)
        last = jnp.where(better, read_rows(starts, next_row + 1), last)
        return vertex, jnp.where(better, height, most), edge, last

    first = first + none
    row = begin + first
    start = first, along(first), read_rows(starts, row), read_rows(starts, row + 1)
    more = lambda carry: jnp.any(carry[2] < carry[3])
    return lax.while_loop(more, visit, start)[0]


def _farthest_together(hulls: Hulls, direction: Vec3, most: int):
    """Search all vertices of a hull in one operation."""
    rows = jnp.minimum(
        count_rows(jnp.zeros((most, *direction.x.shape[1:]))), hulls.count - 1
    )
    heights = pick(hulls.points, hulls.start + rows).dot(direction)
    return largest_row(heights)


_AT_ONCE = 4


def _farthest_of_all(hulls: Hulls, direction: Vec3):
    """Search all vertices of a hull."""
    last = hulls.start + hulls.count - 1

    def visit(carry):
        k, best, most = carry
        for ahead in range(_AT_ONCE):
            # Of what is not carried, all environments read the same rows.
            row = jnp.minimum(k + ahead, last)
            along = pick(hulls.points, row).dot(direction)
            better = along > most
            best = jnp.where(better, row - hulls.start, best)
            most = jnp.where(better, along, most)
        return k + _AT_ONCE, best, most

    first = pick(hulls.points, hulls.start).dot(direction)
    none = jnp.zeros(first.shape, hulls.start.dtype)
    more = lambda carry: jnp.any(carry[0] <= last)
    start = hulls.start, none, first
    return lax.while_loop(more, visit, start)[1]


def pick(values: Vec3, numbers) -> Vec3:
    """Return rows of each environment; `numbers`, `(k, *batch)`, are within bounds."""
    return Vec3(*(read_rows(x, numbers) for x in values))


def across(v: Vec3) -> Vec3:
    """Return a vector that is perpendicular to another one."""
    x, y, z = map(jnp.abs, v)
    zero = jnp.zeros_like(v.x)
    flat = (x <= y) & (x <= z)
    one, two = Vec3(zero, v.z, -v.y), Vec3(v.y, -v.x, zero)
    return Vec3(*(jnp.where(flat, p, q) for p, q in zip(one, two, strict=True)))


Corners = tuple[Corner, Corner]
"""One point of each of two shapes."""


class Placed(NamedTuple):
    """Two shapes in the frame of the first one."""

    first: Core
    second: Core
    offset: Pose

    @property
    def is_round(self) -> bool:
        """True if either shape has a round part."""
        return self.first.is_round or self.second.is_round

    @property
    def is_flat(self) -> bool:
        """True if both shapes have faces."""
        flat = GeomKind.CYLINDER, GeomKind.BOX, GeomKind.MESH
        return self.first.kind in flat and self.second.kind in flat

    def support(self, direction: Vec3, near: Corners | None = None) -> Corners:
        """Return the points of both that lie farthest in a direction and against it.

        **Arguments:**

        - `near`: points near the result, with which the searches begin.
        """
        back = self.offset.rot.T @ -direction
        one, two = (None, None) if near is None else near
        return self.first.support(direction, one), self.second.support(back, two)

    def difference(self, corners: Corners) -> Vec3:
        """Return the difference of a point of the first shape and one of the second."""
        one, two = self.ends(corners)
        return one - two

    def ends(self, corners: Corners) -> tuple[Vec3, Vec3]:
        """Return a point of the first shape and one of the second."""
        return self.first.point(corners[0]), self.offset.point(
            self.second.point(corners[1])
        )
