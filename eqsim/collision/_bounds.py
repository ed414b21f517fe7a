"""Bounds of shapes, which decide what is worth a closer look."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..model import GeomKind, ShapeKind, System
from ..model._gather import concatenate, put, take
from ..model._meshes import REFERENCE_SIZE
from ..model._shape_kinds import AnyKind
from ..spatial import safe_sqrt, Vec3, vec3
from ._near import half_extents


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
            return _mesh_radii(sys, own)
        other = corners if isinstance(kind, ShapeKind) else longest
        return take(others.get(kind, other), own)

    parts = [radii(kind, own) for kind, own in _members(sys)]
    return lax.stop_gradient(_in_order(sys, parts))


def shape_boxes(sys: System, geoms: Sequence[int]) -> tuple[Vec3, Vec3]:
    """Compute centers and half sizes of boxes about shapes, in their frames, `(n,
    *batch)`. Planes have half sizes of zero. Derivatives are zero."""
    size, parts, order = vec3(sys.geoms.size), [], []
    kinds = [sys.geoms.kinds[geom] for geom in geoms]
    for kind in sorted(set(kinds), key=lambda kind: kind.value):
        own = [k for k, other in enumerate(kinds) if other == kind]
        order += own
        if kind is GeomKind.MESH:
            meshes = [sys.geoms.data[geoms[k]] for k in own]
            places = dict(zip(meshes, own, strict=True))
            boxes = {mesh: _mesh_box(sys, geoms[k]) for mesh, k in places.items()}
            parts.append(concatenate([boxes[mesh] for mesh in meshes]))
            continue
        one = take(size, [geoms[k] for k in own])
        zero = Vec3(*(jnp.zeros_like(x) for x in one))
        half = zero if kind is GeomKind.PLANE else half_extents(kind, one)
        parts.append((zero, half))
    return lax.stop_gradient(put(concatenate(parts), order, len(geoms)))


def _mesh_box(sys: System, geom: int) -> tuple[Vec3, Vec3]:
    vertices = vec3(_vertices(sys, geom))
    low = Vec3(*(jnp.min(x, axis=0, keepdims=True) for x in vertices))
    high = Vec3(*(jnp.max(x, axis=0, keepdims=True) for x in vertices))
    return (low + high) * 0.5, (high - low) * 0.5


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
    hulls, zero = sys.meshes.hulls, jnp.zeros_like(scale[:1])
    kinds, data = sys.geoms.kinds, sys.geoms.data
    is_mesh = [kinds[geom] is GeomKind.MESH for geom in geoms]
    if not (len(hulls.reference) and any(is_mesh)):
        return scale, jnp.zeros_like(scale)
    places = {data[geom]: k for k, geom in enumerate(geoms) if is_mesh[k]}
    # One operation for all vertices, as a loop: the hulls are not unrolled.
    counts = np.diff(hulls.vertex_starts)
    rows = np.repeat([places.get(mesh, 0) for mesh in range(len(counts))], counts)
    size, like = take(scale, rows.tolist()), (-1, *(1 for _ in scale.shape[1:]))
    reference = (hulls.reference / REFERENCE_SIZE).T
    apart = Vec3(
        *(
            p - size * jnp.asarray(known.reshape(like), p.dtype)
            for p, known in zip(vec3(sys.meshes.vertices), reference, strict=True)
        )
    )
    squares = lax.stop_gradient(apart | apart)
    largest = {
        mesh: jnp.max(squares[slice(*hulls.span(mesh))], axis=0, keepdims=True)
        for mesh in places
    }
    own = [largest[data[geom]] if is_mesh[k] else zero for k, geom in enumerate(geoms)]
    return scale, safe_sqrt(concatenate(own))


def shape_extents(sys: System) -> Vec3:
    """Compute half sizes of boxes about the origins of the shapes, in their frames,
    `(ngeom, *batch)`; `UNBOUNDED` for planes and height fields. Derivatives are zero."""
    size = vec3(sys.geoms.size)
    parts = []
    for kind, own in _members(sys):
        one = take(size, own)
        if kind is GeomKind.MESH:
            parts.append(_mesh_boxes(sys, own))
        elif kind in (GeomKind.PLANE, GeomKind.HFIELD):
            parts.append(Vec3(*(jnp.full_like(x, UNBOUNDED) for x in one)))
        else:
            parts.append(half_extents(kind, one))
    full = Vec3(*(_in_order(sys, list(each)) for each in zip(*parts, strict=True)))
    return lax.stop_gradient(full)


def _members(sys: System) -> list[tuple[AnyKind, list[int]]]:
    """Group shapes by kind; meshes separately, because their numbers of vertices
    differ."""
    kinds = sys.geoms.kinds
    order = sorted(set(kinds), key=lambda kind: kind.value)
    groups = [(k, [g for g, own in enumerate(kinds) if own == k]) for k in order]
    return [
        (kind, part)
        for kind, own in groups
        for part in ([[g] for g in own] if kind is GeomKind.MESH else [own])
        if part
    ]


def _in_order(sys: System, parts: list):
    """Join arrays of all groups of `_members`."""
    order = [geom for _, own in _members(sys) for geom in own]
    if not order:
        return sys.geoms.size[:, 0]
    return put(concatenate(parts), order, sys.ngeom)


def _vertices(sys: System, geom: int):
    """Return the vertices of the hull, which are the outermost; of all without a hull."""
    meshes, mesh = sys.meshes, sys.geoms.data[geom]
    hull = meshes.hull(mesh)
    return hull if hull.shape[0] else meshes.others(mesh)


def _mesh_boxes(sys: System, own: list[int]) -> Vec3:
    rows = [vec3(jnp.abs(_vertices(sys, geom))) for geom in own]
    largest = lambda x: jnp.max(x, axis=0, keepdims=True)
    return concatenate([Vec3(*map(largest, row)) for row in rows])


def _mesh_radii(sys: System, own: list[int]):
    rows = [vec3(_vertices(sys, geom)) for geom in own]
    squares = [jnp.max(v | v, axis=0, keepdims=True) for v in rows]
    return safe_sqrt(concatenate(squares))


def _squared(x):
    return x * x
