"""The folder of a run: lock, `config.json`, and runs read from it.

`config.json` holds the fields of a `Run`, with names where it has objects, all fields of
each agent, and the settings of the environment with digests of its robot's parameters:
what is needed to make the run again, or to say how objects differ from those of the run.
"""

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

import eqsim
from eqsim import AbstractAgent, AbstractEnv
from eqsim.envs import check_not_imported
from eqsim.plugins import PluginError
from eqsim.wrappers import AbstractWrapper, nested_envs

from ..data.dataset import Dataset
from ..data.files import load_data
from .checkpoints import versions
from .fields import build, describe, encode, has_default
from .members import agents_given, Members
from .metrics import METRICS
from .offline import as_learner, kind_of, Offline
from .run import maker_of, Run


CONFIG, LAST, BEST = "config.json", "last.ckpt", "best.ckpt"
VIDEOS = "videos"
FORMAT = "eqsim-run-2"
_FILES = (CONFIG, LAST, BEST, METRICS, "metrics.csv", "curves.png", "index.html")
_EXTRA_FILES = (
    *("skills*.png", "episode.gif", f"{VIDEOS}/steps_*.gif"),
    "tensorboard/**/events.out.tfevents.*",
)
"""Files that commands add to the folder of a run."""
_OBJECTS = ("agent", "env", "data")
"""Fields of a run that may hold objects; `config.json` has their names, or null."""
_ELSEWHERE = ("eval_env", "settings", "sweep")
"""Fields of a run that `config.json` does not have, or has as fields of the agents."""

# Longest JSON text that is stored itself; of longer ones, a digest is.
_LONGEST = 60
# Most entries of an array that is stored itself.
_ENTRIES = 4
# Most differences that a message names.
_SHOWN = 10
# Known zeros and ones of a robot: a hint to the compiler, without effect on results.
_WITHOUT_EFFECT = ("sys.pattern",)
# Errors of file systems without locks, such as some network file systems.
_WITHOUT_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP


class EnvironmentWarning(UserWarning):
    """An environment differs from that of a run."""


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
            raise ValueError(f"format {config['format']!r}, expected {FORMAT!r}")
        if not describes_agents(config["agents"]):
            raise ValueError("`agents` has no classes and fields")
        for name in _OBJECTS:
            if not isinstance(config["run"][name], str | None):
                raise ValueError(f"`{name}` is {config['run'][name]!r}, not a name")
        Run(**{**config["run"], "agent": "", "data": None})
        if not isinstance(config["environment"], dict):
            raise ValueError("`environment` has no values by name")
        _ = config["env"], config["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged or was written by another version ({error})."
        ) from error
    return config


def write_config(folder: pathlib.Path, run: Run, given: bool) -> None:
    """Write `config.json`. An existing file is replaced only when the new one is complete.

    **Arguments:**

    - `given`: true if the run begins with a given state, which cannot be computed again.
    """
    fields = {f.name: vars(run)[f.name] for f in dataclasses.fields(run) if f.init}
    stored = {k: x for k, x in fields.items() if k not in _ELSEWHERE}
    named = {k: x if isinstance(x, str) else None for k, x in stored.items()}
    stored |= {name: named[name] for name in _OBJECTS}
    stored["agent"] = named["agent"] or registered_name(run.members.agent(0))
    env = None if run.env is None else run.environment()
    data = run.dataset()
    config = {
        "format": FORMAT,
        "run": stored,
        "agents": agents_of(run.members),
        "env": env_name(env),
        "environment": env_values(env),
        "eval_env": None if run.eval_env is None else env_name(run.eval_env),
        "data": None if data is None else data.digest(),
        "given": given,
        "members": run.members.labels(),
        "versions": versions(),
        "devices": [str(device.device_kind) for device in jax.devices()],
    }
    _replace(folder, config)


def extend_config(folder: pathlib.Path, run: Run) -> None:
    """Write the number of steps of a longer run to `config.json`, and the environment in
    which it continues."""
    config = read_config(folder)
    config["run"]["steps"] = run.steps
    env = None if run.env is None else run.environment()
    _replace(folder, config | {"env": env_name(env), "environment": env_values(env)})


def _replace(folder: pathlib.Path, config: dict[str, Any]) -> None:
    part = folder / (CONFIG + ".part")
    part.write_text(json.dumps(config, indent=2, default=encode) + "\n")
    os.replace(part, folder / CONFIG)


def begin_folder(
    folder: pathlib.Path, run: Run, overwrite: bool, given: bool = False
) -> None:
    """Prepare the folder of a new run.

    **Raises:** `FileExistsError` if it holds a run and `overwrite` is false.
    """
    there = [name for name in _FILES if (folder / name).exists()]
    if there and not overwrite:
        raise FileExistsError(
            f"{str(folder)!r} already holds a run ({', '.join(there)}). Resume it "
            f"(`eqsim resume {folder}`), choose another folder, or overwrite it "
            "(`--overwrite`, or `overwrite=True`)."
        )
    for name in there:
        (folder / name).unlink()
    for pattern in _EXTRA_FILES:
        for path in folder.glob(pattern):
            path.unlink()
    write_config(folder, run, given)


