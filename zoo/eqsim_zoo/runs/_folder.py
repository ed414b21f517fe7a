"""Run folders: files of a run, and loading it."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from eqsim import AbstractAgent, AbstractEnv
from eqsim.wrappers import layers

from ..blocks import training_env
from ..blocks._environments import pool_key
from ..data import Dataset
from ._checkpoint import load_checkpoint, read_about, versions
from ._members import Members, members_of
from ._plan import Plan
from ._recipe import Recipe, recipe_from_json
from ._recorded import as_learner, Recorded
from ._settings import describe, encode, has_default


try:
    import fcntl
except ImportError:  # Not available on every system.
    fcntl = None


FORMAT = "eqsim-run-1"
CONFIG, LAST, BEST = "config.json", "last.ckpt", "best.ckpt"
VIDEOS = "videos"
_OURS = (CONFIG, LAST, BEST, "metrics.jsonl", "metrics.csv", "curves.png")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Destination of a run, for `train(out=...)`.

    **Arguments:**

    - `path`: folder for metrics, curves and the checkpoints `last.ckpt` and `best.ckpt`.
    - `overwrite`: true to delete a run in that folder.
    - `recipe`: names and settings from which `resume` rebuilds agent and environment.
    """

    path: str | os.PathLike
    overwrite: bool = False
    recipe: Recipe | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """A run loaded from its folder.

    **Arguments:**

    - `folder`: folder of the run.
    - `members`: agents; `members.agent(0)` is the first.
    - `env`: environment without auto-reset; None for training on a dataset alone.
    - `plan`: training plan.
    - `recipe`: names and settings of the run; None if it was started with objects.
    - `data`: dataset; None for training in an environment.
    - `state`: state of all members, with a member axis if there are several; see
        `members.pick`.
    - `about`: metadata of the checkpoint: `counters`, `agents` and `env`.
    """

    folder: pathlib.Path
    members: Members
    env: AbstractEnv | None
    plan: Plan
    recipe: Recipe | None
    data: Dataset | None = None
    state: Any = None
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    def environment(self) -> AbstractEnv:
        """Return the environment.

        **Raises:** `ValueError` if the run was trained on a dataset alone.
        """
        if self.env is None:
            raise ValueError(
                f"The run in {str(self.folder)!r} was trained on a dataset without an "
                "environment. Pass `env` to `load_run` to act and to evaluate."
            )
        return self.env


def load_run(
    folder: str | os.PathLike,
    *,
    best: bool = False,
    agent: AbstractAgent | Sequence[AbstractAgent] | None = None,
    env: AbstractEnv | None = None,
    data: Dataset | None = None,
) -> Run:
    """Load a run and one of its checkpoints.

    **Arguments:**

    - `folder`: folder of the run.
    - `best`: true for the checkpoint of the evaluation with the highest mean return over
        the seeds of an agent, false for the last one.
    - `agent`, `env`: agent and environment of the run; not needed if it has a `recipe`.
    - `data`: dataset of the run, if it was trained without an environment.

    **Raises:** `FileNotFoundError` if a file is missing; `CheckpointError` if a file is
    damaged or does not fit; `ValueError` if the run cannot be rebuilt.
    """
    run = open_run(folder, agent, env, data, learns=False)
    return with_state(run, run.folder / (BEST if best else LAST))


def with_state(run: Run, path: pathlib.Path) -> Run:
    """Return the run with the state of a checkpoint."""
    whole = run_env(run)
    stored: Any = read_about(path).get("agents")
    if not describes_agents(stored):
        raise ValueError(f"{str(path)!r} is not the checkpoint of a run: no `agents`.")
    check_agents(run.folder, stored, run.members)
    state, about = load_checkpoint(path, run.members.skeleton(whole))
    return dataclasses.replace(run, state=state, about=about)


def run_env(run: Run) -> Any:
    """Return the training source: an environment with auto-reset, or a dataset."""
    plan, env = run.plan, run.env
    if env is None:
        return run.data
    if run.data is not None:
        env = Recorded(env, run.data)
    key = pool_key(plan.seed)
    return training_env(env, plan.episode_length, plan.pool_size, key)


def open_run(
    folder: str | os.PathLike,
    agent: AbstractAgent | Sequence[AbstractAgent] | None = None,
    env: AbstractEnv | None = None,
    data: Dataset | None = None,
    *,
    learns: bool = True,
) -> Run:
    """Load a run without a checkpoint; its dataset is loaded only if it `learns`.

    **Raises:** `ValueError` if the run cannot be rebuilt.
    """
    folder = pathlib.Path(folder)
    config = read_config(folder)
    plan = Plan(**config["plan"])
    stored = config["recipe"]
    recipe = None if stored is None else recipe_from_json(stored)
    recorded = config.get("data")
    if learns and recipe is not None and data is None:
        data = recipe.recording()
    alone = recorded is not None and data is not None and recipe is None
    if recipe is None and (agent is None or (env is None and not alone)):
        raise ValueError(
            f"The run in {str(folder)!r} has no recipe. Pass the `agent` "
            f"({config['agents'][0]['class']}) and the `env` ({config['env']}) with which "
            "it was started."
        )
    agents = recipe.agents() if agent is None and recipe is not None else agent
    env = recipe.environment() if env is None and recipe is not None else env
    if agents is None:
        raise ValueError(
            f"The run in {str(folder)!r} has no recipe. Pass the `agent` with which it was "
            "started."
        )
    if learns:
        check_same(folder, recorded, data)
    agents = [agents] if isinstance(agents, AbstractAgent) else [*agents]
    if recorded is not None:
        agents = [as_learner(agent) for agent in agents]
    members = members_of(agents, plan.seed, plan.num_seeds)
    check_agents(folder, config["agents"], members)
    kept = data if learns or env is None else None
    return Run(folder, members, env, plan, recipe, kept)


