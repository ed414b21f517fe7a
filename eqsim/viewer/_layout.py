"""Arrangement of robots and camera."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..model import System
from ..render import Camera, camera_for
from ..render._camera import FIELD_OF_VIEW


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
