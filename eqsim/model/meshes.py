"""Meshes and height fields of a robot."""

import dataclasses
import functools as ft
import hashlib
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .arrays import as_array


# Connectivity.


class AbstractConnectivity:
    """A set of integer arrays that is hashable by content.

    JAX hashes the static fields of a robot in every call of a compiled function. The
    hash is computed once, so its cost does not depend on the size of the arrays.
    Subclasses are dataclasses whose fields are integer arrays.
    """

    def __post_init__(self):
        for name, value in vars(self).items():
            # Copied, because the array becomes read-only.
            array = np.array(value, np.int32)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        names = (field.name for field in dataclasses.fields(self))  # pyright: ignore
        return {name: vars(self)[name] for name in names}

    @ft.cached_property
    def digest(self) -> bytes:
        """Hash of the content."""
        found = hashlib.sha256(type(self).__name__.encode())
        for name, array in self.arrays.items():
            found.update(f"{name}{array.shape}".encode())
            found.update(array.tobytes())
        return found.digest()

    @ft.cached_property
    def _hash(self) -> int:
        # Python's hash of bytes differs between processes, but copies keep this value.
        return int.from_bytes(self.digest[:7], "little")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self.digest == other.digest

    def __repr__(self) -> str:
        sizes = (f"{name}: {array.size}" for name, array in self.arrays.items())
        return f"{type(self).__name__}({', '.join(sizes)})"


# Meshes.


REFERENCE_SIZE = 30011.7
"""Largest coordinate of each hull in `HullGraph.reference`."""


