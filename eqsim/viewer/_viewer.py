"""The live page."""

import html
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._trajectory import Trajectory
from ..envs import AbstractEnv
from ..model import System
from ._arrows import arrows, force_scale, has_contacts
from ._door import Door, is_loopback
from ._layout import layout
from ._panel import Panel
from ._physics import contact_forces, see, Setup
from ._scene import Scene
from ._server import start_server, stop_server
from ._session import Session
from ._sliders import AbstractSlider, check_sliders, default_sliders
from ._trajectories import environment_of, recorded_moments


_FRAME = 1.0 / 30.0
_PORTS = range(8080, 8100)
# Longest arrow of a contact force, in radii of the robot.
_LONGEST = 2.0


class Viewer:
    """A page that shows robots, and the thread that moves them. `show` makes one.

    It is a context manager that closes the page at the end, and notebooks display it.
    """

    def __init__(
        self, session: Session, panel: Panel, draw: "Painter", server: Any, door: Door, url
    ):
        self._session, self._panel, self._draw = session, panel, draw
        self._server, self._door, self._url = server, door, url
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page, with its token if it has one."""
        return self._url

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
        if threading.current_thread() is not self._thread:
            self._thread.join(60.0)
        self._door.close()
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
            self._draw.draw(self._session, self._panel)
            self._panel.refresh(0.0)
            self._play()
        except Exception as error:
            self._error = error
            self._server.gui.add_markdown(f"**Stopped:** {error}")
            self._closing.set()

    def _play(self) -> None:
        session, panel = self._session, self._panel
        last, written, rate = time.monotonic(), 0.0, 1.0
        while not self._closing.is_set():
            now, before = time.monotonic(), session.moment.time
            dirty = False
            while not panel.pending.empty():
                panel.pending.get()()
                dirty = True
            moved = session.tick(now - last)
            if moved:
                passed = session.moment.time - before
                rate += 0.1 * (max(passed, 0.0) / max(now - last, 1e-6) - rate)
            last = now
            if moved or dirty:
                self._draw.draw(session, panel)
            # Text and the slider of time change less often than the robots.
            if dirty or (moved and now - written > 0.1):
                panel.refresh(rate)
                written = now
            self._closing.wait(max(0.0, _FRAME - (time.monotonic() - now)))


class Painter:
    """Draws the moment of a session in a scene."""

    def __init__(self, scene: Scene, sys: System, arrangement):
        self._scene, self._layout = scene, arrangement
        self._scale = force_scale(sys, arrangement.radius)

    def draw(self, session: Session, panel: Panel) -> None:
        """Draw robots, and contact forces if the panel says so."""
        self.paint(
            session, panel.follows, panel.force_length if panel.forces else 0.0
        )

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
        self._scene.draw(placed, center)
        shown = np.zeros((0, 2, 3))
        if force_length > 0.0:
            pos, force = contact_forces(setup, values, robots)
            scale = force_length * self._scale
            longest = _LONGEST * self._layout.radius
            found = np.asarray(pos), np.asarray(force)
            shown = arrows(*found, scale, longest, self._layout.offsets)
        self._scene.draw_forces(shown)


def show(
    robot: System | AbstractEnv,
    trajectory: Trajectory | Float[Any, "*batch time nq"] | None = None,
    *,
    dt: float | None = None,
    policy: Callable[[Any, PRNGKeyArray], Any] | None = None,
    num_envs: int = 1,
    randomize: Callable[[PRNGKeyArray, System], System] | None = None,
    sliders: Mapping[str, AbstractSlider] | None = None,
    key: PRNGKeyArray | None = None,
    spacing: float | None = None,
    forces: bool = True,
    dark: bool = False,
    host: str = "127.0.0.1",
    port: int | None = None,
) -> Viewer:
    """Serve a page that simulates a robot or plays a trajectory.

    The page has a time line, sliders over parameters and actions, keyframes and contact
    forces. Moving a slider compiles nothing.

    **Arguments:**

    - `robot`: an environment, or a `System`, which then moves without a task.
    - `trajectory`: what to play: a `Trajectory` of `eqsim.rollout` in `robot`, or
        coordinates. Of several robots, time is the axis after those of the batch. By
        default the robot is simulated; playback can go on as a simulation, too.
    - `dt`: time between coordinates, s; by default that of a control step.
    - `policy`: function `(obs, key) -> action` that can choose actions.
    - `num_envs`: number of robots that are simulated.
    - `randomize`: function `(key, sys) -> sys` that draws parameters of each robot at every
        reset; it is not used for trajectories.
    - `sliders`: sliders over parameters, by label; by default those of
        `default_sliders(robot.sys)`.
    - `key`: a key of `jax.random.key`.
    - `spacing`: distance of neighboring robots, m; 0 draws all in the same place.
    - `forces`: true if contact forces are shown at first.
    - `dark`: true for a dark page.
    - `host`: address to listen at. Other machines can reach the page if it is not a loopback
        address; the address `Viewer.url` then has a random token, without which requests
        are refused.
    - `port`: port to listen at; by default the first free one of 8080 to 8099.

    **Returns:** a `Viewer`, with the address `url`. In a script, call its `wait()`.

    **Raises:** `ImportError` without the extra `viewer`; `ValueError` or `TypeError` if the
    arguments do not fit; `OSError` if the port is taken.
    """
    env, recorded = recorded_moments(robot, trajectory, dt)
    chosen = dict(default_sliders(env.sys) if sliders is None else sliders)
    check_sliders(env.sys, chosen)
    if trajectory is not None:
        num_envs, randomize = len(recorded[0].robots.action), None
    if num_envs < 1:
        raise ValueError(f"`num_envs` is {num_envs}: at least 1 is expected.")
    values = np.array([slider.initial(env.sys) for slider in chosen.values()])
    setup = Setup(env, tuple(chosen.values()), policy, randomize)
    arrangement = layout(env.sys, num_envs, spacing)
    server = start_server("eqsim", dark)
    try:
        token = None if is_loopback(host) else secrets.token_urlsafe(24)
        door = _open_door(host, port, server.get_port(), token)
    except OSError:
        stop_server(server)
        raise
    first = key if key is not None else jr.key(0)
    session = Session(setup, values, first, num_envs, recorded or None)
    scene = Scene(server, env.sys, arrangement, dark)
    shown = forces if has_contacts(env.sys) else None
    panel = Panel(server, session, chosen, shown, scene.groups, scene.show_group)
    panel.follow.value = arrangement.follows
    painter = Painter(scene, env.sys, arrangement)
    return Viewer(session, panel, painter, server, door, _url(host, door.port, token))


def _open_door(host: str, port: int | None, inner: int, token: str | None) -> Door:
    for candidate in _PORTS if port is None else (port,):
        try:
            return Door(host, candidate, inner, token)
        except OSError as error:
            failed = error
    raise OSError(
        f"Cannot listen at {host}, port {port or 'between 8080 and 8099'} ({failed}). Choose "
        "another `port`, or 0 for any that is free."
    ) from failed


def _url(host: str, port: int, token: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")
