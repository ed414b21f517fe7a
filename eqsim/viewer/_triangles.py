"""Triangles, colors and poses of the shapes of robots, computed with NumPy.

First the surfaces, of size 1 where they can be scaled; then `parts_of`, which groups the
shapes of a robot by surface, and `instances`, which places them.
"""

import functools as ft
import importlib
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.transform import Rotation

from ..model import GeomKind, System
from ..model.kinds import AnyKind, require_known
from ..render.cameras import looks


def import_extra(name: str) -> Any:
    """Import a package of the extra `viewer`.

    **Raises:** `ImportError` that names the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"The viewer needs the package {name}, which cannot be imported ({error}). Run "
            "`pip install 'eqsim[viewer]'`."
        ) from error


class Solid(NamedTuple):
    """A surface of triangles.

    - `vertices`: positions in the frame of the shape.
    - `faces`: vertices of each triangle, counterclockwise seen from outside.
    """

    vertices: Float[np.ndarray, "nvertex 3"]
    faces: Int[np.ndarray, "nface 3"]


@ft.cache
def sphere() -> Solid:
    """Return a sphere of radius 1."""
    angle = np.linspace(-0.5 * np.pi, 0.5 * np.pi, 13)
    return _revolved(np.stack([np.cos(angle), np.sin(angle)], axis=1))


@ft.cache
def cylinder() -> Solid:
    """Return a cylinder of radius 1 from z = -1 to z = 1."""
    profiles = ([0, -1], [1, -1]), ([1, -1], [1, 1]), ([1, 1], [0, 1])
    # Separate vertices, so that the edges are sharp.
    return _joined([_revolved(np.array(profile, float)) for profile in profiles])


@ft.cache
def box() -> Solid:
    """Return a cube with half edges of length 1."""
    turns = [np.roll(np.eye(3), k, axis=0) for k in range(3)]
    flip = np.diag([-1.0, 1.0, -1.0])
    top = square()
    sides = [turn @ side for turn in turns for side in (np.eye(3), flip)]
    up = top.vertices + np.array([0.0, 0.0, 1.0])
    return _joined([Solid(up @ side.T, top.faces) for side in sides])


@ft.cache
def square() -> Solid:
    """Return a square with half edges of length 1 at z = 0."""
    corners = [[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]
    return Solid(np.array(corners), np.array([[0, 1, 2], [0, 2, 3]]))


def mesh(sys: System, index: int) -> Solid:
    """Return a mesh of one robot."""
    parts = sys.meshes.hull(index), sys.meshes.others(index)
    vertices = np.concatenate([np.asarray(part, float) for part in parts])
    return _smooth(Solid(vertices, sys.meshes.surfaces.triangles(index)))


def height_field(sys: System, index: int) -> Solid:
    """Return the surface of a height field of one robot."""
    fields = sys.height_fields
    rows, columns = fields.rows[index], fields.columns[index]
    start = sum(r * c for r, c in zip(fields.rows[:index], fields.columns[:index]))
    heights = np.asarray(fields.heights, float)[start : start + rows * columns]
    x_half, y_half, _ = np.asarray(fields.size, float)[index]
    y, x = np.meshgrid(
        np.linspace(-y_half, y_half, rows),
        np.linspace(-x_half, x_half, columns),
        indexing="ij",
    )
    corner = np.arange(rows * columns).reshape(rows, columns)
    a, b = corner[:-1, :-1].ravel(), corner[:-1, 1:].ravel()
    c, d = corner[1:, 1:].ravel(), corner[1:, :-1].ravel()
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    return Solid(np.stack([x.ravel(), y.ravel(), heights], axis=1), faces)


def _revolved(profile: np.ndarray, sides: int = 24) -> Solid:
    """Turn a line, `(n, 2)` of radius and height from below to above, about z."""
    angle = 2.0 * np.pi * np.arange(sides) / sides
    radius, height = profile[:, :1], profile[:, 1:]
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    vertices = np.stack([x, y, np.broadcast_to(height, x.shape)], axis=-1)
    place = np.arange(x.size).reshape(x.shape)
    a, d = place[:-1], place[1:]
    b, c = np.roll(a, -1, axis=1), np.roll(d, -1, axis=1)
    pairs = np.stack([a, b, c], -1), np.stack([a, c, d], -1)
    return Solid(vertices.reshape(-1, 3), np.concatenate(pairs).reshape(-1, 3))


def _joined(solids: list[Solid]) -> Solid:
    starts = np.cumsum([0, *(len(solid.vertices) for solid in solids)])
    faces = [solid.faces + start for solid, start in zip(solids, starts)]
    return Solid(np.concatenate([x.vertices for x in solids]), np.concatenate(faces))


# Faces that meet at less than about 40 degrees look like one smooth surface, as in images.
_SMOOTH = 0.7


def _smooth(solid: Solid) -> Solid:
    """Give faces that meet at an edge vertices of their own."""
    trimesh = import_extra("trimesh")
    whole = trimesh.Trimesh(solid.vertices, solid.faces, process=False)
    found = trimesh.graph.smooth_shade(whole, angle=_SMOOTH)
    return Solid(np.asarray(found.vertices), np.asarray(found.faces))


# Colors of shapes without one: of the world, then of links by their depth in the tree, in
# turn. They are those of `eqsim.render`.
_WORLD = (158, 158, 158)
_PALETTE = ((227, 140, 66), (84, 138, 191), (232, 191, 97), (102, 168, 153))
_UNSET = (0.5, 0.5, 0.5, 1.0)


class Shapes(NamedTuple):
    """Centers, axes (columns) and sizes of the shapes of several robots."""

    pos: Float[np.ndarray, "robot ngeom 3"]
    rot: Float[np.ndarray, "robot ngeom 3 3"]
    size: Float[np.ndarray, "robot ngeom 3"]


class Piece(NamedTuple):
    """A solid that is drawn for a shape.

    - `scale`: for x, y and z, which entry of the size is the scale; 3 for a scale of 1.
    - `shift`: shift along z, in units of the second size.
    """

    solid: str
    scale: tuple[int, int, int]
    shift: float = 0.0


_BALL = Piece("sphere", (0, 0, 0))
_TUBE = Piece("cylinder", (0, 0, 1))
_PIECES: dict[AnyKind, tuple[Piece, ...]] = {
    GeomKind.PLANE: (Piece("square", (0, 1, 3)),),
    GeomKind.SPHERE: (_BALL,),
    GeomKind.CAPSULE: (_TUBE, _BALL._replace(shift=1.0), _BALL._replace(shift=-1.0)),
    GeomKind.ELLIPSOID: (Piece("sphere", (0, 1, 2)),),
    GeomKind.CYLINDER: (_TUBE,),
    GeomKind.BOX: (Piece("box", (0, 1, 2)),),
}


class Part(NamedTuple):
    """Pieces that share their triangles and their group; `n` of each robot.

    - `geoms`: shape of each piece.
    - `scales`, `shifts`: `Piece.scale` and `Piece.shift` of each.
    - `colors`: red, green, blue and opacity of each, from 0 to 1.
    """

    solid_name: str
    group: int
    solid: Solid
    geoms: tuple[int, ...]
    scales: tuple[tuple[int, int, int], ...]
    shifts: tuple[float, ...]
    colors: Float[np.ndarray, "n 4"]

    @property
    def is_open(self) -> bool:
        """True if the surface is seen from both sides."""
        return self.solid_name.startswith(("square", "field", "mesh"))


def parts_of(sys: System, far: float) -> tuple[list[Part], list[int]]:
    """Return the parts of one robot, and the planes that are drawn as endless ground.

    **Arguments:**

    - `far`: half length from which a plane of the world is drawn as endless, m.
    """
    kinds, colors = sys.geoms.kinds, colors_of(sys)
    found: dict[tuple[int, str], list[tuple[int, Piece]]] = {}
    ground = []
    for geom, kind in enumerate(kinds):
        require_known(kind, "cannot be shown")
        if colors[geom, 3] <= 0.0:
            continue
        if kind is GeomKind.PLANE and _endless(sys, geom, far):
            ground.append(geom)
            continue
        group = sys.geoms.groups[geom] if sys.geoms.groups else 0
        for piece in _pieces(sys, geom):
            found.setdefault((group, piece.solid), []).append((geom, piece))
    parts = []
    for (group, name), members in found.items():
        geoms = tuple(geom for geom, _ in members)
        scales = tuple(piece.scale for _, piece in members)
        shifts = tuple(piece.shift for _, piece in members)
        solid = _solid(sys, name)
        parts.append(
            Part(name, group, solid, geoms, scales, shifts, colors[list(geoms)])
        )
    return parts, ground


def colors_of(sys: System) -> Float[np.ndarray, "ngeom 4"]:
    """Return red, green, blue and opacity of all shapes, from 0 to 1."""
    depths = looks(sys).depths
    out = np.ones((len(depths), 4))
    for geom, depth in enumerate(depths):
        color = sys.geoms.colors[geom] if sys.geoms.colors else _UNSET
        if tuple(color) == _UNSET:
            base = _WORLD if depth < 0 else _PALETTE[depth % len(_PALETTE)]
            out[geom, :3] = np.array(base) / 255.0
        else:
            out[geom] = color
    return out


def instances(
    part: Part, placed: Shapes, offsets: Float[np.ndarray, "robot 3"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return position, quaternion (scalar first) and scale of each piece, robot by robot.

    **Arguments:**

    - `placed`: shapes of all robots.
    - `offsets`: shift of each robot, m.
    """
    geoms = list(part.geoms)
    size, rot = placed.size[:, geoms], placed.rot[:, geoms]
    along = np.array(part.shifts) * size[..., 1]
    pos = placed.pos[:, geoms] + along[..., None] * rot[..., 2] + offsets[:, None]
    padded = np.concatenate([size, np.ones_like(size[..., :1])], axis=-1)
    columns = np.broadcast_to(np.array(part.scales), (len(size), len(geoms), 3))
    scale = np.take_along_axis(padded, columns, axis=-1)
    quat = quaternions(rot.reshape(-1, 3, 3))
    return pos.reshape(-1, 3), quat, scale.reshape(-1, 3)


def quaternions(rot: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 4"]:
    """Return unit quaternions, scalar first, of rotation matrices."""
    return Rotation.from_matrix(rot).as_quat()[:, [3, 0, 1, 2]]


def _endless(sys: System, geom: int, far: float) -> bool:
    half = np.asarray(sys.geoms.size)[geom, :2]
    return sys.geoms.links[geom] < 0 and bool(np.any(half <= 0.0) or half.min() > far)


def _pieces(sys: System, geom: int) -> tuple[Piece, ...]:
    kind = sys.geoms.kinds[geom]
    if kind in _PIECES:
        return _PIECES[kind]
    word = "mesh" if kind is GeomKind.MESH else "field"
    return (Piece(f"{word} {sys.geoms.data[geom]}", (3, 3, 3)),)


def _solid(sys: System, name: str) -> Solid:
    word, _, index = name.partition(" ")
    if word == "mesh":
        return mesh(sys, int(index))
    if word == "field":
        return height_field(sys, int(index))
    plain = {
        "sphere": sphere,
        "cylinder": cylinder,
        "box": box,
        "square": square,
    }
    return plain[word]()
