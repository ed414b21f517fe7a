"""The pages: `launch` serves one that simulates, `export` writes one that plays a trajectory.

Both draw a `Session` in a `Scene` by a `Painter`. A `Viewer` is the live page and the thread
that moves its robots; a `Page` is the text of an exported one.
"""

import contextlib
import html
import io
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._errors import check_count
from .._policies import AbstractController
from .._trajectory import Trajectory
from ..envs import AbstractEnv
from ..model import System
from ._panel import Panel
from ._physics import (
    AbstractSlider,
    check_sliders,
    contact_forces,
    default_sliders,
    see,
    Setup,
)
from ._scene import arrows, force_scale, has_contacts, Layout, layout, Scene
from ._session import Frame, recorded_frames, Session
from ._triangles import import_extra, Shapes


def start_server(dark: bool, port: int | None = 0) -> Any:
    """Start a `viser.ViserServer` for this machine only, quietly.

    **Arguments:**

    - `port`: port to listen at; 0 for any that is free, None for the first one from 8080.

    **Raises:** `ValueError` if it is no port; `OSError` if it is taken.
    """
    check_count("port", port, 0, or_none="the first free one from 8080")
    if port is not None and port > 65535:
        raise ValueError(f"`port` must be at most 65535, got {port}.")
    viser = import_extra("viser")
    # viser prints a box with addresses.
    with contextlib.redirect_stdout(io.StringIO()):
        start = 8080 if port is None else port
        server = viser.ViserServer("127.0.0.1", start, "eqsim", verbose=False)
    if port and server.get_port() != port:
        stop_server(server)
        raise OSError(
            f"Port {port} is taken. Choose another `port`, or 0 for any that is free."
        )
    server.gui.configure_theme(dark_mode=dark, show_logo=False, show_share_button=False)
    return server


def stop_server(server: Any) -> None:
    """Stop a server, quietly."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


# Longest arrow of a contact force, in radii of the robot.
_LONGEST = 2.0


class Painter:
    """Draws the frame of a session in a scene."""

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
        setup, values, robots = session.setup, session.parameters, session.frame.robots
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


_FRAME, _TEXT = 1.0 / 30.0, 0.2


class Viewer:
    """A page that shows robots, and the thread that moves them. `launch` makes one.

    It is a context manager that closes the page at the end, and notebooks display it.
    """

    def __init__(self, session: Session, panel: Panel, painter: Painter, server: Any):
        self._session, self._panel, self._painter = session, panel, painter
        self._server = server
        self._closing, self._closed = threading.Event(), False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page, on this machine."""
        return f"http://127.0.0.1:{self._server.get_port()}/"

    def wait(self) -> None:
        """Wait until the viewer is closed, or until the user interrupts.

        **Raises:** what the simulation raises.
        """
        try:
            while not self._closing.wait(0.2):
                pass
        except KeyboardInterrupt:
            self.close()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop the simulation and close the page."""
        self._closing.set()
        if self._closed:
            return
        self._closed = True
        self._thread.join(60.0)
        stop_server(self._server)

    def __enter__(self) -> "Viewer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{html.escape(self.url)}" width="100%" height="480" '
            'style="border:1px solid #ddd"></iframe>'
        )

    def _run(self) -> None:
        try:
            self._painter.draw(self._session, self._panel)
            self._panel.refresh(0.0)
            self._play()
        except Exception as error:
            self._error = error
            self._server.gui.add_markdown(f"**Stopped:** {error}")
            self._closing.set()

    def _play(self) -> None:
        session, panel = self._session, self._panel
        last = time.monotonic()
        written, passed = last, 0.0
        while not self._closing.is_set():
            now, before = time.monotonic(), session.frame.time
            dirty = not panel.pending.empty()
            panel.run_pending()
            moved = session.tick(now - last)
            last = now
            passed += max(session.frame.time - before, 0.0) if moved else 0.0
            if moved or dirty:
                self._painter.draw(session, panel)
            # Text and the slider of time change less often than the robots.
            if dirty or (moved and now - written > _TEXT):
                panel.refresh(passed / max(now - written, 1e-3))
                written, passed = now, 0.0
            self._closing.wait(max(0.0, _FRAME - (time.monotonic() - now)))


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

    - `robot`, `trajectory`, `dt`, `spacing`, `dark`: arguments of `launch`.
    - `path`: file to write; by default none is written.
    - `forces`: true if contact forces are drawn; coordinates alone have none.
    - `fps`: frames per second at most.

    **Raises:** as `launch`, and `ValueError` if `fps` is not positive.

    !!! example

        ```python
        trajectory = eqsim.rollout(env, policy, jax.random.key(0), length=300)
        eqsim.viewer.export(env, trajectory, "ant.html")
        ```
    """
    if not fps > 0.0:
        raise ValueError(f"`fps` must be positive, got {fps}.")
    env, frames = recorded_frames(robot, trajectory, dt)
    frames = _thinned(frames, fps)
    count = len(frames[0].robots.action)
    session = Session(Setup(env), np.zeros(0), jr.key(0), count, frames)
    arrangement = layout(env.sys, count, spacing)
    is_rollout = isinstance(trajectory, Trajectory)
    length = float(forces and is_rollout and has_contacts(env.sys))
    server = start_server(dark)
    try:
        painter = Painter(
            Scene(server, env.sys, arrangement, dark), env.sys, arrangement
        )
        painter.paint(session, arrangement.follows, length)
        recorder = server.get_scene_serializer()
        for index, frame in enumerate(frames[1:], 1):
            recorder.insert_sleep(frame.time - frames[index - 1].time)
            session.index = index
            painter.paint(session, arrangement.follows, length)
        text = recorder.as_html(dark_mode=dark)
    finally:
        stop_server(server)
    page = Page(text)
    if path is not None:
        page.write(path)
    return page


