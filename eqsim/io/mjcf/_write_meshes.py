"""Writing of meshes and height fields as MJCF elements."""

import xml.etree.ElementTree as ET
from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind, HeightFields, Meshes, System
from ...model.kinds import require_known
from ...spatial import quaternion_matrix
from ._mujoco import engine
from ._xml import add_element


def write_assets(root: ET.Element, sys: System) -> None:
    """Write all meshes and height fields."""
    if not sys.nmesh and not sys.nfield:
        return
    part = ET.SubElement(root, "asset")
    for mesh, name in enumerate(sys.meshes.names):
        _write_mesh(part, sys.meshes, mesh, name)
    for field, name in enumerate(sys.height_fields.names):
        _write_height_field(part, sys.height_fields, field, name)


def shape_attributes(sys: System, geom: int) -> dict[str, Any]:
    """Return type, size and pose of a shape."""
    geoms = sys.geoms
    kind, pos = geoms.kinds[geom], geoms.pos[geom]
    require_known(kind, "have no MJCF")
    out = {"type": kind.name.lower(), "quat": geoms.quat[geom]}
    if kind is GeomKind.MESH:
        return out | {"mesh": sys.meshes.names[geoms.data[geom]], "pos": pos}
    if kind is GeomKind.HFIELD:
        fields, field = sys.height_fields, geoms.data[geom]
        quat = geoms.quat[geom] / np.linalg.norm(geoms.quat[geom])
        up = np.array(quaternion_matrix(quat.tolist()), float).reshape(3, 3)[:, 2]
        raised = pos + up * np.min(fields.grid(field))
        return out | {"hfield": fields.names[field], "pos": raised}
    return out | {"size": geoms.size[geom], "pos": pos}


def _write_mesh(part: ET.Element, meshes: Meshes, mesh: int, name: str) -> None:
    hull, others = np.asarray(meshes.hull(mesh)), np.asarray(meshes.others(mesh))
    own = np.concatenate([hull, others])
    surfaces = meshes.surfaces
    start = surfaces.span(mesh)[0] + meshes.hulls.span(mesh)[0]
    order = surfaces.order[start : start + len(own)]
    rank = np.argsort(order)
    triangles = surfaces.triangles(mesh)
    fans = [
        (polygon[0], polygon[k], polygon[k + 1])
        for polygon in meshes.hulls.polygons(mesh)
        for k in range(1, len(polygon) - 1)
    ]
    attributes = {
        "name": name,
        "vertex": own[order],
        "face": " ".join(map(str, rank[triangles].ravel().tolist())),
        "inertia": _inertia_mode(own, triangles, np.array(fans, int).reshape(-1, 3)),
    }
    if len(hull) and _is_outside(hull, np.array(fans, int), others):
        attributes["maxhullvert"] = len(hull)
    add_element(part, "mesh", attributes)


def _is_outside(hull: np.ndarray, faces: np.ndarray, points: np.ndarray) -> bool:
    """Test if points lie outside a hull whose number of vertices was limited."""
    if not len(points):
        return False
    tolerance = 1e-6 * np.ptp(hull, axis=0).max()
    a, b, c = hull[faces].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    # In blocks, because hulls and meshes may be large.
    blocks = np.array_split(normals, 1 + len(normals) // 64)
    return any(
        np.any(np.max(points @ n.T, axis=0) > np.max(hull @ n.T, axis=0) + tolerance)
        for n in blocks
        if len(n)
    )


class _Inertia(NamedTuple):
    """Volume or area, center and moments of inertia of a mesh."""

    total: float
    center: np.ndarray
    moments: np.ndarray


# MuJoCo rejects smaller volumes.
_SMALLEST = 1e-15


def _inertia_mode(points: np.ndarray, faces: np.ndarray, hull: np.ndarray) -> str:
    """Return the kind of inertia by which MuJoCo computed the frame of a mesh (MJCF:
    `inertia`).

    A compiled model does not contain it. In its frame, the center is zero and the
    moments are diagonal and sorted."""
    modes = {
        "legacy": lambda: _inertia(points, faces, faces, np.abs),
        "exact": lambda: _inertia(points, faces, faces, np.asarray),
        "shell": lambda: _inertia(points, faces, faces, None),
        "convex": lambda: _inertia(points, faces, _hull(points, hull), np.asarray),
    }
    errors = {}
    for mode, own in modes.items():
        errors[mode] = _misplacement(points, own())
        if errors[mode] < _PLACED:
            return mode
    return min(errors, key=lambda mode: errors[mode])


# Larger errors are not due to single precision.
_PLACED = 1e-5


def _hull(points: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the triangles of the convex hull, which shapes that are only drawn do not
    have."""
    if len(known):
        return known
    mujoco = engine()
    spec = mujoco.MjSpec()
    # Without faces, a mesh becomes its hull.
    mesh = spec.add_mesh(name="hull", uservert=points.ravel())
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    return spec.compile().mesh_face.astype(int)


def _misplacement(points: np.ndarray, own: _Inertia) -> float:
    if not own.total > _SMALLEST:
        return np.inf
    trace = np.trace(own.moments) + 1e-300
    diagonal = np.diag(own.moments)
    crossed = np.abs(own.moments - np.diag(diagonal)).sum() / trace
    unsorted = np.maximum(np.diff(diagonal), 0.0).sum() / trace
    return (
        np.linalg.norm(own.center) / np.ptp(points, axis=0).max() + crossed + unsorted
    )


def _inertia(points, faces, solid, sign) -> _Inertia:
    """Compute inertia like MuJoCo (`mjCMesh::ComputeInertia`): of areas if `sign` is
    None, else of the volumes of pyramids with this sign."""
    middle, area = _centroids(points[faces])
    middle = np.sum(middle * area[:, None], axis=0) / max(area.sum(), 1e-300)
    corners = points[solid]
    centers, area = _centroids(corners)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) / 2
    weight = area
    if sign is not None:
        weight = sign(np.sum((centers - middle) * normal, axis=1) / 3)
    total = weight.sum()
    if not total > _SMALLEST:
        return _Inertia(0.0, np.zeros(3), np.eye(3))
    center = weight @ (0.75 * centers + 0.25 * middle) / total
    corners = corners - center
    if sign is not None:
        weight = sign(np.sum((centers - center) * normal, axis=1) / 3)
    both = np.einsum("n,nki,nkj->ij", weight, corners, corners)
    summed = corners.sum(axis=1)
    products = both + np.einsum("n,ni,nj->ij", weight, summed, summed)
    products = products / (12 if sign is None else 20)
    return _Inertia(total, center, np.trace(products) * np.eye(3) - products)


def _centroids(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges = corners[:, 1:] - corners[:, :1]
    area = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1) / 2
    return corners.mean(axis=1), area


def _write_height_field(
    part: ET.Element, fields: HeightFields, field: int, name: str
) -> None:
    """Write a height field. MuJoCo's heights start at zero, so the shape is moved along
    z by the lowest height."""
    grid = np.asarray(fields.grid(field))
    low, high = np.min(grid), np.max(grid)
    x, y, base = fields.size[field]
    if base + low <= 0.0:
        raise ValueError(
            f"The lowest height of {name!r} is {low}, below the bottom at {-base}. Raise the "
            "heights, or increase the base in HeightFields.size."
        )
    add_element(
        part,
        "hfield",
        {
            "name": name,
            "nrow": fields.rows[field],
            "ncol": fields.columns[field],
            "size": (x, y, high - low if high > low else 1.0, base + low),
            # The first row in MJCF is the last one along y.
            "elevation": grid[::-1] - low,
        },
    )
