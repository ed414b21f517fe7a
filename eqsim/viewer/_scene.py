"""Nodes of a viser server: arrangement of robots and camera, arrows for contact forces, and
the scene that holds them."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..collision import contact_plan
from ..model import System
from ..render import Camera, camera_for
from ..render.cameras import FIELD_OF_VIEW
from ._triangles import colors_of, instances, Part, parts_of, quaternions, Shapes


class Layout(NamedTuple):
    """An arrangement of robots in a square grid.

    - `offsets`: shift of each robot, m.
    - `radius`: radius of a sphere around one robot, m.
    - `look_at`, `position`: center of the view and position of the camera, m.
    - `follows`: true if the robots walk about on the ground.
    """

    offsets: Float[np.ndarray, "robot 3"]
    radius: float
    look_at: Float[np.ndarray, "3"]
    position: Float[np.ndarray, "3"]
    follows: bool


def layout(sys: System, count: int, spacing: float | None) -> Layout:
    """Arrange robots.

    **Arguments:**

    - `sys`: one robot.
    - `count`: number of robots.
    - `spacing`: distance of neighbors, m; 0 for robots in the same place. By default
        about twice the radius of a robot.
    """
    camera = camera_for(sys)
    radius = camera.distance * math.tan(math.radians(FIELD_OF_VIEW / 2)) / 1.1
    spacing = 2.0 * radius if spacing is None else spacing
    columns = math.ceil(math.sqrt(count))
    place = np.arange(count)
    cells = np.stack([place % columns, place // columns, 0 * place], axis=1)
    offsets = spacing * (cells - 0.5 * (cells.max(axis=0) + cells.min(axis=0)))
    extent = float(np.max(np.linalg.norm(offsets, axis=1)))
    look_at = np.array(camera.lookat)
    back = camera.distance * (1.0 + 0.8 * extent / radius)
    position = look_at - back * _direction(camera, count > 1)
    return Layout(offsets, radius, look_at, position, camera.follow is not None)


def _direction(camera: Camera, many: bool) -> np.ndarray:
    """Return the direction of view; more from above for many robots."""
    elevation = math.radians(min(camera.elevation, -30.0) if many else camera.elevation)
    # Not along an axis, so that depth shows.
    azimuth = math.radians(camera.azimuth + 25.0)
    level = math.cos(elevation)
    return np.array(
        [level * math.cos(azimuth), level * math.sin(azimuth), math.sin(elevation)]
    )


def arrows(
    pos: Float[np.ndarray, "robot ncon 3"],
    force: Float[np.ndarray, "robot ncon 3"],
    scale: float,
    longest: float,
    offsets: Float[np.ndarray, "robot 3"],
) -> Float[np.ndarray, "n 2 3"]:
    """Return start and end of an arrow for each contact that pushes.

    **Arguments:**

    - `scale`: length of an arrow per force, m/N.
    - `longest`: length at which arrows are cut, as impacts last one step, m.
    - `offsets`: shift of each robot, m.
    """
    length = scale * np.linalg.norm(force, axis=-1)
    start = pos + offsets[:, None]
    shown = length > 1e-2 * longest
    cut = scale * np.minimum(1.0, longest / np.maximum(length, 1e-12))
    return np.stack([start, start + cut[..., None] * force], axis=-2)[shown]


def force_scale(sys: System, radius: float) -> float:
    """Return the scale, m/N, at which the weight of the robot is as long as its radius."""
    gravity = float(np.linalg.norm(np.asarray(sys.gravity)))
    weight = float(np.sum(np.asarray(sys.links.mass))) * (gravity or 9.81)
    return radius / max(weight, 1e-9)


def has_contacts(sys: System) -> bool:
    """Return true if shapes of the robot may touch."""
    return bool(contact_plan(sys).point_pairs)


VISIBLE_GROUPS = (0, 1, 2)
"""Groups of shapes that are visible at first, as in MuJoCo's viewer."""

_FORCE = (214, 39, 40)
_SECTION = 1.0
# viser's lights are bright: with this exponent, colors look as in the model file.
_CONTRAST = 1.8


