"""Intersections of rays with shapes, meshes and height fields."""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from ..collision.primitives import Shape, unit
from ..model import GeomKind, HeightFields, Meshes
from ..model.arrays import take
from ..spatial import clamp, Vec3
from ..spatial.vectors import vec3


# Intersections of rays with shapes, and tests for points inside shapes.
#
# Each function takes n shapes of one kind and one ray per shape. It returns the distance
# to the first intersection in multiples of the direction, negative if there is none. Rays
# that start inside a shape hit it from within, except planes, which are hit only from
# above.
#
# Source: MuJoCo, `mju_rayGeom`, `mju_insideGeom`.


_TINY = 1e-15


class Ray(NamedTuple):
    """Rays from a point along a unit vector."""

    point: Vec3
    direction: Vec3

    def at(self, distance) -> Vec3:
        """Return the points at some distances."""
        return self.point + (self.direction * distance)


class Hit(NamedTuple):
    """First intersections.

    - `dist`: distance; -1 if the ray misses the shape.
    - `normal`: unit normal of the surface, in the world; zero if the ray misses.
    """

    dist: Any
    normal: Vec3


def ray_shape(kind: GeomKind, shape: Shape, ray: Ray) -> Hit:
    """Intersect rays with shapes of one kind."""
    return world_hit(shape, *_FUNCTIONS[kind](shape.size, local_ray(shape, ray)))


def local_ray(shape: Shape, ray: Ray) -> Ray:
    """Return rays in the frames of shapes."""
    back = shape.pose.rot.T
    return Ray(back @ (ray.point - shape.pose.pos), back @ ray.direction)


def world_hit(shape: Shape, dist, normal: Vec3) -> Hit:
    """Return intersections in the world; negative distances are misses."""
    hit = dist >= 0.0
    world = shape.pose.rot @ normal
    normal = Vec3(*(jnp.where(hit, x, 0.0) for x in world))
    return Hit(jnp.where(hit, dist, -1.0), normal)


def inside(kind: GeomKind, shape: Shape, point: Vec3):
    """Test if points are inside shapes of one kind."""
    p = shape.pose.rot.T @ (point - shape.pose.pos)
    size = shape.size
    if kind is GeomKind.PLANE:
        return p.z < 0.0
    if kind is GeomKind.SPHERE:
        return p.dot(p) < size.x * size.x
    if kind is GeomKind.CAPSULE:
        over = p.z - clamp(p.z, -size.y, size.y)
        return p.x * p.x + p.y * p.y + over * over < size.x * size.x
    if kind is GeomKind.ELLIPSOID:
        scaled = Vec3(p.x / size.x, p.y / size.y, p.z / size.z)
        return scaled.dot(scaled) < 1.0
    if kind is GeomKind.CYLINDER:
        return (jnp.abs(p.z) < size.y) & (p.x * p.x + p.y * p.y < size.x * size.x)
    return (jnp.abs(p.x) < size.x) & (jnp.abs(p.y) < size.y) & (jnp.abs(p.z) < size.z)


class _Roots(NamedTuple):
    """Roots of a quadratic equation, the smaller first; -1 if there are none."""

    low: Any
    high: Any

    @property
    def first(self):
        """Return the smallest root that is not negative, or -1 if there is none."""
        high = jnp.where(self.high >= 0.0, self.high, -1.0)
        return jnp.where(self.low >= 0.0, self.low, high)


def _roots(a, b, c) -> _Roots:
    """Solve $a x^2 + 2 b x + c = 0$."""
    det = b * b - a * c
    real = (det >= 0.0) & (a >= _TINY)
    # The distance of a ray that grazes the surface is not differentiable.
    inner = real & (det > 0.0)
    root = jnp.where(inner, jnp.sqrt(jnp.where(inner, det, 1.0)), 0.0)
    scale = 1.0 / jnp.where(real, a, 1.0)
    low, high = (-b - root) * scale, (-b + root) * scale
    return _Roots(jnp.where(real, low, -1.0), jnp.where(real, high, -1.0))


