"""Conversion of MuJoCo's meshes and height fields."""

from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind, HeightFields, HullGraph, Meshes, MeshSurfaces
from ...model._meshes import reference_vertices
from ._geoms import Contacts, used_data
from ._names import element_names


def read_meshes(model: Any, contacts: Contacts) -> Meshes:
    """Convert the meshes of a `mujoco.MjModel` that shapes refer to.

    Only meshes of shapes that may collide keep the convex hull."""
    used = used_data(model, contacts, GeomKind.MESH)
    if not used:
        return Meshes.none()
    names = element_names(model, "mesh")
    parts = [_read_mesh(model, mesh, mesh in contacts.hulls) for mesh in used]
    hulls = [part.hull for part in parts]
    polygons = [polygon for hull in hulls for polygon in hull.polygons]
    neighbors = [own for hull in hulls for own in hull.neighbors]
    return Meshes(
        names=tuple(names[mesh] for mesh in used),
        hulls=HullGraph(
            vertex_starts=_starts([len(part.vertices) for part in parts]),
            neighbor_starts=_starts(list(map(len, neighbors))),
            neighbors=_joined(neighbors),
            polygon_starts=_starts([len(hull.polygons) for hull in hulls]),
            corner_starts=_starts(list(map(len, polygons))),
            corners=_joined(polygons),
            reference=np.concatenate(
                [reference_vertices(part.vertices) for part in parts]
            ),
        ),
        surfaces=MeshSurfaces(
            other_starts=_starts([len(part.others) for part in parts]),
            face_starts=_starts([len(part.faces) for part in parts]),
            faces=np.concatenate([part.faces for part in parts]),
            order=_joined([part.order for part in parts]),
        ),
        vertices=np.concatenate([part.vertices for part in parts]),
        other_vertices=np.concatenate([part.others for part in parts]),
    )


def read_height_fields(model: Any, contacts: Contacts, capacity: int) -> HeightFields:
    """Convert the height fields of a `mujoco.MjModel` that shapes refer to."""
    used = used_data(model, contacts, GeomKind.HFIELD)
    names = element_names(model, "hfield")
    rows, columns = model.hfield_nrow, model.hfield_ncol
    heights = [np.zeros(0)]
    for field in used:
        start = int(model.hfield_adr[field])
        stop = start + int(rows[field] * columns[field])
        # MuJoCo stores heights as single-precision fractions of the third size.
        scale = model.hfield_size[field, 2]
        heights.append(model.hfield_data[start:stop].astype(float) * scale)
    return HeightFields(
        names=tuple(names[field] for field in used),
        rows=tuple(int(rows[field]) for field in used),
        columns=tuple(int(columns[field]) for field in used),
        heights=np.concatenate(heights),
        size=model.hfield_size[used][:, [0, 1, 3]],
        capacity=(capacity,) * len(used),
    )


class _Hull(NamedTuple):
    """A convex hull; vertex indices are relative to its first vertex."""

    neighbors: list[np.ndarray]
    polygons: list[np.ndarray]


class _Mesh(NamedTuple):
    """A mesh as `Meshes` stores it."""

    vertices: np.ndarray
    others: np.ndarray
    hull: _Hull
    faces: np.ndarray
    order: np.ndarray


def _read_mesh(model: Any, mesh: int, is_solid: bool) -> _Mesh:
    start, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    points = model.mesh_vert[start : start + count].astype(float)
    members, neighbors = _graph(model, mesh) if is_solid else (np.empty(0, int), [])
    # MuJoCo orders the vertices of a hull as Qhull does. In the order of the file, they
    # are the same after `write_mjcf`.
    ranked = np.sort(members)
    rest = np.setdiff1d(np.arange(count), members)
    order = np.empty(count, int)
    order[np.concatenate([ranked, rest])] = np.arange(count)
    own = [np.empty(0, int)] * len(members)
    for vertex, around in zip(members, neighbors):
        own[order[vertex]] = order[members[around]]
    found = _polygons(model, mesh) if is_solid else []
    polygons = [order[polygon] for polygon in found]
    first, size = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    faces = order[model.mesh_face[first : first + size]]
    vertices = points[ranked]
    hull = _Hull(own, _outward(vertices, polygons))
    return _Mesh(vertices, points[rest], hull, faces, order)


def _graph(model: Any, mesh: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the vertices of the hull, and the positions of their neighbors in this
    list.

    MuJoCo's layout: numbers of vertices and faces, starts of the lists of neighbors,
    vertices, lists of neighbors that end with -1, faces."""
    start = int(model.mesh_graphadr[mesh])
    if start < 0:
        return np.empty(0, int), []
    graph = model.mesh_graph[start:].astype(int)
    count, faces = graph[:2]
    starts, members = graph[2 : 2 + count], graph[2 + count : 2 + 2 * count]
    lists = graph[2 + 2 * count : 2 + 3 * count + 3 * faces]
    ends = np.append(starts[1:], len(lists)) - 1
    return members, [lists[a:b] for a, b in zip(starts, ends)]


def _polygons(model: Any, mesh: int) -> list[np.ndarray]:
    first, count = int(model.mesh_polyadr[mesh]), int(model.mesh_polynum[mesh])
    # Sizes and addresses are cumulative over all meshes.
    starts = model.mesh_polyvertadr[first : first + count].astype(int)
    sizes = model.mesh_polyvertnum[first : first + count].astype(int)
    corners = model.mesh_polyvert
    return [corners[a : a + n].astype(int) for a, n in zip(starts, sizes)]


def _outward(vertices: np.ndarray, polygons: list[np.ndarray]) -> list[np.ndarray]:
    """Orient polygons counterclockwise as seen from outside. They are not if the scale
    of a mesh mirrors it."""
    if not polygons:
        return polygons
    sizes = np.array(list(map(len, polygons)))
    starts = _starts(sizes.tolist())[:-1]
    points = vertices[np.concatenate(polygons)]
    following = np.arange(1, len(points) + 1)
    following[starts + sizes - 1] = starts
    normals = np.add.reduceat(np.cross(points, points[following]), starts)
    middles = np.add.reduceat(points, starts) / sizes[:, None]
    inward = np.sum(normals * (middles - vertices.mean(axis=0)), axis=1) < 0.0
    return [p[::-1] if turn else p for p, turn in zip(polygons, inward)]


def _starts(counts: list[int]) -> np.ndarray:
    return np.cumsum([0, *counts])


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, int), *parts])
