"""The cells of a height field as triangular prisms, and which of them a shape may touch.

A cell is divided along the diagonal from its first corner to the opposite one into a left
(0) and a right (1) half. Each is a prism between the bottom and a triangle of the surface,
whose vertices are numbered 0 to 2 at the bottom, and 3 to 5 above:

    2 ---- 1          ---- 1
    | 0  /          /   1  |
    |  /          /        |
    0            0 ------- 2        x to the right, y up

Source: MuJoCo, `mjc_ConvexHField`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..kinematics._forward import Pose
from ..spatial import Vec3
from ._points import Shape, unit
from ._rows import read_rows


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
    slope = unit((b - a) ^ (c - a)) * side
    across = unit(Vec3(b.y * side, -b.x * side, jnp.zeros_like(side + b.x)))
    gaps += [(slope | (pos - a)) - bounds.extent(slope)]
    gaps += [(across | pos) - bounds.extent(across)]
    gap = gaps[0]
    for other in gaps[1:]:
        gap = jnp.maximum(gap, other)
    return gap < bounds.margin


def top_middle(terrain: Terrain, cell: Cell) -> Vec3:
    """Return the middle of the triangle above, relative to the first corner."""
    numbers = [jnp.full_like(cell.half, k) for k in (3, 4, 5)]
    a, b, c = (terrain.vertex(cell, number) for number in numbers)
    return (a + b + c) * (1.0 / 3.0)