def read_run(
    folder: pathlib.Path,
    agent: AbstractAgent | Sequence[AbstractAgent] | None = None,
    env: str | AbstractEnv | None = None,
    data: Dataset | None = None,
    eval_env: AbstractEnv | None = None,
    *,
    learns: bool = True,
) -> Run:
    """Make the run of a folder again. What `config.json` does not name must be passed; what
    is passed replaces what it names. The dataset is loaded only if the run `learns`, or has
    no environment.

    **Raises:** `ValueError` if something is missing, or is not that of the run.
    """
    config = read_config(folder)
    stored, offline = config["run"], config["data"] is not None
    agents = _agents(folder, config) if agent is None else agents_given(agent)
    if env is None and stored["env"] is not None:
        check_not_imported(stored["env"], f"The run in {str(folder)!r}")
        env = stored["env"]
    path = stored["data"] if learns or env is None else None
    if data is None and path is not None:
        data = load_data(path)
    if env is None and not (offline and data is not None):
        what = "a dataset (`data`)" if offline else "its environment"
        raise ValueError(
            f"The run in {str(folder)!r} was started in Python with {what} as an object "
            f"({config['env']}), which is not stored. Pass it: in Python as `env`"
            f"{' or `data`' if offline else ''}, on the command line as `--env NAME`, or "
            "`--env module:Class` with the class, or a function that returns the environment."
        )
    if learns:
        _check_data(folder, config["data"], data)
        if config.get("eval_env") and eval_env is None:
            raise ValueError(
                f"The run in {str(folder)!r} is evaluated in another environment "
                f"({config['eval_env']}), which is not stored. `eqsim resume` cannot "
                "continue it. Call `eqsim_zoo.resume(folder, eval_env=...)`."
            )
    elif env is not None:
        data = None
    names = {k: x for k, x in stored.items() if k not in _OBJECTS}
    if not isinstance(env, str):
        names |= {"pipeline": None, "options": {}, "randomize": None, "skills": None}
    learners = [as_learner(one) for one in agents] if offline else agents
    run = Run(learners, env, **names, data=data, eval_env=eval_env)
    check_agents(folder, config["agents"], run.members)
    warn_if_different(folder, config, None if env is None else run.environment())
    return run


def _agents(folder: pathlib.Path, config: dict[str, Any]) -> list[AbstractAgent]:
    """Rebuild the agents that `config.json` describes, each with one or several seeds."""
    name, agents = config["run"]["agent"], config["agents"]
    kind, found = agents[0]["class"], []
    try:
        if name is None:
            raise ValueError(f"no agent of the class {kind!r} is registered.")
        make = maker_of(name, kind == Offline.__name__)
        for agent in agents[:: config["run"]["num_seeds"]]:
            found.append(build(make, agent["fields"]))
    except (ValueError, PluginError) as error:
        raise ValueError(
            f"The agent of the run in {str(folder)!r} cannot be made again: {error} Pass the "
            f"`agent` ({kind}) with which it was started."
        ) from error
    return found


def registered_name(agent: AbstractAgent) -> str | None:
    """Return the name in `eqsim.AGENTS` of the class of an agent; None if it has none."""
    kind = kind_of(agent)
    for name, value in eqsim.AGENTS.registered().items():
        if value is kind:
            return name
    for name, plugin in eqsim.AGENTS.plugins().items():
        if plugin.target.rpartition(":")[2] == kind.__name__:
            try:
                if eqsim.AGENTS.get(name) is kind:
                    return name
            except PluginError:
                continue
    return None


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


def _check_data(folder: pathlib.Path, digest: str | None, data: Dataset | None) -> None:
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


def env_name(env: AbstractEnv | None) -> str:
    """Return the names of an environment and its wrappers."""
    if env is None:
        return "no environment"
    return " in ".join([type(layer).__name__ for layer in nested_envs(env)][::-1])


def env_values(env: AbstractEnv | None) -> dict[str, Any]:
    """Return the settings of an environment and the parameters of its robot by name, such
    as `sys.links.mass` or `ActionRepeat.repeat`, in types that JSON supports. Arrays and
    other long values are stored as digests.

    Floating-point numbers are described in single precision, so that a run can be loaded
    with and without `jax_enable_x64`.
    """
    found: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for layer in [] if env is None else nested_envs(env):
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
    - `config`: content of its `config.json`. Values that it does not have are
        not compared.
    """
    if env is None or config["env"] == env_name(None):
        return
    lines = []
    if config["env"] != env_name(env):
        lines.append(f"  environment: {config['env']} in the run, {env_name(env)} here")
    stored, ours = config["environment"], env_values(env)
    for name, theirs in stored.items():
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
