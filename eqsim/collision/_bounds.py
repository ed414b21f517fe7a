"""Bounds of shapes, which decide what is worth a closer look."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from ..model import GeomKind, System
from ..model.arrays import concatenate, put, take, take_or_zero
from ..model.kinds import AnyKind, kind_order
from ..model.meshes import REFERENCE_SIZE
from ..spatial import safe_sqrt, Vec3
from ..spatial.vectors import vec3
from .points import half_extents


UNBOUNDED = 1e10
"""Radius of planes and height fields, m: larger than any distance, while its square is
still finite in single precision."""


def bounding_radius(sys: System):
    """Compute radii of spheres about the origins of the shapes that contain them,
    `(ngeom, *batch)`.

    Planes and height fields have the radius `UNBOUNDED`. Derivatives are zero, as bounds
    only decide what is computed.
    """
    half = shape_extents(sys)
    x, y, z = (_squared(v) for v in half)
    corners = safe_sqrt(x + y + z)
    longest = safe_sqrt(jnp.maximum(jnp.maximum(x, y), z))
    across = safe_sqrt(x + z)
    others: dict[AnyKind, Any] = {GeomKind.BOX: corners, GeomKind.CYLINDER: across}

    def radii(kind: AnyKind, own: list[int]):
        if kind is GeomKind.MESH:
            meshes = [sys.geoms.data[geom] for geom in own]
            return safe_sqrt(_largest_of_meshes(sys, meshes, lambda v: v.dot(v)))
        other = longest if isinstance(kind, GeomKind) else corners
        return take(others.get(kind, other), own)

    parts = [radii(kind, own) for kind, own in _members(sys)]
    return lax.stop_gradient(_in_order(sys, parts))


def shape_boxes(sys: System, geoms: Sequence[int]) -> tuple[Vec3, Vec3]:
    """Compute centers and half sizes of boxes about shapes, in their frames, `(n,
    *batch)`. Planes have half sizes of zero, height fields the half height `UNBOUNDED`.
    Derivatives are zero."""
    size, parts, order = vec3(sys.geoms.size), [], []
    kinds = [sys.geoms.kinds[geom] for geom in geoms]
    for kind in sorted(set(kinds), key=kind_order):
        own = [k for k, other in enumerate(kinds) if other == kind]
        order += own
        if kind is GeomKind.MESH:
            meshes = [sys.geoms.data[geoms[k]] for k in own]
            high = _largest_of_meshes(sys, meshes, lambda v: v)
            low = -_largest_of_meshes(sys, meshes, lambda v: -v)
            parts.append(((low + high) * 0.5, (high - low) * 0.5))
            continue
        one = take(size, [geoms[k] for k in own])
        zero = Vec3(*(jnp.zeros_like(x) for x in one))
        half = zero if kind is GeomKind.PLANE else half_extents(kind, one)
        if kind is GeomKind.HFIELD:
            fields = [sys.geoms.data[geoms[k]] for k in own]
            half = vec3(take(sys.height_fields.size, fields))
            half = half._replace(z=jnp.full_like(half.z, UNBOUNDED))
        parts.append((zero, half))
    return lax.stop_gradient(put(concatenate(parts), order, len(geoms)))


def hull_changes(
    sys: System, geoms: Sequence[int], center: Vec3, half: Vec3
) -> tuple[Any, Any]:
    """Compute how far the hulls of shapes differ from those of `HullGraph.reference`: their
    size relative to it, and the largest distance of a vertex, m, `(n, *batch)`. The
    distance is zero for other shapes. Derivatives are zero.

    **Arguments:**

    - `center`, `half`: boxes about the shapes, see `shape_boxes`.
    """
    x, y, z = (jnp.abs(c) + h for c, h in zip(center, half, strict=True))
    scale = lax.stop_gradient(jnp.maximum(jnp.maximum(x, y), z))
    hulls = sys.meshes.hulls
    kinds, data = sys.geoms.kinds, sys.geoms.data
    is_mesh = [kinds[geom] is GeomKind.MESH for geom in geoms]
    if not (len(hulls.reference) and any(is_mesh)):
        return scale, jnp.zeros_like(scale)
    places = {data[geom]: k for k, geom in enumerate(geoms) if is_mesh[k]}
    rows = [places.get(mesh, 0) for mesh in _mesh_of_vertex(sys)]
    size, like = take(scale, rows), (-1, *(1 for _ in scale.shape[1:]))
    reference = (hulls.reference / REFERENCE_SIZE).T
    apart = Vec3(
        *(
            p - size * jnp.asarray(known.reshape(like), p.dtype)
            for p, known in zip(vec3(sys.meshes.vertices), reference, strict=True)
        )
    )
    squares = _largest_of_hulls(sys, lax.stop_gradient(apart.dot(apart)))
    own = [data[geom] if mesh else -1 for geom, mesh in zip(geoms, is_mesh)]
    return scale, take_or_zero(safe_sqrt(squares), own)


def shape_extents(sys: System) -> Vec3:
    """Compute half sizes of boxes about the origins of the shapes, in their frames,
    `(ngeom, *batch)`; `UNBOUNDED` for planes and height fields. Derivatives are zero."""
    size = vec3(sys.geoms.size)
    parts = []
    for kind, own in _members(sys):
        one = take(size, own)
        if kind is GeomKind.MESH:
            meshes = [sys.geoms.data[geom] for geom in own]
            parts.append(_largest_of_meshes(sys, meshes, _absolute))
        elif kind in (GeomKind.PLANE, GeomKind.HFIELD):
            parts.append(Vec3(*(jnp.full_like(x, UNBOUNDED) for x in one)))
        else:
            parts.append(half_extents(kind, one))
    full = Vec3(*(_in_order(sys, list(each)) for each in zip(*parts, strict=True)))
    return lax.stop_gradient(full)


def _members(sys: System) -> list[tuple[AnyKind, list[int]]]:
    """Group shapes by kind."""
    kinds = sys.geoms.kinds
    order = sorted(set(kinds), key=kind_order)
    return [(k, [g for g, own in enumerate(kinds) if own == k]) for k in order]


def _in_order(sys: System, parts: list):
    """Join arrays of all groups of `_members`."""
    order = [geom for _, own in _members(sys) for geom in own]
    if not order:
        return sys.geoms.size[:, 0]
    return put(concatenate(parts), order, sys.ngeom)


def _mesh_of_vertex(sys: System) -> list[int]:
    """Return the mesh of each vertex of `Meshes.vertices`."""
    counts = np.diff(sys.meshes.hulls.vertex_starts)
    return np.repeat(np.arange(len(counts)), counts).tolist()


def _largest_of_hulls(sys: System, values):
    """Return the largest value among the vertices of each hull, `(nmesh, *batch)`.

    One operation for all vertices: kernels compute it by a loop and unroll no hull.
    """
    mesh, count = np.array(_mesh_of_vertex(sys), int), len(sys.meshes.names)
    return jax.ops.segment_max(values, mesh, count, indices_are_sorted=True)


def _largest_of_meshes(
    sys: System, meshes: Sequence[int], values: Callable[[Vec3], Any]
):
    """Return the largest values among the vertices of meshes, `(n, *batch)`. Those of the
    hull are the outermost; a mesh without a hull has only others.

    **Arguments:**

    - `values`: function of vertices, which returns arrays with an entry for each.
    """
    bare = sorted(
        {mesh for mesh in meshes if not len(range(*sys.meshes.hulls.span(mesh)))}
    )
    of_hulls = jtu.tree_map(
        lambda x: _largest_of_hulls(sys, x), values(vec3(sys.meshes.vertices))
    )
    if not bare:
        return take(of_hulls, meshes)
    largest = lambda x: jnp.max(x, axis=0, keepdims=True)
    others = [
        jtu.tree_map(largest, values(vec3(sys.meshes.others(mesh)))) for mesh in bare
    ]
    count = len(sys.meshes.names)
    places = [count + bare.index(mesh) if mesh in bare else mesh for mesh in meshes]
    return take(concatenate([of_hulls, *others]), places)


def _absolute(v: Vec3) -> Vec3:
    return Vec3(*(jnp.abs(x) for x in v))


def _squared(x):
    return x * x
