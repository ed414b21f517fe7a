"""The first of several shapes that a ray hits."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..collision.primitives import Shape
from ..model import GeomKind, System
from ..model.arrays import concatenate
from ..model.kinds import require_known
from ..spatial import Vec3
from ._rays import Hit, Ray, ray_height_field, ray_mesh, ray_shape


_FAR = 1e30
_SIMPLE = tuple(k for k in GeomKind if k not in (GeomKind.MESH, GeomKind.HFIELD))


def first_smallest(values):
    """Return 1 at the first of the smallest values of each environment, else 0."""
    index = jnp.arange(values.shape[0], dtype=values.dtype)
    index = index.reshape(-1, *(1 for _ in values.shape[1:]))
    values = jax.lax.stop_gradient(values)
    smallest = values <= jnp.min(values, axis=0, keepdims=True)
    first = jnp.min(jnp.where(smallest, index, values.shape[0]), axis=0, keepdims=True)
    return jnp.where(index == first, 1.0, 0.0).astype(values.dtype)


def select(weights, tree_: Any) -> Any:
    """Return the sum of the rows of every array times weights, with leading axis 1."""
    one = lambda x: jnp.sum(jnp.where(weights > 0.0, x, 0.0), axis=0, keepdims=True)
    return jax.tree_util.tree_map(one, tree_)


def first_hit(
    sys: System,
    shapes_of: Callable[[Sequence[int]], Shape],
    ray: Ray,
    geoms: Sequence[int],
) -> Hit:
    """Intersect one ray with shapes; -1 and zeros if it hits none.

    **Arguments:**

    - `shapes_of`: function that returns the shapes of some geoms.
    - `ray`: a ray, `(1, *batch)`.
    - `geoms`: shapes that the ray can hit.
    """
    zero = jnp.zeros_like(ray.point.x + ray.direction.x)
    hits = [Hit(zero - 1.0, Vec3(zero, zero, zero))]
    for geom in geoms:
        hits += _hits_with_data(sys, shapes_of, ray, geom)
    for kind in _SIMPLE:
        own = [g for g in geoms if sys.geoms.kinds[g] is kind]
        if own:
            shapes = shapes_of(own)
            like = shapes.pose.pos.x
            rays = Ray(repeat(ray.point, like), repeat(ray.direction, like))
            hits.append(ray_shape(kind, shapes, rays))
    found = concatenate(hits)
    order = jnp.where(found.dist >= 0.0, found.dist, _FAR)
    return select(first_smallest(order), found)


def _hits_with_data(
    sys: System, shapes_of: Callable[[Sequence[int]], Shape], ray: Ray, geom: int
) -> list[Hit]:
    """Intersect one ray with a mesh or a height field, if the shape is one."""
    kind = sys.geoms.kinds[geom]
    require_known(kind, "are not seen by rays")
    if kind in _SIMPLE:
        return []
    shape, data = shapes_of([geom]), sys.geoms.data[geom]
    if kind is GeomKind.MESH:
        return [ray_mesh(sys.meshes, data, shape, ray)]
    return [ray_height_field(sys.height_fields, data, shape, ray)]


def repeat(v: Vec3, like) -> Vec3:
    """Broadcast a vector with one row to the shape of an array."""
    return Vec3(*(x + jnp.zeros_like(like) for x in v))
