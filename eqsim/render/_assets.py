"""Meshes and height fields drawn by MuJoCo, whose values may change between images."""

from typing import Any, NamedTuple

import numpy as np

from ..io.mjcf.mujoco_names import engine
from ._shapes import Looks


class Assets(NamedTuple):
    """Vertices of meshes, `Meshes.vertices` and `Meshes.other_vertices`, and height fields,
    `HeightFields.heights` and `HeightFields.size`."""

    vertices: Any
    other_vertices: Any
    heights: Any
    field_size: Any


def add_assets(spec: Any, looks: Looks) -> None:
    """Add meshes and height fields of the right size to a scene.

    Each triangle has its own vertices. `update_assets` sets their positions, because
    the compiler would change them."""
    rng = np.random.default_rng(0)
    for mesh in range(looks.num_meshes):
        count = 3 * len(looks.surfaces.triangles(mesh))
        points = rng.normal(size=(count, 3))
        part = spec.add_mesh(
            name=f"mesh{mesh}",
            uservert=points.ravel(),
            usernormal=points.ravel(),
            userface=np.arange(count),
        )
        part.inertia = engine().mjtMeshInertia.mjMESH_INERTIA_SHELL
    for field, (rows, columns) in enumerate(looks.grids):
        spec.add_hfield(
            name=f"field{field}",
            nrow=rows,
            ncol=columns,
            size=[1, 1, 1, 1],
            userdata=np.arange(rows * columns, dtype=float),
        )


def update_assets(model: Any, target: Any, looks: Looks, old: Any, new: Assets) -> None:
    """Upload meshes and height fields that differ from those of the previous image.

    - `old`: `Assets` of the previous image, or None."""
    mujoco = engine()
    for mesh in range(looks.num_meshes):
        points = _points(looks, new, mesh)
        if old is not None and np.array_equal(points, _points(looks, old, mesh)):
            continue
        start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        first = model.mesh_normaladr[mesh]
        faces = looks.surfaces.triangles(mesh)
        model.mesh_vert[start : start + count] = points[faces].reshape(-1, 3)
        model.mesh_normal[first : first + count] = _normals(points, faces)
        mujoco.mjr_uploadMesh(model, target, mesh)
    starts = np.cumsum([0, *(rows * columns for rows, columns in looks.grids)])
    for field, (first, last) in enumerate(zip(starts, starts[1:])):
        size, heights = new.field_size[field], new.heights[first:last]
        if old is not None and np.array_equal(size, old.field_size[field]):
            if np.array_equal(heights, old.heights[first:last]):
                continue
        low, span = np.min(heights), np.ptp(heights)
        model.hfield_data[first:last] = (heights - low) / (span if span > 0 else 1.0)
        model.hfield_size[field] = size[0], size[1], max(span, 1e-9), size[2] + low
        mujoco.mjr_uploadHField(model, target, field)


def raised(
    looks: Looks, assets: Assets, pos: np.ndarray, rot: np.ndarray
) -> np.ndarray:
    """Return positions of shapes; the origin of MuJoCo's height fields is at their
    lowest point."""
    pos = np.array(pos)
    starts = np.cumsum([0, *(rows * columns for rows, columns in looks.grids)])
    for geom, field in looks.fields:
        low = np.min(assets.heights[starts[field] : starts[field + 1]])
        pos[geom] += low * rot[geom, :, 2]
    return pos


def _points(looks: Looks, assets: Assets, mesh: int) -> np.ndarray:
    hull, rest = looks.hulls.span(mesh), looks.surfaces.span(mesh)
    parts = assets.vertices[slice(*hull)], assets.other_vertices[slice(*rest)]
    return np.concatenate(parts)


# Edges of less than about 40 degrees are drawn smooth.
_SMOOTH = 0.77


def _normals(points: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return a normal at each corner of each triangle, `(3 nface, 3)`."""
    a, b, c = points[faces].transpose(1, 0, 2)
    flat = np.cross(b - a, c - a)
    summed = np.zeros_like(points)
    for corner in range(3):
        np.add.at(summed, faces[:, corner], flat)
    flat, smooth = _unit(flat)[:, None], _unit(summed)[faces]
    alike = np.sum(flat * smooth, axis=-1, keepdims=True) > _SMOOTH
    return np.where(alike, smooth, flat).reshape(-1, 3)


def _unit(vectors: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 0.0, length, 1.0)