class Best(NamedTuple):
    """The nearest intersection so far."""

    dist: Any
    normal: Vec3

    def or_nearer(self, dist, normal: Vec3, accepted) -> "Best":
        """Return this intersection, or another one that is valid and nearer."""
        nearer = accepted & (dist >= 0.0) & ((self.dist < 0.0) | (dist < self.dist))
        chosen = (jnp.where(nearer, a, b) for a, b in zip(normal, self.normal))
        return Best(jnp.where(nearer, dist, self.dist), Vec3(*chosen))


def no_hit(like) -> Best:
    """Return no intersection."""
    zero = jnp.zeros_like(like)
    return Best(zero - 1.0, Vec3(zero, zero, zero))


def safe_quotient(a, b):
    """Return $a / b$, and true if $b$ is not zero."""
    some = jnp.abs(b) > _TINY
    return jnp.where(some, a, 0.0) / jnp.where(some, b, 1.0), some


def _plane(size: Vec3, ray: Ray) -> Best:
    down = ray.direction.z <= -_TINY
    dist = jnp.where(down, -ray.point.z, -1.0) / jnp.where(down, ray.direction.z, 1.0)
    at = ray.at(dist)
    # A plane is hit only within the rectangle that is drawn.
    within = ((size.x <= 0.0) | (jnp.abs(at.x) <= size.x)) & (
        (size.y <= 0.0) | (jnp.abs(at.y) <= size.y)
    )
    zero = jnp.zeros_like(dist)
    up = Vec3(zero, zero, zero + 1.0)
    return no_hit(dist).or_nearer(dist, up, down & within)


def _sphere(size: Vec3, ray: Ray) -> Best:
    return _ball(size.x, ray, jnp.zeros_like(ray.point.z), _always)


def _always(z):
    return z == z


def _ball(radius, ray: Ray, center, accepted: Callable) -> Best:
    """Intersect with a sphere on the z axis, limited to accepted points."""
    point = Vec3(ray.point.x, ray.point.y, ray.point.z - center)
    roots = _roots(
        ray.direction.dot(ray.direction),
        ray.direction.dot(point),
        point.dot(point) - radius * radius,
    )
    best = no_hit(roots.low)
    for root in roots:
        at = point + (ray.direction * root)
        best = best.or_nearer(root, unit(at), accepted(ray.at(root).z))
    return best


def _tube(radius, ray: Ray) -> tuple[Any, Vec3]:
    """Intersect with an infinite cylinder about the z axis."""
    p, d = ray.point, ray.direction
    dist = _roots(
        d.x * d.x + d.y * d.y,
        d.x * p.x + d.y * p.y,
        p.x * p.x + p.y * p.y - radius * radius,
    ).first
    at = ray.at(dist)
    return dist, unit(Vec3(at.x, at.y, jnp.zeros_like(at.x)))


def _capsule(size: Vec3, ray: Ray) -> Best:
    radius, half = size.x, size.y
    dist, normal = _tube(radius, ray)
    between = jnp.abs(ray.at(dist).z) <= half
    best = no_hit(dist).or_nearer(dist, normal, between)
    top = _ball(radius, ray, half, lambda z: z >= half)
    bottom = _ball(radius, ray, -half, lambda z: z <= -half)
    for cap in (top, bottom):
        best = best.or_nearer(cap.dist, cap.normal, cap.dist >= 0.0)
    return best


def _ellipsoid(size: Vec3, ray: Ray) -> Best:
    p, d = ray.point, ray.direction
    weight = Vec3(*(1.0 / (s * s) for s in size))
    scale = lambda v: Vec3(*(a * b for a, b in zip(weight, v)))
    dist = _roots(scale(d).dot(d), scale(d).dot(p), scale(p).dot(p) - 1.0).first
    normal = unit(scale(ray.at(dist)))
    return no_hit(dist).or_nearer(dist, normal, dist >= 0.0)


def _cylinder(size: Vec3, ray: Ray) -> Best:
    radius, half = size.x, size.y
    best = no_hit(ray.point.x)
    for side in (-1.0, 1.0):
        dist, some = safe_quotient(side * half - ray.point.z, ray.direction.z)
        at = ray.at(dist)
        on_disk = at.x * at.x + at.y * at.y <= radius * radius
        zero = jnp.zeros_like(dist)
        best = best.or_nearer(dist, Vec3(zero, zero, zero + side), some & on_disk)
    dist, normal = _tube(radius, ray)
    return best.or_nearer(dist, normal, jnp.abs(ray.at(dist).z) <= half)


