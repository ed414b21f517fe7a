r"""Intersections of rays with meshes.

The first triangle that a ray hits is determined without derivatives, and the distance
to its plane is computed with derivatives. Derivatives are therefore exact except where
the triangle changes.

Source: MuJoCo, `mj_rayMesh`, `ray_triangle`.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from ..collision._shapes import Shape
from ..model import Meshes
from ..model._gather import take
from ..spatial import Vec3, vec3
from ._ray import Hit, local_ray, Ray, unit, world_hit


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
    across = ray.direction ^ second
    det = first | across
    some = det != 0.0
    scale = 1.0 / jnp.where(some, det, 1.0)
    start = ray.point - triangle.a
    u = (start | across) * scale
    along = start ^ first
    v = (ray.direction | along) * scale
    dist = (second | along) * scale
    # A ray through an edge hits one of its triangles, despite rounding.
    slack = _SLACK * float(jnp.finfo(u.dtype).eps)
    hit = some & (u >= -slack) & (v >= -slack) & (u + v <= 1.0 + slack)
    return jnp.where(hit, dist, -1.0)


def plane_hit(shape: Shape, ray: Ray, triangle: Triangle, exists) -> Hit:
    """Intersect rays with the planes of triangles."""
    across = (triangle.b - triangle.a) ^ (triangle.c - triangle.a)
    slope = across | ray.direction
    # The ray is not parallel to the plane, because it was hit; otherwise, any triangle
    # stands for none.
    exists = exists & (slope != 0.0)
    dist = ((triangle.a - ray.point) | across) / jnp.where(exists, slope, 1.0)
    # Normalize the edges first, because the area of a triangle may be tiny.
    edges = unit(triangle.b - triangle.a), unit(triangle.c - triangle.a)
    normal = unit(edges[0] ^ edges[1])
    return world_hit(shape, jnp.where(exists, dist, -1.0), normal)