def reference_vertices(vertices: np.ndarray) -> np.ndarray:
    """Return the vertices of a hull in units of their largest coordinate, as integers up to
    `REFERENCE_SIZE`; see `HullGraph.reference`."""
    points = np.asarray(vertices, float)
    largest = np.max(np.abs(points), initial=0.0)
    return np.round(points * (REFERENCE_SIZE / largest if largest > 0.0 else 0.0))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HullGraph(AbstractConnectivity):
    """The convex hulls of all meshes: polygons and edges.

    Hull `k` has the vertices `vertex_starts[k]` to `vertex_starts[k + 1]` of
    `Meshes.vertices`. Vertex indices of polygons and neighbors are relative to the
    first vertex of their hull. A mesh that never collides may have no hull.

    **Arguments:**

    - `vertex_starts`: first vertex of each hull, and the end, `(nmesh + 1,)`.
    - `neighbor_starts`, `neighbors`: vertices connected to each vertex by edges of the
        triangulated hull, in MuJoCo's order; start indices `(nvertex + 1,)`, and all
        neighbors.
    - `polygon_starts`: first polygon of each hull, and the end.
    - `corner_starts`, `corners`: vertices around each polygon, counterclockwise seen
        from outside. Faces in the same plane, up to 0.01 rad, form one polygon.
    - `reference`: vertices as they were read, see `reference_vertices`, from which searches
        begin and bounds are computed; empty if they are not known. Those in
        `Meshes.vertices` may differ: results do not change, but searches may take longer.
    """

    vertex_starts: np.ndarray
    neighbor_starts: np.ndarray
    neighbors: np.ndarray
    polygon_starts: np.ndarray
    corner_starts: np.ndarray
    corners: np.ndarray
    reference: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros((0, 3), int)
    )

    @staticmethod
    def none() -> "HullGraph":
        """Return no hulls; always the same object."""
        return _NO_HULLS

    def span(self, mesh: int) -> tuple[int, int]:
        """Return the range of the vertices of a hull in `Meshes.vertices`."""
        return int(self.vertex_starts[mesh]), int(self.vertex_starts[mesh + 1])

    def polygons(self, mesh: int) -> list[np.ndarray]:
        """Return the polygons of a hull: the vertices around each."""
        first, last = self.polygon_starts[mesh], self.polygon_starts[mesh + 1]
        starts = self.corner_starts
        return [self.corners[starts[k] : starts[k + 1]] for k in range(first, last)]

    def neighborhoods(self, mesh: int) -> list[np.ndarray]:
        """Return the neighbors of each vertex of a hull."""
        first, last = self.span(mesh)
        starts = self.neighbor_starts
        return [self.neighbors[starts[k] : starts[k + 1]] for k in range(first, last)]

    def edges(self, mesh: int) -> np.ndarray:
        """Return the edges between polygons of a hull, `(nedge, 2)`, smaller index first.

        Edges of the triangulation within a polygon are left out."""
        pairs = [
            (min(a, b), max(a, b))
            for polygon in map(np.ndarray.tolist, self.polygons(mesh))
            for a, b in zip(polygon, [*polygon[1:], polygon[0]])
        ]
        return np.array(sorted(set(pairs)), int).reshape(-1, 2)

    def vertex_polygons(self, mesh: int) -> list[list[int]]:
        """Return the polygons, counted from the first of the hull, around each vertex."""
        first, last = self.span(mesh)
        found: list[list[int]] = [[] for _ in range(last - first)]
        for number, polygon in enumerate(self.polygons(mesh)):
            for vertex in polygon.tolist():
                found[vertex].append(number)
        return found


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MeshSurfaces(AbstractConnectivity):
    """Triangles of all meshes, for drawing and rays.

    Vertex indices are relative to the mesh: first the vertices of its hull, then the
    others.

    **Arguments:**

    - `other_starts`: first entry of each mesh in `Meshes.other_vertices`, and the end.
    - `face_starts`: first triangle of each mesh in `faces`, and the end.
    - `faces`: three vertices per triangle, `(nface, 3)`.
    - `order`: positions of the vertices of each mesh in the order of the model
        file.
    """

    other_starts: np.ndarray
    face_starts: np.ndarray
    faces: np.ndarray
    order: np.ndarray

    @staticmethod
    def none() -> "MeshSurfaces":
        """Return no surfaces; always the same object."""
        return _NO_SURFACES

    def span(self, mesh: int) -> tuple[int, int]:
        """Return the range of the vertices of a mesh in `Meshes.other_vertices`."""
        return int(self.other_starts[mesh]), int(self.other_starts[mesh + 1])

    def triangles(self, mesh: int) -> np.ndarray:
        """Return the triangles of a mesh, `(n, 3)`."""
        return self.faces[self.face_starts[mesh] : self.face_starts[mesh + 1]]


_START, _NOTHING = np.zeros(1, int), np.zeros(0, int)
_NO_HULLS = HullGraph(_START, _START, _NOTHING, _START, _START, _NOTHING)
_NO_SURFACES = MeshSurfaces(_START, _START, np.zeros((0, 3), int), _NOTHING)


