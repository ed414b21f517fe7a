r"""Intersections of rays with height fields.

The first triangle that a ray hits is determined without derivatives, and the distance
to its plane is computed with derivatives. Derivatives are therefore exact except where
the triangle changes.

Source: MuJoCo, `mj_rayHfield`. A ray that starts inside a terrain hits its surface, its
sides or its bottom; MuJoCo has an additional horizontal face at z = 0.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..collision._shapes import Shape
from ..model import HeightFields
from ..spatial import Vec3
from ._ray import Hit, local_ray, no_hit, Ray, safe_quotient, world_hit
from ._ray_meshes import FAR, pick, plane_hit, Triangle, triangle_distances


class _Grid(NamedTuple):
    """A height field in its frame.

    - `heights`: z of the grid points, in row-major order, `(rows * columns, *batch)`.
    - `corner`, `step`: x and y of the first grid point, and distances between
        neighbors.
    - `base`: depth of the bottom.
    """

    heights: Any
    corner: tuple[Any, Any]
    step: tuple[Any, Any]
    base: Any
    rows: int
    columns: int

    def triangles(self, row, column) -> tuple[Triangle, Triangle]:
        """Return both triangles of cells."""
        near, far = self._point(row, column), self._point(row + 1, column + 1)
        right, left = self._point(row, column + 1), self._point(row + 1, column)
        return Triangle(near, right, far), Triangle(near, far, left)

    def _point(self, row, column) -> Vec3:
        z = pick(self.heights, row * self.columns + column)
        dtype = self.heights.dtype
        x = self.corner[0] + column.astype(dtype) * self.step[0]
        y = self.corner[1] + row.astype(dtype) * self.step[1]
        return Vec3(x, y, z)


def ray_height_field(fields: HeightFields, field: int, shape: Shape, ray: Ray) -> Hit:
    """Intersect one ray with a terrain: its surface, sides and bottom.

    The ray visits only the cells of the grid below or above it."""
    local = local_ray(shape, ray)
    grid = _grid(fields, field)
    hits = [_sides(grid, shape, local), _surface(grid, shape, local)]
    both = [jnp.where(hit.dist >= 0.0, hit.dist, FAR) for hit in hits]
    first = both[0] <= both[1]
    return jtu.tree_map(lambda x, y: jnp.where(first, x, y), *hits)


def _grid(fields: HeightFields, field: int) -> _Grid:
    first, last = fields.span(field)
    x, y, base = (fields.size[field : field + 1, k] for k in range(3))
    rows, columns = fields.rows[field], fields.columns[field]
    step = x * (2.0 / (columns - 1)), y * (2.0 / (rows - 1))
    return _Grid(fields.heights[first:last], (-x, -y), step, base, rows, columns)


class _Walk(NamedTuple):
    """State of a ray that traverses the cells of a grid.

    - `row`, `column`: current cell, as floating-point numbers.
    - `next_x`, `next_y`: distances at which the ray leaves its column and its row.
    - `dist`: smallest distance to a triangle; `upper`: true if it is the second
        triangle.
    - `active`: true while the ray has not hit anything and is over the grid.
    """

    row: Any
    column: Any
    next_x: Any
    next_y: Any
    dist: Any
    upper: Any
    active: Any


def _surface(grid: _Grid, shape: Shape, ray: Ray) -> Hit:
    """Intersect a ray with the surface of a terrain."""
    found = _walk(*lax.stop_gradient((_arrays(grid), ray)), grid)
    hit = found.dist >= 0.0
    row, column = (
        jnp.where(hit, x, 0.0).astype(int) for x in (found.row, found.column)
    )
    lower, upper = grid.triangles(row, column)
    chosen = jtu.tree_map(lambda x, y: jnp.where(found.upper > 0.0, y, x), lower, upper)
    return plane_hit(shape, ray, chosen, hit)


def _arrays(grid: _Grid):
    return grid.heights, grid.corner, grid.step, grid.base


def _begin(grid: _Grid, ray: Ray, rates) -> _Walk:
    """Return the first cell of a ray that enters a grid."""
    # Cell indices are in units of grid steps.
    x = (ray.point.x - grid.corner[0]) / grid.step[0]
    y = (ray.point.y - grid.corner[1]) / grid.step[1]
    enter, leave = _interval(x, rates[0], grid.columns - 1)
    below, above = _interval(y, rates[1], grid.rows - 1)
    enter = jnp.maximum(jnp.maximum(enter, below), 0.0)
    leave = jnp.minimum(leave, above)
    cell = lambda at, rate, count: jnp.clip(jnp.floor(at + enter * rate), 0, count - 2)
    column, row = cell(x, rates[0], grid.columns), cell(y, rates[1], grid.rows)
    # With all batch axes, because a loop carries it.
    zero = jnp.zeros_like(enter + 0.0 * grid.heights[:1])
    return _Walk(
        row=row + zero,
        column=column + zero,
        next_x=_crossing(x, rates[0], column) + zero,
        next_y=_crossing(y, rates[1], row) + zero,
        dist=zero - 1.0,
        upper=zero,
        active=jnp.where(enter <= leave, 1.0, 0.0) + zero,
    )


def _walk(arrays, ray: Ray, like: _Grid) -> _Walk:
    """Traverse cells along a ray (Amanatides, Woo) until it hits a triangle."""
    grid = _Grid(*arrays, rows=like.rows, columns=like.columns)
    rates = ray.direction.x / grid.step[0], ray.direction.y / grid.step[1]
    start, period = _begin(grid, ray, rates), tuple(map(_period, rates))

    def step(walk: _Walk) -> _Walk:
        cells = (x.astype(int) for x in (walk.row, walk.column))
        lower, upper = (
            triangle_distances(each, ray) for each in grid.triangles(*cells)
        )
        second = (upper >= 0.0) & ((lower < 0.0) | (upper < lower))
        dist = jnp.where(second, upper, lower)
        along_x = walk.next_x <= walk.next_y
        column = walk.column + jnp.where(along_x, jnp.sign(rates[0]), 0.0)
        row = walk.row + jnp.where(along_x, 0.0, jnp.sign(rates[1]))
        over = (column >= 0.0) & (column <= grid.columns - 2.0)
        over = over & (row >= 0.0) & (row <= grid.rows - 2.0)
        over = over & (jnp.minimum(walk.next_x, walk.next_y) < FAR)
        go_on = over & (dist < 0.0)
        new = _Walk(
            row=jnp.where(go_on, row, walk.row),
            column=jnp.where(go_on, column, walk.column),
            next_x=walk.next_x + jnp.where(along_x, period[0], 0.0),
            next_y=walk.next_y + jnp.where(along_x, 0.0, period[1]),
            dist=dist,
            upper=jnp.where(second, 1.0, 0.0) + 0.0 * dist,
            active=jnp.where(go_on, 1.0, 0.0),
        )
        return jtu.tree_map(lambda a, b: jnp.where(walk.active > 0.0, a, b), new, walk)

    return lax.while_loop(lambda walk: jnp.any(walk.active > 0.0), step, start)


def _interval(at, rate, width):
    """Return the distances at which a ray is between 0 and `width`."""
    moves = rate != 0.0
    scale = 1.0 / jnp.where(moves, rate, 1.0)
    ends = -at * scale, (width - at) * scale
    within = (at >= 0.0) & (at <= width)
    still = jnp.where(within, -FAR, FAR), jnp.where(within, FAR, -FAR)
    low = jnp.where(moves, jnp.minimum(*ends), still[0])
    return low, jnp.where(moves, jnp.maximum(*ends), still[1])


def _crossing(at, rate, cell):
    """Return the distance at which a ray leaves its row or column."""
    border = cell + jnp.where(rate > 0.0, 1.0, 0.0)
    return jnp.where(
        rate == 0.0, FAR, (border - at) / jnp.where(rate == 0.0, 1.0, rate)
    )


def _period(rate):
    return 1.0 / jnp.where(rate == 0.0, 1.0, jnp.abs(rate))


def _sides(grid: _Grid, shape: Shape, ray: Ray) -> Hit:
    """Intersect a ray with the four sides and the bottom of a terrain."""
    half = Vec3(-grid.corner[0], -grid.corner[1], grid.base)
    best = no_hit(ray.point.x + 0.0 * grid.heights[:1])
    for axis in (0, 1):
        for side in (-1.0, 1.0):
            dist, some = safe_quotient(
                side * half[axis] - ray.point[axis], ray.direction[axis]
            )
            at = ray.at(dist)
            other = 1 - axis
            within = (jnp.abs(at[other]) <= half[other]) & (at.z >= -half.z)
            within = within & (at.z < _border(grid, axis, side, at[other]))
            zero = jnp.zeros_like(dist)
            normal = Vec3(*(zero + side if k == axis else zero for k in range(3)))
            best = best.or_nearer(dist, normal, some & within)
    dist, some = safe_quotient(-half.z - ray.point.z, ray.direction.z)
    at, zero = ray.at(dist), jnp.zeros_like(dist)
    within = (jnp.abs(at.x) <= half.x) & (jnp.abs(at.y) <= half.y)
    best = best.or_nearer(dist, Vec3(zero, zero, zero - 1.0), some & within)
    return world_hit(shape, best.dist, best.normal)


def _border(grid: _Grid, axis: int, side: float, along):
    """Return the height of a terrain above one of its sides."""
    along = lax.stop_gradient(along)
    other, last = 1 - axis, (grid.columns, grid.rows)
    number = (along - grid.corner[other]) / grid.step[other]
    cell = jnp.clip(jnp.floor(number), 0.0, last[other] - 2.0)
    first = cell.astype(int)
    fixed = 0 if side < 0.0 else last[axis] - 1
    index = (lambda k: k * grid.columns + fixed, lambda k: fixed * grid.columns + k)[
        axis
    ]
    low, high = pick(grid.heights, index(first)), pick(grid.heights, index(first + 1))
    return low + (number - cell) * (high - low)
