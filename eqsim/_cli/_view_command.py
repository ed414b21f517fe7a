"""`eqsim view`"""

import pathlib
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from rich.console import Console
from rich.text import Text

from .._policies import AbstractController
from .._rollout import rollout
from ..envs import AbstractEnv, check_not_imported
from ..io import load, open_arrays
from ..model import System
from ..plugins import CommandError, RUNS
from ..randomize import AbstractRandomizer
from ..viewer import as_environment, export, launch
from ..wrappers import DomainRandomization
from ._inventory import at_least_one, environment, physics, preset, robot_of
from ._simulation_commands import RandomPolicy


class ViewRequest(NamedTuple):
    """The arguments of `eqsim view`."""

    target: str
    env: str | None
    pipeline: str | None
    num_envs: int | None
    randomize: str | None
    length: int | None
    seed: int
    export: str | None
    port: int | None
    dark: bool


class Subject(NamedTuple):
    """An environment, and the policy or the recording that moves it.

    - `env`: environment.
    - `has_task`: false if the environment is a robot without a task, which gets no random
        actions in an export.
    - `policy`: function `(obs, key) -> action` or controller, if there is one.
    - `q`, `dt`: coordinates, `(env, time, nq)`, and the time between them, s, if the file is
        a recording.
    - `preset`: environment whose presets `--randomize` names.
    """

    env: AbstractEnv
    has_task: bool = True
    policy: Callable[[Any, Any], Any] | AbstractController | None = None
    q: np.ndarray | None = None
    dt: float | None = None
    preset: str = ""


def run_view(request: ViewRequest) -> None:
    """Open the viewer, or write a page that plays a rollout."""
    if request.num_envs is not None:
        at_least_one("--num-envs", request.num_envs)
    if request.length is not None:
        at_least_one("--length", request.length)
        if request.export is None:
            raise CommandError("`--length` requires `--export`: leave it out.")
    if request.port is not None and request.export is not None:
        raise CommandError("An export needs no `--port`: leave it out.")
    if request.port is not None and not 0 <= request.port <= 65535:
        raise CommandError(f"`--port` must be from 0 to 65535, got {request.port}.")
    console = Console(highlight=False)
    subject = subject_of(request.target, request.pipeline, request.env)
    change = None
    if request.randomize is not None:
        change = preset(subject.preset, request.randomize)
        if subject.q is not None:
            raise CommandError(
                "`--randomize` does not apply to recordings, which are played "
                "unchanged. Leave it out."
            )
    if subject.q is not None:
        subject = subject._replace(q=subject.q[: request.num_envs])
    try:
        if request.export is not None:
            _export(console, request, subject, change)
        else:
            _show(console, request, subject, change)
    except ImportError as error:
        raise CommandError(str(error), 1) from error


def subject_of(target: str, pipeline: str | None, env: str | None = None) -> Subject:
    """Read a name, a file or a folder.

    **Arguments:**

    - `env`: environment of a run or a recording; by default the stored name.
    """
    path = pathlib.Path(target)
    recorded = path.is_dir() or path.suffix == ".npz"
    if env is not None and not recorded:
        raise CommandError(
            "`--env` is for runs and recordings. Leave it out, or pass the environment "
            "as the target."
        )
    if path.is_dir():
        if pipeline is not None:
            raise CommandError(
                "`--pipeline` does not apply to runs, which use the physics that they "
                "were trained with. Leave it out."
            )
        return _run(path, env)
    named = path.suffix in (".xml", ".mjcf", ".urdf", ".npz") or len(path.parts) > 1
    if named and not path.exists():
        raise CommandError(f"There is no file or folder {target!r}.")
    if path.is_file() and zipfile.is_zipfile(path):
        return _arrays(path, pipeline, env)
    if path.is_file():
        try:
            return _free(robot_of(path), pipeline)
        except (ValueError, FileNotFoundError) as error:
            raise CommandError(f"Cannot load {target!r}: {error}") from error
    return Subject(environment(target, pipeline), preset=target)


def _free(sys: System, pipeline: str | None) -> Subject:
    return Subject(as_environment(sys, physics(pipeline)), has_task=False)