def _box(size: Vec3, ray: Ray) -> Best:
    best = no_hit(ray.point.x)
    for axis, others in enumerate(((1, 2), (0, 2), (0, 1))):
        for side in (-1.0, 1.0):
            dist, some = safe_quotient(
                side * size[axis] - ray.point[axis], ray.direction[axis]
            )
            at = ray.at(dist)
            for other in others:
                some = some & (jnp.abs(at[other]) <= size[other])
            zero = jnp.zeros_like(dist)
            normal = Vec3(*(zero + side if k == axis else zero for k in range(3)))
            best = best.or_nearer(dist, normal, some)
    return best


_FUNCTIONS: dict[GeomKind, Callable[[Vec3, Ray], Best]] = {
    GeomKind.PLANE: _plane,
    GeomKind.SPHERE: _sphere,
    GeomKind.CAPSULE: _capsule,
    GeomKind.ELLIPSOID: _ellipsoid,
    GeomKind.CYLINDER: _cylinder,
    GeomKind.BOX: _box,
}


# Intersections of rays with meshes.
#
# The first triangle that a ray hits is determined without derivatives, and the distance
# to its plane is computed with derivatives. Derivatives are therefore exact except where
# the triangle changes.
#
# Source: MuJoCo, `mj_rayMesh`, `ray_triangle`.


# Number of triangles that a ray is tested against at a time.
_BLOCK = 16
FAR = 1e30
_SLACK = 64.0
_SLOW = 1e-6
# Within a branch, a kernel takes about four times as long for each triangle.
_ALWAYS = 4096


class Triangle(NamedTuple):
    """Corners of triangles."""

    a: Vec3
    b: Vec3
    c: Vec3


def ray_mesh(meshes: Meshes, mesh: int, shape: Shape, ray: Ray) -> Hit:
    """Intersect one ray with all triangles of a mesh, from both sides."""
    local = local_ray(shape, ray)
    points = [meshes.hull(mesh), meshes.others(mesh)]
    batch = jnp.broadcast_shapes(*(x.shape[1:] for x in points))
    points = [jnp.broadcast_to(x, (x.shape[0], *batch)) for x in points]
    vertices = vec3(jnp.concatenate(points) if points[1].shape[0] else points[0])
    faces = meshes.surfaces.triangles(mesh)
    index = _first_triangle(vertices, faces, local)
    corners = (_pick_int(faces[:, k], index) for k in range(3))
    triangle = Triangle(*(pick(vertices, corner) for corner in corners))
    return plane_hit(shape, local, triangle, index >= 0)