class Meshes(eqx.Module):
    r"""Triangle meshes, referred to by `Geoms.data` of shapes of kind `MESH`.

    Every vertex is stored once, in the frame of the shape: vertices of convex hulls,
    which collide, in `vertices`, and all others in `other_vertices`. To scale a mesh,
    multiply both. Contacts, rays and images then change without recompiling. Triangles,
    polygons and edges are fixed, so the hull must stay convex.

    **Arguments:**

    - `names`: one entry per mesh.
    - `hulls`: polygons and edges of the convex hulls.
    - `surfaces`: all triangles.
    - `vertices`: vertices of all convex hulls, mesh by mesh, m. The origin is the center
        of mass of the mesh and the axes are its principal axes, as in MuJoCo.
    - `other_vertices`: vertices that are not on a hull, mesh by mesh, m.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    hulls: HullGraph = eqx.field(static=True)
    surfaces: MeshSurfaces = eqx.field(static=True)
    vertices: Float[Array, "nvertex 3"] = eqx.field(converter=as_array)
    other_vertices: Float[Array, "nother 3"] = eqx.field(converter=as_array)

    def __check_init__(self):
        for part in (self.hulls.vertex_starts, self.surfaces.other_starts):
            if len(part) != len(self.names) + 1:
                raise ValueError(
                    f"Meshes have {len(self.names)} names, but connectivity of "
                    f"{len(part) - 1} meshes. Give one name per mesh."
                )

    @staticmethod
    def none() -> "Meshes":
        """Return no meshes."""
        three = np.zeros((0, 3))
        return Meshes((), HullGraph.none(), MeshSurfaces.none(), three, three)

    @property
    def nvertex(self) -> int:
        """Number of vertices of all convex hulls."""
        return int(self.hulls.vertex_starts[-1])

    @property
    def nother(self) -> int:
        """Number of vertices that are not on a hull."""
        return int(self.surfaces.other_starts[-1])

    def hull(self, mesh: int) -> Any:
        """Return the vertices of the convex hull of a mesh, `(n, 3)`."""
        first, last = self.hulls.span(mesh)
        return self.vertices[first:last]

    def others(self, mesh: int) -> Any:
        """Return the vertices of a mesh that are not on its hull, `(n, 3)`."""
        first, last = self.surfaces.span(mesh)
        return self.other_vertices[first:last]


# Height fields.


class HeightFields(eqx.Module):
    r"""Terrain on regular grids, referred to by `Geoms.data` of shapes of kind
    `HFIELD`.

    Rows run along y and columns along x of the frame of the shape, from the negative to
    the positive side. Each cell of the grid consists of two triangles, divided by the
    diagonal from its first corner to the opposite one. Below the surface, the terrain
    is solid down to z = -base.

    Heights are in meters, not relative to a scale as in MuJoCo. To randomize a terrain,
    write its heights: `eqx.tree_at(lambda s: s.height_fields.heights, sys,
    terrain.ravel())`.

    **Arguments:**

    - `names`, `rows`, `columns`: one entry per height field; at least two rows and
        columns.
    - `heights`: z of the grid points, in row-major order, one field after the other, m.
        Heights must be above -base.
    - `size`: half length along x, half length along y, and base, m.
    - `capacity`: largest number of contacts of each height field with one other
        shape. Each possible contact adds rows to the constraint solver. If a shape
        touches more triangles, its deepest contacts are kept, and `solve` reports that
        it has not converged.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    heights: Float[Array, " nheight"] = eqx.field(converter=as_array)
    size: Float[Array, "nfield 3"] = eqx.field(converter=as_array)
    capacity: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        for name, rows, columns in zip(self.names, self.rows, self.columns):
            if rows < 2 or columns < 2:
                raise ValueError(
                    f"Height field {name!r} has {rows} rows and {columns} columns. Use at "
                    "least two of each."
                )
        if len(self.capacity) != self.nfield or min(self.capacity, default=1) < 1:
            raise ValueError(
                "HeightFields.capacity must have one positive number for each of the "
                f"{self.nfield} height fields, got {self.capacity}."
            )

    @staticmethod
    def none() -> "HeightFields":
        """Return no height fields."""
        return HeightFields((), (), (), np.zeros(0), np.zeros((0, 3)), ())

    @property
    def nfield(self) -> int:
        """Number of height fields."""
        return len(self.names)

    @property
    def nheight(self) -> int:
        """Number of grid points of all height fields."""
        return sum(map(int.__mul__, self.rows, self.columns))

    def span(self, field: int) -> tuple[int, int]:
        """Return the range of a height field in `heights`."""
        counts = [a * b for a, b in zip(self.rows, self.columns)]
        start = sum(counts[:field])
        return start, start + counts[field]

    def grid(self, field: int) -> Any:
        """Return the heights of a field, `(rows, columns)`."""
        first, last = self.span(field)
        shape = self.rows[field], self.columns[field]
        heights = self.heights[first:last]
        return heights.reshape(*shape, *heights.shape[1:])