class Scene:
    """Nodes for the shapes of several robots that look alike.

    Shapes are batched: each kind of shape, and each mesh, is one node for all robots.

    **Arguments:**

    - `server`: a `viser.ViserServer`.
    - `sys`: one robot.
    - `layout`: arrangement of the robots.
    - `dark`: true for a dark background.
    """

    def __init__(self, server: Any, sys: System, layout: Layout, dark: bool):
        self._scene, self._layout = server.scene, layout
        count = len(layout.offsets)
        far = 4.0 * layout.radius
        self._parts, self._ground = parts_of(sys, far)
        self.groups = sorted({part.group for part in self._parts})
        self._frames = {
            group: self._scene.add_frame(
                f"/robots/group{group}",
                show_axes=False,
                visible=group in VISIBLE_GROUPS,
            )
            for group in self.groups
        }
        # Robots in the same place are seen through one another.
        overlaid = count > 1 and not np.any(layout.offsets)
        fade = np.where(np.arange(count) > 0, 0.35 if overlaid else 1.0, 1.0)
        self._nodes = [self._add(part, count, fade) for part in self._parts]
        self._scales = [np.zeros(0) for _ in self._parts]
        self._planes = self._add_ground(sys, dark)
        self._arrows: Any = None
        self._root = self._scene.add_frame("/robots", show_axes=False)
        server.initial_camera.position = tuple(layout.position)
        server.initial_camera.look_at = tuple(layout.look_at)
        server.initial_camera.up = (0.0, 0.0, 1.0)

    def draw(self, placed: Shapes, center: Float[np.ndarray, "3"]) -> None:
        """Move all shapes.

        **Arguments:**

        - `placed`: shapes of all robots.
        - `center`: point of the world that the camera keeps in the middle, m.
        """
        for number, (part, node) in enumerate(zip(self._parts, self._nodes)):
            pos, quat, scale = instances(part, placed, self._layout.offsets)
            node.batched_positions = pos.astype(np.float32)
            node.batched_wxyzs = quat.astype(np.float32)
            if not np.array_equal(scale, self._scales[number]):
                node.batched_scales = scale.astype(np.float32)
                self._scales[number] = scale
        self._root.position = tuple(-center)
        for geom, plane in zip(self._ground, self._planes):
            pos, rot = placed.pos[0, geom], placed.rot[0, geom]
            # A plane moves back by whole sections of its pattern.
            shift = np.round((pos - center) @ rot / _SECTION)
            shift[2] = 0.0
            plane.position = tuple(pos - center - _SECTION * rot @ shift)
            plane.wxyz = tuple(quaternions(rot[None])[0])

    def draw_forces(self, arrows: Float[np.ndarray, "n 2 3"]) -> None:
        """Replace the arrows of contact forces."""
        if self._arrows is not None and len(arrows):
            self._arrows.points = arrows.astype(np.float32)
            self._arrows.visible = True
        elif self._arrows is not None:
            self._arrows.visible = False
        elif len(arrows):
            thick = 0.02 * self._layout.radius
            self._arrows = self._scene.add_arrows(
                "/robots/forces",
                arrows,
                _FORCE,
                shaft_radius=thick,
                head_radius=2.0 * thick,
                head_length=4.0 * thick,
            )

    def show_group(self, group: int, visible: bool) -> None:
        """Show or hide a group of shapes."""
        self._frames[group].visible = visible

    def _add(self, part: Part, count: int, fade: np.ndarray) -> Any:
        many, none = count * len(part.geoms), np.zeros(3)
        colors = np.tile(part.colors[:, :3] ** _CONTRAST, (count, 1))
        opacity = (fade[:, None] * part.colors[None, :, 3]).ravel()
        return self._scene.add_batched_meshes_simple(
            f"/robots/group{part.group}/{part.solid_name}",
            part.solid.vertices,
            part.solid.faces,
            np.tile([1.0, 0.0, 0.0, 0.0], (many, 1)),
            np.tile(none, (many, 1)),
            batched_scales=np.ones((many, 3)),
            batched_colors=np.round(255.0 * colors).astype(np.uint8),
            batched_opacities=opacity if np.any(opacity < 1.0) else None,
            side="double" if part.is_open else "front",
            lod="off",
        )

    def _add_ground(self, sys: System, dark: bool) -> list[Any]:
        line = (90, 94, 99) if dark else (186, 190, 195)
        fine = (70, 74, 79) if dark else (208, 211, 215)
        color = (48, 51, 55) if dark else (232, 234, 237)
        return [
            self._scene.add_grid(
                f"/ground {geom}",
                infinite_grid=True,
                cell_size=0.5 * _SECTION,
                section_size=_SECTION,
                cell_color=fine,
                section_color=line,
                cell_thickness=0.6,
                section_thickness=0.9,
                fade_distance=max(20.0, 12.0 * self._layout.radius),
                plane_color=color,
                plane_opacity=float(colors_of(sys)[geom, 3]),
                shadow_opacity=0.25,
            )
            for geom in self._ground
        ]