def _arrays(path: pathlib.Path, pipeline: str | None, env: str | None) -> Subject:
    """Return a rollout of `eqsim rollout` or `eqsim control`, or a robot of
    `eqsim.save`."""
    try:
        with open_arrays(path) as file:
            names = set(file)
            if {"q", "dt", "env"} <= names:
                name = env or str(file["env"])
                if env is None:
                    check_not_imported(name, repr(str(path)))
                return _recording(file["q"], file["dt"], name, pipeline)
        robot = load(path) if "header" in names and env is None else None
        if isinstance(robot, System):
            return _free(robot, pipeline)
    except ValueError as error:
        raise CommandError(f"Cannot read {str(path)!r}: {error}") from error
    raise CommandError(
        f"{str(path)!r} is neither a recording of `eqsim rollout` or `eqsim control`, "
        "which has arrays `q`, `dt` and `env`, nor a robot saved by `eqsim.save`."
    )


def _recording(
    q: np.ndarray, dt: np.ndarray, name: str, pipeline: str | None
) -> Subject:
    env = environment(name, pipeline)
    nq = env.sys.nq
    if q.ndim < 2 or q.shape[-1] != nq or not q.size or q.dtype.kind not in "iuf":
        raise CommandError(
            f"`q` must hold real numbers of shape (..., time, {nq}) for {name!r}, got "
            f"shape {q.shape} and type {q.dtype}."
        )
    if dt.size != 1 or dt.dtype.kind not in "iuf" or not 0 < dt < np.inf:
        raise CommandError(f"`dt` must be a positive number, in s, got {dt.tolist()}.")
    rows = q.reshape(-1, *q.shape[-2:])
    return Subject(env, q=rows, dt=float(dt.item()), preset=name)


def _run(folder: pathlib.Path, name: str | None) -> Subject:
    """Return a trained policy; packages that train publish functions that read their
    folders."""
    reasons, given = [], {} if name is None else {"env": name}
    for reader in RUNS.names():
        try:
            env, policy = RUNS.get(reader)(str(folder), **given)
        except (FileNotFoundError, ValueError) as error:
            reasons.append(f"{reader}: {error}")
        else:
            return Subject(env, policy=policy)
    known = "; ".join(reasons) or (
        "no installed package reads folders of runs. Install eqsim-zoo"
    )
    raise CommandError(f"{str(folder)!r} cannot be shown as a run ({known}).")


def _show(
    console: Console,
    request: ViewRequest,
    subject: Subject,
    change: AbstractRandomizer | None,
) -> None:
    with launch(
        subject.env,
        subject.q,
        dt=subject.dt,
        policy=subject.policy,
        num_envs=request.num_envs or 1,
        randomize=change,
        key=jr.key(request.seed),
        dark=request.dark,
        port=request.port,
    ) as viewer:
        console.print(Text(f"open {viewer.url} (Ctrl-C stops)"), soft_wrap=True)
        viewer.wait()


def _export(
    console: Console,
    request: ViewRequest,
    subject: Subject,
    change: AbstractRandomizer | None,
) -> None:
    path = pathlib.Path(str(request.export))
    env, what, dt = subject.env, subject.q, subject.dt
    with console.status("compiling and simulating"):
        if what is None:
            env, what = _simulated(request, subject, change)
        page = export(env, what, path, dt=dt, dark=request.dark)
    size = len(page.html.encode()) / 1e6
    console.print(Text(f"wrote {path} ({size:.1f} MB)"), soft_wrap=True)


def _simulated(
    request: ViewRequest, subject: Subject, change: AbstractRandomizer | None
) -> tuple[AbstractEnv, Any]:
    """Return the environment and a rollout: with the policy, with random actions
    without a policy, and without actions for a robot without a task."""
    env, policy = subject.env, subject.policy
    if change is not None:
        env = DomainRandomization(env, change)
    if policy is None and not subject.has_task:
        policy = lambda obs, key: jnp.zeros(env.sys.nu, env.sys.dt.dtype)
    if policy is None:
        policy = RandomPolicy(env.action_range)
    keys = jr.split(jr.key(request.seed), request.num_envs or 1)
    stop = lambda timestep: timestep.done
    length = request.length or 300
    return env, rollout(env, policy, keys, length, stop=stop, throw=False)
