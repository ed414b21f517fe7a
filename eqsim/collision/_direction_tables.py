"""Tables of convex hulls by direction, and reads of rows that differ between
environments.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._lists import read_rows
from ..model import HullGraph
from ..model.meshes import REFERENCE_SIZE
from ..spatial import Vec3


# Rows of arrays `(n, *batch)` whose number differs between environments.


def count_rows(x):
    """Return the number of each row."""
    rows = jnp.arange(x.shape[0], dtype=jnp.int32)
    return rows.reshape(-1, *(1 for _ in x.shape[1:])) + jnp.zeros(x.shape, jnp.int32)


def write_row(x, number, value, when):
    """Replace one row of each environment, where `when` holds."""
    batch = x.shape[1:]
    whole = lambda y: jnp.broadcast_to(y, (1, *batch))
    others = jnp.indices((1, *batch), dtype=jnp.int32, sparse=True)[1:]
    place = whole(jnp.where(when, number, x.shape[0]))
    rows = x.at[(place, *others)]
    return rows.set(whole(value), mode="drop", wrap_negative_indices=False)


def largest_row(x):
    """Return the number of the first row with the largest value."""
    return jnp.argmax(x, axis=0)[None].astype(jnp.int32)


# Tables of convex hulls by direction: the farthest vertex, and how far it lies.
#
# The directions are those of the corners of 16 x 16 cells on each side of a cube. They are
# not normalized: their largest coordinate is one. Between three corners, the *support height*
# $h(d) = \max_k v_k \cdot d$ of a hull is bounded by linear interpolation,
# $h(\sum_i w_i c_i) \le \sum_i w_i h(c_i)$, because it is convex. The slope of the
# interpolation is a point that lies as far as this bound, near the farthest vertex.
#
# Tables belong to the vertices with which a mesh was read. Those of today, $v_k$, may differ:
# with vertices $r_k$ of the table, $h(d) \le s h_r(d) + \max_k |v_k - s r_k| |d|$ for any
# scale $s$.


CELLS = 16
"""Cells along each edge of the cube."""
_CORNERS = CELLS + 1
_PER_SIDE = _CORNERS * _CORNERS
TABLE_SIZE = 6 * _PER_SIDE
"""Entries of each hull: sides by axis and sign, then corners row by row. Coordinates within
a side follow its axis cyclically."""


def corner_directions() -> np.ndarray:
    """Return the directions of all corners, `(TABLE_SIZE, 3)`."""
    line = np.linspace(-1.0, 1.0, _CORNERS)
    return np.array(
        [
            np.roll([sign, first, second], axis)
            for axis in range(3)
            for sign in (-1.0, 1.0)
            for first in line
            for second in line
        ]
    )


class DirectionTables(NamedTuple):
    """Entries of all hulls, one after the other; entries of meshes without a hull are zero.

    - `farthest`: the vertex that lies farthest, counted from the first one of its hull.
    - `heights`: support height of the hull whose largest coordinate is one.
    """

    farthest: np.ndarray
    heights: np.ndarray


@ft.lru_cache(maxsize=256)
def direction_tables(graph: HullGraph) -> DirectionTables | None:
    """Return the tables of all hulls; None if their vertices are not known."""
    reference, directions = graph.reference / REFERENCE_SIZE, corner_directions()
    if not len(reference):
        return None
    farthest, heights = [], []
    for first, last in zip(graph.vertex_starts[:-1], graph.vertex_starts[1:]):
        if first == last:
            farthest.append(np.zeros(TABLE_SIZE, int))
            heights.append(np.zeros(TABLE_SIZE))
            continue
        along = directions @ reference[first:last].T
        # Of vertices that are equally far up to rounding, the first one.
        farthest.append(np.argmax(np.round(along / 1e-5), axis=1))
        heights.append(np.max(along, axis=1))
    return DirectionTables(np.concatenate(farthest), np.concatenate(heights))


class _Place(NamedTuple):
    """A point of the cube, in some direction.

    - `side`: number of the side.
    - `size`: its largest coordinate.
    - `x`, `y`: coordinates within the side, in cells, from 0 to `CELLS`.
    - `on_x`, `on_y`: true if the side is perpendicular to the first or second axis.
    - `sign`: sign of the largest coordinate.
    """

    side: Any
    size: Any
    x: Any
    y: Any
    on_x: Any
    on_y: Any
    sign: Any

    def corner(self, column, row):
        """Return the entry of a corner, which is within bounds."""
        return self.side * _PER_SIDE + column * _CORNERS + row

    def vector(self, along, first, second) -> Vec3:
        """Return a vector from its coordinate along the axis of the side, and those
        within it."""
        pick = lambda a, b, c: jnp.where(self.on_x, a, jnp.where(self.on_y, b, c))
        return Vec3(
            pick(along, second, first),
            pick(first, along, second),
            pick(second, first, along),
        )


def _place(direction: Vec3) -> _Place:
    x, y, z = direction
    on_x = (jnp.abs(x) >= jnp.abs(y)) & (jnp.abs(x) >= jnp.abs(z))
    on_y = ~on_x & (jnp.abs(y) >= jnp.abs(z))
    pick = lambda a, b, c: jnp.where(on_x, a, jnp.where(on_y, b, c))
    main = pick(x, y, z)
    positive, size = main > 0.0, jnp.abs(main)
    side = 2 * pick(*(jnp.full(main.shape, k, jnp.int32) for k in range(3)))
    scale = 0.5 * CELLS / jnp.where(size > 0.0, size, 1.0)

    def cells(value):
        value = value * scale + 0.5 * CELLS
        # Comparisons that are false for what is not a number.
        value = jnp.where(value > 0.0, value, 0.0)
        return jnp.where(value < CELLS, value, float(CELLS))

    return _Place(
        side=side + positive.astype(jnp.int32),
        size=size,
        x=cells(pick(y, z, x)),
        y=cells(pick(z, x, y)),
        on_x=on_x,
        on_y=on_y,
        sign=jnp.where(positive, 1.0, -1.0).astype(size.dtype),
    )


def nearest_corner(direction: Vec3):
    """Return the entry of the corner that is nearest to a direction."""
    place = _place(direction)
    whole = lambda x: (x + 0.5).astype(jnp.int32)
    return place.corner(whole(place.x), whole(place.y))


def outer_point(table: Any, start: Any, direction: Vec3) -> Vec3:
    """Return a point that lies at least as far in a direction as all of a hull whose largest
    coordinate is one.

    **Arguments:**

    - `table`: `DirectionTables.heights`, as an array with the axes of the batch.
    - `start`: first entry of the hull.
    """
    place = _place(direction)
    cell = lambda x: jnp.minimum(x.astype(jnp.int32), CELLS - 1)
    column, row = cell(place.x), cell(place.y)
    right = place.x - column.astype(place.x.dtype)
    up = place.y - row.astype(place.y.dtype)
    # A cell consists of two triangles. The corner of the right angle is the one near the
    # direction.
    far = (right + up > 1.0).astype(jnp.int32)
    column, row = column + far, row + far
    step = 1 - 2 * far
    height = lambda column, row: read_rows(table, start + place.corner(column, row))
    corner = height(column, row)
    width = (2.0 / CELLS) * step.astype(corner.dtype)
    first = (height(column + step, row) - corner) / width
    second = (height(column, row + step) - corner) / width
    coordinate = lambda x: x.astype(corner.dtype) * (2.0 / CELLS) - 1.0
    along = corner - coordinate(column) * first - coordinate(row) * second
    return place.vector(place.sign * along, first, second)
