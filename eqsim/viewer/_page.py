"""Export of trajectories as pages without a server."""

import html
import os
import pathlib
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Float

from .._trajectory import Trajectory
from ..envs import AbstractEnv
from ..model import System
from ._arrows import has_contacts
from ._layout import layout
from ._painter import Painter
from ._physics import Setup
from ._scene import Scene
from ._server import start_server, stop_server
from ._session import Moment, Session
from ._trajectories import recorded_moments


class Page:
    """A page that plays a trajectory and needs neither a server nor a network.

    Notebooks display it.

    **Arguments:**

    - `html`: the text of the page.
    """

    def __init__(self, html: str):
        self.html = html

    def write(self, path: str | os.PathLike) -> pathlib.Path:
        """Write the page to a file, and return its path."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html, encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return f"Page({len(self.html.encode()):,} bytes)"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" width="100%" height="480" '
            'style="border:1px solid #ddd"></iframe>'
        )


def export(
    robot: System | AbstractEnv,
    trajectory: Trajectory | Float[Any, "*batch time nq"],
    path: str | os.PathLike | None = None,
    *,
    dt: float | None = None,
    spacing: float | None = None,
    forces: bool = True,
    dark: bool = False,
    fps: float = 30.0,
) -> Page:
    """Make a page that plays a trajectory from a single HTML file.

    It has a time line, but no sliders, as it does not simulate.

    **Arguments:**

    - `robot`, `trajectory`, `dt`, `spacing`, `dark`: arguments of `show`.
    - `path`: file to write; by default none is written.
    - `forces`: true if contact forces are drawn; coordinates alone have none.
    - `fps`: frames per second at most.

    **Raises:** as `show`, and `ValueError` if `fps` is not positive.

    !!! example

        ```python
        trajectory = eqsim.rollout(env, policy, jax.random.key(0), length=300)
        eqsim.viewer.export(env, trajectory, "ant.html")
        ```
    """
    if not fps > 0.0:
        raise ValueError(f"`fps` must be positive, got {fps}.")
    env, moments = recorded_moments(robot, trajectory, dt)
    moments = _thinned(moments, fps)
    count = len(moments[0].robots.action)
    session = Session(Setup(env), np.zeros(0), jr.key(0), count, moments)
    arrangement = layout(env.sys, count, spacing)
    is_rollout = isinstance(trajectory, Trajectory)
    length = float(forces and is_rollout and has_contacts(env.sys))
    server = start_server("eqsim", dark)
    try:
        painter = Painter(
            Scene(server, env.sys, arrangement, dark), env.sys, arrangement
        )
        painter.paint(session, arrangement.follows, length)
        recorder = server.get_scene_serializer()
        for index, moment in enumerate(moments[1:], 1):
            recorder.insert_sleep(moment.time - moments[index - 1].time)
            session.index = index
            painter.paint(session, arrangement.follows, length)
        text = recorder.as_html(dark_mode=dark)
    finally:
        stop_server(server)
    page = Page(text)
    if path is not None:
        page.write(path)
    return page


def _thinned(moments: list[Moment], fps: float) -> list[Moment]:
    """Select moments that are at least a frame apart."""
    out = [moments[0]]
    for moment in moments[1:]:
        # A frame may be shorter by rounding.
        if moment.time - out[-1].time >= 1.0 / fps - 1e-6:
            out.append(moment)
    return out
