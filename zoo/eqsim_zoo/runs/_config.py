"""`config.json` in the folder of a run: writing it, and comparing it with objects."""

import dataclasses
import json
import os
import pathlib
from typing import Any

import jax

from ..data.dataset import Dataset
from ._checkpoint import versions
from ._environment import env_name, env_values
from ._members import Members
from ._plan import Plan
from ._recipe import recipe_from_json
from ._run import CONFIG, Run
from ._settings import describe, has_default
from ._values import encode


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