def _thinned(frames: list[Frame], fps: float) -> list[Frame]:
    """Select frames that are at least a frame apart."""
    out = [frames[0]]
    for frame in frames[1:]:
        # A frame may be shorter by rounding.
        if frame.time - out[-1].time >= 1.0 / fps - 1e-6:
            out.append(frame)
    return out


def launch(
    robot: System | AbstractEnv,
    trajectory: Trajectory | Float[Any, "*batch time nq"] | None = None,
    *,
    dt: float | None = None,
    policy: Callable[[Any, PRNGKeyArray], Any] | AbstractController | None = None,
    num_envs: int = 1,
    randomize: Callable[[PRNGKeyArray, System], System] | None = None,
    sliders: Mapping[str, AbstractSlider] | None = None,
    key: PRNGKeyArray | None = None,
    spacing: float | None = None,
    forces: bool = True,
    dark: bool = False,
    port: int | None = None,
) -> Viewer:
    """Serve a page that simulates a robot or plays a trajectory, to this machine only.

    **Arguments:**

    - `robot`: an environment, or a `System`, which then moves without a task.
    - `trajectory`: a `Trajectory` of `eqsim.rollout` in `robot`, or coordinates; time is the
        axis behind those of the batch. By default, `robot` is simulated.
    - `dt`: time between coordinates, s; by default a control step.
    - `policy`: function `(obs, key) -> action` or controller with memory, a source of
        actions beside the sliders.
    - `num_envs`: number of robots to simulate.
    - `randomize`: function `(key, sys) -> sys` that draws the parameters of each robot to
        simulate, at every reset.
    - `sliders`: sliders over parameters, by label; see `default_sliders`.
    - `key`: a key of `jax.random.key`.
    - `spacing`: distance of neighbors, m; 0 draws all robots in the same place.
    - `forces`: true if contact forces are shown at first.
    - `dark`: true for a dark page.
    - `port`: port to listen at; by default the first free one from 8080.

    **Raises:** `ImportError` without the extra `viewer`; `ValueError` or `TypeError` if the
    arguments do not fit; `OSError` if the port is taken.
    """
    env, recorded = recorded_frames(robot, trajectory, dt)
    if recorded:
        num_envs, randomize = len(recorded[0].robots.action), None
    check_count("num_envs", num_envs)
    labels = dict(default_sliders(env.sys) if sliders is None else sliders)
    check_sliders(env.sys, labels)
    setup = Setup(env, tuple(labels.values()), policy, randomize)
    key = jr.key(0) if key is None else key
    arrangement = layout(env.sys, num_envs, spacing)
    server = start_server(dark, port)
    values = np.array([x.initial(env.sys) for x in labels.values()])
    session = Session(setup, values, key, num_envs, recorded or None)
    scene = Scene(server, env.sys, arrangement, dark)
    shown = forces if has_contacts(env.sys) else None
    panel = Panel(server, session, labels, shown, scene.groups, scene.show_group)
    panel.follow.value = arrangement.follows
    painter = Painter(scene, env.sys, arrangement)
    return Viewer(session, panel, painter, server)