def _first_triangle(vertices: Vec3, faces: np.ndarray, ray: Ray):
    """Return the index of the nearest triangle that a ray hits; -1 if it hits none.

    The triangles of a large mesh are visited only if the ray intersects their bounding
    box."""
    vertices, ray = lax.stop_gradient((vertices, ray))
    count = -(-len(faces) // _BLOCK)
    padding = np.repeat(faces[-1:], count * _BLOCK - len(faces), axis=0)
    padded = np.concatenate([faces, padding])
    # Outside the branch, because all environments share them.
    corners = Triangle(*(take(vertices, padded[:, k]) for k in range(3)))
    number = np.arange(count * _BLOCK, dtype=ray.point.x.dtype).reshape(count, _BLOCK)
    split = lambda x: x.reshape(count, _BLOCK, *x.shape[1:])
    blocks = jtu.tree_map(split, corners), jnp.asarray(number)
    start = _nothing(vertices, ray)
    visit = ft.partial(_visit, ray)
    if count == 1:
        return visit(start, jtu.tree_map(lambda x: x[0], blocks))[0][1].astype(int)
    search = lambda: lax.scan(visit, start, blocks)[0]
    if len(faces) <= _ALWAYS:
        return search()[1].astype(int)
    near = jnp.any(_crosses_box(vertices, ray))
    return lax.cond(near, search, lambda: start)[1].astype(int)


def _visit(ray: Ray, nearest, block):
    """Test a ray against a block of triangles."""
    triangle, number = block
    far, found = nearest
    dist = triangle_distances(triangle, ray)
    dist = jnp.where(dist >= 0.0, dist, FAR)
    least = jnp.min(dist, axis=0, keepdims=True)
    # The first of equally small ones.
    own = number.reshape(-1, *(1 for _ in dist.shape[1:]))
    own = jnp.min(jnp.where(dist <= least, own, FAR), axis=0, keepdims=True)
    nearer = least < far
    return (jnp.where(nearer, least, far), jnp.where(nearer, own, found)), None


def _crosses_box(vertices: Vec3, ray: Ray):
    """Test if a ray intersects the bounding box of points, up to rounding."""
    enter, leave = jnp.zeros_like(ray.point.x), jnp.full_like(ray.point.x, FAR)
    for at, rate, x in zip(ray.point, ray.direction, vertices):
        low, high = (f(x, axis=0, keepdims=True) for f in (jnp.min, jnp.max))
        slack = 1e-3 * (high - low)
        moves = jnp.abs(rate) > _SLOW
        scale = 1.0 / jnp.where(moves, rate, 1.0)
        ends = (low - slack - at) * scale, (high + slack - at) * scale
        enter = jnp.where(moves, jnp.maximum(enter, jnp.minimum(*ends)), enter)
        leave = jnp.where(moves, jnp.minimum(leave, jnp.maximum(*ends)), leave)
    return enter <= leave


def _nothing(vertices: Vec3, ray: Ray):
    """Return the distance and the index for no triangle, with all batch axes."""
    zero = jnp.zeros_like(ray.point.x + ray.direction.x + 0.0 * vertices.x[:1])
    return zero + FAR, zero - 1.0


def _pick_int(values: np.ndarray, index):
    return jnp.asarray(values, int)[jnp.maximum(index, 0)]


def pick(tree: Any, index):
    """Return `x[index]` for every array, with a computed index `(1, *batch)`."""

    def one(x):
        shared = all(size == 1 for size in x.shape[1:])
        if shared:
            return x.reshape(-1).at[index].get(mode="promise_in_bounds")
        full = jnp.broadcast_to(x, (x.shape[0], *index.shape[1:]))
        return jnp.take_along_axis(full, index, axis=0, mode="promise_in_bounds")

    return jtu.tree_map(one, tree)


def triangle_distances(triangle: Triangle, ray: Ray):
    """Return distances to triangles; -1 if the ray misses (Möller, Trumbore)."""
    first, second = triangle.b - triangle.a, triangle.c - triangle.a
    across = ray.direction.cross(second)
    det = first.dot(across)
    some = det != 0.0
    scale = 1.0 / jnp.where(some, det, 1.0)
    start = ray.point - triangle.a
    u = start.dot(across) * scale
    along = start.cross(first)
    v = ray.direction.dot(along) * scale
    dist = second.dot(along) * scale
    # A ray through an edge hits one of its triangles, despite rounding.
    slack = _SLACK * float(jnp.finfo(u.dtype).eps)
    hit = some & (u >= -slack) & (v >= -slack) & (u + v <= 1.0 + slack)
    return jnp.where(hit, dist, -1.0)


def plane_hit(shape: Shape, ray: Ray, triangle: Triangle, exists) -> Hit:
    """Intersect rays with the planes of triangles."""
    across = (triangle.b - triangle.a).cross(triangle.c - triangle.a)
    slope = across.dot(ray.direction)
    # The ray is not parallel to the plane, because it was hit; otherwise, any triangle
    # stands for none.
    exists = exists & (slope != 0.0)
    dist = (triangle.a - ray.point).dot(across) / jnp.where(exists, slope, 1.0)
    # Normalize the edges first, because the area of a triangle may be tiny.
    edges = unit(triangle.b - triangle.a), unit(triangle.c - triangle.a)
    normal = unit(edges[0].cross(edges[1]))
    return world_hit(shape, jnp.where(exists, dist, -1.0), normal)


# Intersections of rays with height fields.
#
# The first triangle that a ray hits is determined without derivatives, and the distance
# to its plane is computed with derivatives. Derivatives are therefore exact except where
# the triangle changes.
#
# Source: MuJoCo, `mj_rayHfield`. A ray that starts inside a terrain hits its surface, its
# sides or its bottom; MuJoCo has an additional horizontal face at z = 0.


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
