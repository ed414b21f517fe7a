"""Lock of a run folder."""

import dataclasses
import errno
import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import filelock
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from eqsim import AbstractAgent, AbstractEnv
from eqsim.wrappers import AbstractWrapper, layers

from ..blocks import training_env
from ..blocks._environments import pool_key
from ..data import Dataset
from .checkpoints import load_checkpoint, read_about, versions
from .fields import describe, encode, has_default
from .members import agents_given, Members, members_of
from .offline import as_learner, Recorded
from .run import (
    BEST,
    check_not_imported,
    CONFIG,
    LAST,
    Plan,
    recipe_from_json,
    Run,
    VIDEOS,
)


# Errors of file systems without locks, such as some network file systems.
_WITHOUT_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP


@contextmanager
def locked(folder: pathlib.Path | None) -> Iterator[None]:
    """Lock an existing run folder against writes of other processes. The operating system
    releases the lock when the process ends. A file system without locks causes a warning,
    and the run continues.

    **Raises:** `FileExistsError` if another process holds the lock; `OSError` if the lock
    file cannot be opened.
    """
    if folder is None:
        yield
        return
    path = folder / ".lock"
    lock = filelock.FileLock(path, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise FileExistsError(
            f"Another process is writing to the run in {str(folder)!r}. Wait until it "
            "ends, or choose another folder."
        ) from error
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _WITHOUT_LOCKS:
            raise
        warnings.warn(
            f"The file system of {str(folder)!r} has no locks: make sure that no other "
            "process writes to this run.",
            stacklevel=4,
        )
    try:
        yield
    finally:
        lock.release()


# Longest JSON text that is stored itself; of longer ones, a digest is.
_LONGEST = 60
# Most entries of an array that is stored itself.
_ENTRIES = 4
# Most differences that a warning names.
_SHOWN = 8
# Known zeros and ones of a robot: a hint to the compiler, without effect on results.
_WITHOUT_EFFECT = ("sys.pattern",)


class EnvironmentWarning(UserWarning):
    """An environment differs from that of a run."""


def env_name(env: AbstractEnv | None) -> str:
    """Return the names of an environment and its wrappers."""
    if env is None:
        return "no environment"
    return " in ".join([type(layer).__name__ for layer in layers(env)][::-1])


def env_values(env: AbstractEnv | None) -> dict[str, Any]:
    """Return the settings of an environment and the parameters of its robot by name, such
    as `sys.links.mass` or `ActionRepeat.repeat`, in types that JSON supports. Arrays and
    other long values are stored as digests.

    Floating-point numbers are described in single precision, so that a run can be loaded
    with and without `jax_enable_x64`.
    """
    found: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for layer in [] if env is None else layers(env):
        name = type(layer).__name__
        seen[name] = seen.get(name, 0) + 1
        # The second of two wrappers of one class is `Name#2`.
        name = name if seen[name] == 1 else f"{name}#{seen[name]}"
        for field in dataclasses.fields(layer):
            if field.name == "env" and isinstance(layer, AbstractWrapper):
                continue
            robot = field.name in ("sys", "pipeline")
            path = field.name if robot else f"{name}.{field.name}"
            found |= _parts(path, vars(layer)[field.name])
    return {name: _brief(value) for name, value in found.items()}


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the values in a field with their names."""
    if path in _WITHOUT_EFFECT:
        return
    if isinstance(value, eqx.Module):
        yield f"{path}.class", type(value).__name__
        for field in dataclasses.fields(value):
            yield from _parts(f"{path}.{field.name}", vars(value)[field.name])
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(f"{path}[{key!r}]", item)
    elif isinstance(value, tuple | list) and any(map(_is_structured, value)):
        for k, item in enumerate(value):
            yield from _parts(f"{path}[{k}]", item)
    else:
        yield path, value


def _is_structured(value: Any) -> bool:
    array = isinstance(value, jax.Array | np.ndarray)
    return array or isinstance(value, eqx.Module | dict)


def _brief(value: Any) -> Any:
    """Return a value in types that JSON supports, or its digest if it is long."""
    if not isinstance(value, jax.Array | np.ndarray):
        encoded = encode(value)
        text = json.dumps(encoded, default=repr)
        return encoded if len(text) <= _LONGEST else _digest(text.encode())
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return {"shape": list(value.shape)}  # Other processes hold parts of it.
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jr.key_data(value) if is_key else value)
    if array.dtype.kind == "f":
        # The sum makes zeros positive.
        array = array.astype(np.float32) + np.float32(0.0)
    elif array.dtype.kind in "iu":
        array = array.astype(np.int64)
    if array.size <= _ENTRIES:
        return encode(array)
    return _digest(repr(array.shape).encode() + array.tobytes())


def _digest(data: bytes) -> dict[str, str]:
    return {"digest": hashlib.sha256(data).hexdigest()[:16]}


def warn_if_different(
    folder: pathlib.Path, config: dict[str, Any], env: AbstractEnv | None
) -> None:
    """Warn if an environment differs from that of a run, with the names of what differs.

    **Arguments:**

    - `folder`: folder of the run.
    - `config`: content of its `config.json`. Values that it does not have, such as those of
        fields added since, are not compared.
    """
    if env is None or config["env"] == env_name(None):
        return
    lines = []
    if config["env"] != env_name(env):
        lines.append(f"  environment: {config['env']} in the run, {env_name(env)} here")
    stored, ours = config.get("environment"), env_values(env)
    for name, theirs in (stored if isinstance(stored, dict) else {}).items():
        if name in ours and ours[name] != theirs:
            lines.append(f"  {name}: {_pair(theirs, ours[name])}")
    if not lines:
        return
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  and {len(lines) - _SHOWN} more"]
    warnings.warn(
        f"The environment differs from that of the run in {str(folder)!r}:\n"
        + "\n".join(lines)
        + "\nThe agent was trained in the environment of the run, and may fail in this one. "
        "Pass the same environment, unless the difference is intended.",
        EnvironmentWarning,
        stacklevel=4,
    )


def _pair(theirs: Any, ours: Any) -> str:
    if isinstance(theirs, dict) or isinstance(ours, dict):
        return "other values in the run than here"
    return f"{theirs} in the run, {ours} here"


FORMAT = "eqsim-run-1"


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


def write_config(run: Run) -> None:
    """Write `config.json`. An existing file is replaced only when the new one is
    complete."""
    config = {
        "format": FORMAT,
        "recipe": None if run.recipe is None else dataclasses.asdict(run.recipe),
        "plan": dataclasses.asdict(run.plan),
        "agents": agents_of(run.members),
        "env": env_name(run.env),
        "environment": env_values(run.env),
        "data": None if run.data is None else run.data.digest(),
        "given": run.state is not None and not run.about,
        "members": run.members.labels(),
        "versions": versions(),
        "devices": [str(device.device_kind) for device in jax.devices()],
    }
    part = run.folder / (CONFIG + ".part")
    part.write_text(json.dumps(config, indent=2, default=encode) + "\n")
    os.replace(part, run.folder / CONFIG)


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


_OURS = (CONFIG, LAST, BEST, "metrics.jsonl", "metrics.csv", "curves.png")


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

    An environment with other settings, or whose robot has other parameters, causes the
    warning `EnvironmentWarning`, which names the differences.
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
    """Return the training source: an environment with auto-reset, whose pool of resets
    depends on the seed of a member (`MemberEnvs` for several seeds), or a dataset."""
    plan, env = run.plan, run.env
    if env is None:
        return run.data
    if run.data is not None:
        env = Recorded(env, run.data)
    sizes = plan.episode_length, plan.pool_size
    return run.members.envs(lambda seed: training_env(env, *sizes, pool_key(seed)))


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
    if env is None and recipe is not None:
        check_not_imported(folder, recipe)
        env = recipe.environment()
    if agents is None:
        raise ValueError(
            f"The run in {str(folder)!r} has no recipe. Pass the `agent` with which it was "
            "started."
        )
    if learns:
        check_same(folder, recorded, data)
    agents = agents_given(agents)
    if recorded is not None:
        agents = [as_learner(agent) for agent in agents]
    members = members_of(agents, plan.seed, plan.num_seeds)
    check_agents(folder, config["agents"], members)
    warn_if_different(folder, config, env)
    kept = data if learns or env is None else None
    return Run(folder, members, env, plan, recipe, kept)


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
