import jax.tree_util as jtu
import numpy as np

from ..model import System
from ._arrows import arrows, force_scale
from ._layout import Layout
from ._panel import Panel
from ._parts import Shapes
from ._physics import contact_forces, see
from ._scene import Scene
from ._session import Session


# Longest arrow of a contact force, in radii of the robot.
_LONGEST = 2.0


class Painter:
    """Draws the moment of a session in a scene."""

    def __init__(self, scene: Scene, sys: System, arrangement: Layout):
        self._scene, self._layout = scene, arrangement
        self._scale = force_scale(sys, arrangement.radius)

    def draw(self, session: Session, panel: Panel) -> None:
        """Draw robots, and contact forces if the panel says so."""
        self.paint(session, panel.follows, panel.force_length if panel.forces else 0.0)

    def paint(self, session: Session, follows: bool, force_length: float) -> None:
        """Draw robots.

        **Arguments:**

        - `follows`: true if the camera moves with the robots.
        - `force_length`: factor of the length of contact forces; 0 without them.
        """
        setup, values, robots = session.setup, session.parameters, session.moment.robots
        placed, root = jtu.tree_map(np.asarray, see(setup, values, robots))
        center = np.zeros(3)
        if follows:
            center[:2] = root[:, :2].mean(axis=0)
        self._scene.draw(Shapes(*placed), center)
        shown = np.zeros((0, 2, 3))
        if force_length > 0.0:
            pos, force = contact_forces(setup, values, robots)
            scale = force_length * self._scale
            longest = _LONGEST * self._layout.radius
            found = np.asarray(pos), np.asarray(force)
            shown = arrows(*found, scale, longest, self._layout.offsets)
        self._scene.draw_forces(shown)
