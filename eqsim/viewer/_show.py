import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._errors import check_count
from .._policies import AbstractController
from .._trajectory import Trajectory
from ..envs import AbstractEnv
from ..model import System
from ._arrows import has_contacts
from ._door import Door, is_loopback
from ._layout import layout
from ._painter import Painter
from ._panel import Panel
from ._physics import Setup
from ._scene import Scene
from ._server import start_server, stop_server
from ._session import Session
from ._sliders import AbstractSlider, check_sliders, default_sliders
from ._trajectories import recorded_moments
from ._viewer import Viewer


_PORTS = range(8080, 8100)


def show(
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
    host: str = "127.0.0.1",
    port: int | None = None,
) -> Viewer:
    """Serve a page that simulates a robot or plays a trajectory.

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
    - `host`: address to listen at. If it is not a loopback address, `Viewer.url` has a
        random token, and requests without it are refused.
    - `port`: port to listen at; by default the first free one of 8080 to 8099.

    **Raises:** `ImportError` without the extra `viewer`; `ValueError` or `TypeError` if the
    arguments do not fit; `OSError` if the port is taken.
    """
    env, recorded = recorded_moments(robot, trajectory, dt)
    if recorded:
        num_envs, randomize = len(recorded[0].robots.action), None
    check_count("num_envs", num_envs)
    labels = dict(default_sliders(env.sys) if sliders is None else sliders)
    check_sliders(env.sys, labels)
    setup = Setup(env, tuple(labels.values()), policy, randomize)
    key = jr.key(0) if key is None else key
    return _serve(
        _Request(setup, labels, key, num_envs, recorded, spacing, forces, dark),
        host,
        port,
    )


class _Request(NamedTuple):
    """The arguments of `show`."""

    setup: Setup
    sliders: dict[str, AbstractSlider]
    key: PRNGKeyArray
    num_robots: int
    recorded: list
    spacing: float | None
    forces: bool
    dark: bool


def _serve(request: _Request, host: str, port: int | None) -> Viewer:
    sys = request.setup.env.sys
    arrangement = layout(sys, request.num_robots, request.spacing)
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    server = start_server("eqsim", request.dark)
    try:
        door = _open_door(host, port, server.get_port(), token)
    except OSError:
        stop_server(server)
        raise
    values = np.array([x.initial(sys) for x in request.sliders.values()])
    session = Session(
        request.setup, values, request.key, request.num_robots, request.recorded or None
    )
    scene = Scene(server, sys, arrangement, request.dark)
    forces = request.forces if has_contacts(sys) else None
    panel = Panel(
        server, session, request.sliders, forces, scene.groups, scene.show_group
    )
    panel.follow.value = arrangement.follows
    painter = Painter(scene, sys, arrangement)
    return Viewer(session, panel, painter, server, door, _url(host, door.port, token))


def _open_door(host: str, port: int | None, inner: int, token: str | None) -> Door:
    failed: OSError | None = None
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
