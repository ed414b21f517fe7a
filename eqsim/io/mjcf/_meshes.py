"""Conversion of MuJoCo's meshes and height fields."""

from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind, HeightFields, HullGraph, Meshes, MeshSurfaces
from ...model.meshes import reference_vertices
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
    return Meshes(
        names=tuple(names[mesh] for mesh in used),
        hulls=HullGraph(
            vertex_starts=_starts([len(part.vertices) for part in parts]),
            neighbor_starts=_starts(_joined([hull.neighbors.sizes for hull in hulls])),
            neighbors=_joined([hull.neighbors.entries for hull in hulls]),
            polygon_starts=_starts([len(hull.polygons.sizes) for hull in hulls]),
            corner_starts=_starts(_joined([hull.polygons.sizes for hull in hulls])),
            corners=_joined([hull.polygons.entries for hull in hulls]),
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


class _Lists(NamedTuple):
    """Lists of integers: their lengths, and all entries, one list after the other."""

    sizes: np.ndarray
    entries: np.ndarray


_NO_LISTS = _Lists(np.empty(0, int), np.empty(0, int))


class _Hull(NamedTuple):
    """A convex hull; vertex indices are relative to its first vertex."""

    neighbors: _Lists
    polygons: _Lists


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
    members, neighbors = _graph(model, mesh) if is_solid else (np.empty(0, int), None)
    # MuJoCo orders the vertices of a hull as Qhull does. In the order of the file, they
    # are the same after `write_mjcf`.
    on_hull = np.zeros(count, bool)
    on_hull[members] = True
    ranked, rest = np.flatnonzero(on_hull), np.flatnonzero(~on_hull)
    order = np.empty(count, int)
    order[np.concatenate([ranked, rest])] = np.arange(count)
    own = _NO_LISTS
    if neighbors is not None:
        taken = _chosen(neighbors, np.argsort(members))
        own = _Lists(taken.sizes, order[members[taken.entries]])
    polygons = _NO_LISTS
    vertices = points[ranked]
    if is_solid:
        found = _polygons(model, mesh)
        polygons = _outward(vertices, _Lists(found.sizes, order[found.entries]))
    first, size = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    faces = order[model.mesh_face[first : first + size]]
    return _Mesh(vertices, points[rest], _Hull(own, polygons), faces, order)


def _graph(model: Any, mesh: int) -> tuple[np.ndarray, _Lists | None]:
    """Return the vertices of the hull, and the positions of their neighbors in this
    list.

    MuJoCo's layout: numbers of vertices and faces, starts of the lists of neighbors,
    vertices, lists of neighbors that end with -1, faces."""
    start = int(model.mesh_graphadr[mesh])
    if start < 0:
        return np.empty(0, int), None
    count, faces = model.mesh_graph[start : start + 2].tolist()
    stop = start + 2 + 3 * count + 3 * faces
    graph = model.mesh_graph[start + 2 : stop].astype(int)
    starts, members, lists = np.split(graph, [count, 2 * count])
    ends = np.append(starts[1:], len(lists)) - 1
    sizes = ends - starts
    return members, _Lists(sizes, lists[_spans(starts, sizes)])


def _polygons(model: Any, mesh: int) -> _Lists:
    first, count = int(model.mesh_polyadr[mesh]), int(model.mesh_polynum[mesh])
    # Sizes and addresses are cumulative over all meshes.
    starts = model.mesh_polyvertadr[first : first + count].astype(int)
    sizes = model.mesh_polyvertnum[first : first + count].astype(int)
    return _Lists(sizes, model.mesh_polyvert[_spans(starts, sizes)].astype(int))


def _outward(vertices: np.ndarray, polygons: _Lists) -> _Lists:
    """Orient polygons counterclockwise as seen from outside. They are not if the scale
    of a mesh mirrors it."""
    sizes, entries = polygons
    if not len(sizes):
        return polygons
    starts = _starts(sizes)[:-1]
    points = vertices[entries]
    following = np.arange(1, len(points) + 1)
    following[starts + sizes - 1] = starts
    normals = np.add.reduceat(np.cross(points, points[following]), starts)
    middles = np.add.reduceat(points, starts) / sizes[:, None]
    inward = np.sum(normals * (middles - vertices.mean(axis=0)), axis=1) < 0.0
    place = np.arange(len(entries))
    mirrored = np.repeat(2 * starts + sizes - 1, sizes) - place
    return _Lists(sizes, entries[np.where(np.repeat(inward, sizes), mirrored, place)])


def _chosen(lists: _Lists, index: np.ndarray) -> _Lists:
    """Return the lists with these numbers."""
    sizes = lists.sizes[index]
    starts = _starts(lists.sizes)[index]
    return _Lists(sizes, lists.entries[_spans(starts, sizes)])


def _spans(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the integers of spans of these starts and sizes, one after the other."""
    shift = starts - _starts(sizes)[:-1]
    return np.repeat(shift, sizes) + np.arange(np.sum(sizes))


def _starts(counts: np.ndarray | list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=int)])


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, int), *parts])
