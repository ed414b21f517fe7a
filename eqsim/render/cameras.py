"""Content of an image: shapes with their poses, sizes and colors, and the camera.

The viewer draws the same shapes."""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..kinematics import forward
from ..model import GeomKind, HullGraph, JointKind, MeshSurfaces, System
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


FIELD_OF_VIEW = 45.0
"""Vertical field of view of every camera, degrees."""


@dataclasses.dataclass(frozen=True)
class Camera:
    """A camera: position and direction of the view.

    **Arguments:**

    - `lookat`: point at the center of the image, m.
    - `distance`: distance of the camera from that point, m.
    - `azimuth`: azimuth of the viewing direction, degrees; along x at 0, along y at 90,
        where x points to the right.
    - `elevation`: elevation of the viewing direction, degrees; straight down at -90.
    - `follow`: name of a link that the camera follows along x and y; the first two
        entries of `lookat` are then relative to it.

    **Raises:** `ValueError` if the distance is not positive.
    """

    lookat: tuple[float, float, float] = (0.0, 0.0, 0.0)
    distance: float = 3.0
    azimuth: float = 90.0
    elevation: float = -20.0
    follow: str | None = None

    def __post_init__(self):
        if not self.distance > 0.0:
            raise ValueError(
                f"`Camera.distance` must be positive, got {self.distance}."
            )


_GROUND = (GeomKind.PLANE, GeomKind.HFIELD)


def camera_for(sys: System) -> Camera:
    """Return a camera that shows the robot.

    The camera follows a robot that moves freely on the ground. For any other robot, it
    shows the region that single joints can reach, within at most 1 m or a right angle
    in both directions.

    **Arguments:**

    - `sys`: one robot, not a batch.

    **Raises:** `ValueError` if the robot is a batch or traced.
    """
    leaves = jax.tree_util.tree_leaves(sys)
    if any(isinstance(x, Tracer) for x in leaves) or sys.dt.ndim:
        raise ValueError(
            "`camera_for` needs one robot that is not traced. Call it outside jit, grad and "
            "vmap, for one robot of a batch, and pass the `Camera`."
        )
    follow = _walks(sys)
    ref = np.asarray(sys.joints.ref)
    q = ref[None] if follow else _sweep(sys, ref)
    placed, links = jax.tree_util.tree_map(np.asarray, _places(sys, jnp.asarray(q)))
    low, high = _bounds(sys, placed)
    span, middle = high - low, 0.5 * (low + high)
    if follow:
        root = links[0, sys.joints.links[0]]
        middle = middle - np.asarray([root[0], root[1], 0.0])
    radius = 0.5 * float(np.linalg.norm(span))
    flat = span[2] < 0.25 * max(span[0], span[1])
    return Camera(
        lookat=(float(middle[0]), float(middle[1]), float(middle[2])),
        distance=1.1 * max(radius, 1e-3) / math.tan(math.radians(FIELD_OF_VIEW / 2)),
        elevation=-60.0 if flat else -20.0,
        follow=sys.links.names[sys.joints.links[0]] if follow else None,
    )


@eqx.filter_jit
def _places(sys: System, q):
    return jax.vmap(lambda q: (place(sys, q), forward(sys, q).pos))(q)


def _walks(sys: System) -> bool:
    """Test if there is a ground and the first link is free."""
    ground = any(kind in _GROUND for kind in sys.geoms.kinds)
    joints = sys.joints
    if not ground or not joints.kinds:
        return False
    endless = joints.kinds[0] is JointKind.PRISMATIC and not joints.limited[0]
    return joints.kinds[0] is JointKind.FREE or endless


def _sweep(sys: System, ref: np.ndarray) -> np.ndarray:
    """Return reference coordinates, and coordinates with one joint at an end of its
    range."""
    joints, out = sys.joints, [ref]
    for joint, kind in enumerate(joints.kinds):
        if kind.nq != 1:
            continue
        at = joints.q_starts[joint]
        way = 1.0 if kind is JointKind.PRISMATIC else 0.5 * math.pi
        ends = np.array([-way, way]) + ref[at]
        if joints.limited[joint]:
            ends = np.clip(np.asarray(joints.range)[joint], *ends)
        for end in ends:
            q = ref.copy()
            q[at] = end
            out.append(q)
    return np.stack(out)


def _bounds(sys: System, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounding box of all shapes except the ground."""
    keep = [k for k, kind in enumerate(sys.geoms.kinds) if kind not in _GROUND]
    if not keep:
        return -np.ones(3), np.ones(3)
    half = np.stack([_half(sys, placed, k) for k in keep], axis=1)
    reach = np.einsum("ngij,ngj->ngi", np.abs(placed.rot[:, keep]), half)
    pos = placed.pos[:, keep]
    return np.min(pos - reach, axis=(0, 1)), np.max(pos + reach, axis=(0, 1))


def _half(sys: System, placed: Placed, geom: int) -> np.ndarray:
    """Return half the size of the bounding box of a shape, along its own axes."""
    if sys.geoms.kinds[geom] is GeomKind.MESH:
        half = _mesh_half(sys, sys.geoms.data[geom])
        return np.broadcast_to(half, (len(placed.size), 3))
    radius, second, third = np.asarray(placed.size)[:, geom].T
    edges: dict[AnyKind, Any] = {
        GeomKind.SPHERE: (radius, radius, radius),
        GeomKind.CAPSULE: (radius, radius, radius + second),
        GeomKind.CYLINDER: (radius, radius, second),
    }
    return np.stack(edges.get(sys.geoms.kinds[geom], (radius, second, third)), axis=-1)


def _mesh_half(sys: System, mesh: int) -> np.ndarray:
    parts = sys.meshes.hull(mesh), sys.meshes.others(mesh)
    return np.max(np.abs(np.concatenate([np.asarray(x) for x in parts])), axis=0)
