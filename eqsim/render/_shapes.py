"""Poses of the shapes of a robot."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..kinematics import forward
from ..model import GeomKind, HullGraph, MeshSurfaces, System
from ..model.kinds import AnyKind
from ..spatial import quaternion_matrix
from ..spatial.rotations import normalize4


class Placed(NamedTuple):
    """Centers, axes (columns) and sizes of the shapes, in world coordinates."""

    pos: Float[Array, "ngeom 3"]
    rot: Float[Array, "ngeom 3 3"]
    size: Float[Array, "ngeom 3"]


class Looks(NamedTuple):
    """Structure of a robot as needed for drawing, shape by shape.

    - `depths`: number of links above the link of the shape; -1 for the world.
    - `data`: `Geoms.data`.
    - `hulls`, `surfaces`: vertices and triangles of meshes.
    - `grids`: rows and columns of height fields.
    """

    kinds: tuple[AnyKind, ...]
    depths: tuple[int, ...]
    data: tuple[int, ...]
    hulls: HullGraph
    surfaces: MeshSurfaces
    grids: tuple[tuple[int, int], ...]

    @property
    def num_meshes(self) -> int:
        """Number of meshes."""
        return len(self.surfaces.face_starts) - 1

    @property
    def fields(self) -> list[tuple[int, int]]:
        """Indices of shapes that are height fields, and of their height fields."""
        kinds = enumerate(self.kinds)
        return [(k, self.data[k]) for k, kind in kinds if kind is GeomKind.HFIELD]


def place(sys: System, q: Float[Array, " nq"]) -> Placed:
    """Compute the poses of the shapes at coordinates `q`."""
    geoms, links = sys.geoms, forward(sys, q)
    # Link -1 is the world, which is last here.
    pos = jnp.concatenate([links.pos, jnp.zeros((1, 3), links.pos.dtype)])
    rot = jnp.concatenate([links.rot, jnp.eye(3, dtype=links.rot.dtype)[None]])
    owner = np.array(geoms.links, int)
    quat = normalize4([geoms.quat[:, k] for k in range(4)])
    own = jnp.stack(quaternion_matrix(quat), axis=-1).reshape(-1, 3, 3)
    center = jnp.einsum("gij,gj->gi", rot[owner], geoms.pos) + pos[owner]
    return Placed(center, rot[owner] @ own, geoms.size)


def looks(sys: System) -> Looks:
    """Return the structure of a robot for drawing."""
    parents = sys.links.parents
    depth = lambda link: -1 if link < 0 else 1 + depth(parents[link])
    fields = sys.height_fields
    return Looks(
        kinds=sys.geoms.kinds,
        depths=tuple(depth(link) for link in sys.geoms.links),
        data=sys.geoms.data,
        hulls=sys.meshes.hulls,
        surfaces=sys.meshes.surfaces,
        grids=tuple(zip(fields.rows, fields.columns)),
    )