@contextmanager
def locked(folder: pathlib.Path | None) -> Iterator[None]:
    """Lock an existing run folder against writes of other processes. The operating system
    releases the lock when the process ends.

    **Raises:** `FileExistsError` if another process holds the lock.
    """
    if folder is None or fcntl is None:
        yield
        return
    with open(folder / ".lock", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(
                f"Another process is writing to the run in {str(folder)!r}. Wait until it "
                "ends, or choose another folder."
            ) from error
        except OSError:
            pass  # Some file systems have no locks.
        yield


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """Read `config.json`.

    **Raises:** `FileNotFoundError` if there is no such file; `ValueError` if it is invalid.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} is not the folder of a run: it has no {CONFIG!r}."
        )
    try:
        config = json.loads(path.read_text())
        if config["format"] != FORMAT:
            raise ValueError(f"unknown format {config['format']!r}")
        Plan(**config["plan"])
        _ = config["env"]
        if config["recipe"] is not None:
            recipe_from_json(config["recipe"])
        if not describes_agents(config["agents"]):
            raise ValueError("`agents` has no classes and fields")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged or was written by another version ({error})."
        ) from error
    return config


def describes_agents(stored: Any) -> bool:
    """Return true if JSON has the form of `agents_of`."""
    is_agent = lambda x: isinstance(x, dict) and isinstance(x.get("fields"), dict)
    agents = isinstance(stored, list) and len(stored) > 0
    return agents and all(is_agent(x) and "class" in x for x in stored)


def check_same(folder: pathlib.Path, digest: str | None, data: Dataset | None) -> None:
    """Raise `ValueError` if a dataset is not that of the run."""
    if digest is None:
        if data is None:
            return
        raise ValueError(
            f"The run in {str(folder)!r} has no dataset. Leave out `data`."
        )
    if data is None:
        raise ValueError(
            f"The run in {str(folder)!r} is trained on a dataset. Pass the same `data`."
        )
    if data.digest() != digest:
        raise ValueError(
            f"The dataset of {len(data):,} steps differs from that of the run in "
            f"{str(folder)!r}. Pass the same dataset."
        )


def begin_folder(run: Run, overwrite: bool) -> None:
    """Prepare the folder of a new run.

    **Raises:** `FileExistsError` if it holds a run and `overwrite` is false.
    """
    there = [name for name in _OURS if (run.folder / name).exists()]
    if there and not overwrite:
        raise FileExistsError(
            f"{str(run.folder)!r} already holds a run ({', '.join(there)}). Resume it "
            f"(`eqsim resume {run.folder}`), choose another folder, or overwrite it "
            "(`--overwrite`, or `overwrite=True`)."
        )
    for name in there:
        (run.folder / name).unlink()
    for video in (run.folder / VIDEOS).glob("steps_*.gif"):
        video.unlink()
    write_config(run)


def write_config(run: Run) -> None:
    """Write `config.json`. An existing file is replaced only when the new one is
    complete."""
    config = {
        "format": FORMAT,
        "recipe": None if run.recipe is None else dataclasses.asdict(run.recipe),
        "plan": dataclasses.asdict(run.plan),
        "agents": agents_of(run.members),
        "env": env_name(run.env),
        "data": None if run.data is None else run.data.digest(),
        "given": run.state is not None and not run.about,
        "members": run.members.labels(),
        "versions": versions(),
        "devices": [str(device.device_kind) for device in jax.devices()],
    }
    part = run.folder / (CONFIG + ".part")
    part.write_text(json.dumps(config, indent=2, default=encode) + "\n")
    os.replace(part, run.folder / CONFIG)


def env_name(env: AbstractEnv | None) -> str:
    """Return the names of an environment and its wrappers."""
    if env is None:
        return "no environment"
    return " in ".join([type(layer).__name__ for layer in layers(env)][::-1])


def agents_of(members: Members) -> list[dict[str, Any]]:
    """Return class and fields of the agent of each member."""
    agents = [members.agent(member) for member in range(members.count)]
    return [{"class": type(a).__name__, "fields": describe(a)} for a in agents]


def check_agents(
    folder: pathlib.Path, stored: list[dict[str, Any]], members: Members
) -> None:
    """Raise `ValueError` unless agents have the class and the fields stored in the run."""
    ours, lines = agents_of(members), []
    if len(stored) != len(ours):
        lines.append(f"  members: {len(stored)} in the run, {len(ours)} here")
    for number, (one, two) in enumerate(zip(stored, ours)):
        where = f"  member {number}, " if len(ours) > 1 else "  "
        if one["class"] != two["class"]:
            lines.append(
                f"{where}agent: {one['class']} in the run, {two['class']} here"
            )
            continue
        agent = members.agent(number)
        for name in {**one["fields"], **two["fields"]}:
            missing = "no such field"
            if name not in one["fields"] and has_default(agent, name):
                continue  # A field added since the run was written.
            pair = [x["fields"].get(name, missing) for x in (one, two)]
            if pair[0] != pair[1]:
                lines.append(f"{where}{name}: {pair[0]} in the run, {pair[1]} here")
    if lines:
        raise ValueError(
            f"The agent differs from that of the run in {str(folder)!r}:\n"
            + "\n".join(lines[:10])
            + "\nPass the same agent."
        )
