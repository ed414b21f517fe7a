"""Environments of runs that are named on the command line."""

import dataclasses
import pathlib
from typing import Any

import eqsim
from eqsim import AbstractAgent

from ..runs._config import read_config
from ..runs._recipe import Recipe, recipe_from_json
from ..runs._settings import build


def named_run(folder: str, env: str | None) -> dict[str, Any]:
    """Return the arguments `agent` and `env` of `load_run` and `resume` that a run does not
    store, for an environment that is named on the command line.

    **Arguments:**

    - `env`: name in `eqsim.ENVS`, or `module:object`; None for the stored environment.

    **Raises:** `ValueError` if the run needs a name, or the agent cannot be rebuilt;
    `FileNotFoundError` if there is no run.
    """
    config = read_config(pathlib.Path(folder))
    recipe = config["recipe"] and recipe_from_json(config["recipe"])
    if env is None and recipe is None:
        raise ValueError(
            f"The run in {folder!r} was started in Python, and its environment "
            f"({config['env']}) is not stored. Name it with `--env`, for instance `--env "
            "ant`, or `--env module:Class` with the class, or a function that returns the "
            "environment."
        )
    if env is None:
        return {}
    if recipe is not None:
        return {"env": dataclasses.replace(recipe, env=env).environment()}
    return {"agent": _agents(folder, config), "env": Recipe("", env).environment()}


def _agents(folder: str, config: dict[str, Any]) -> list[AbstractAgent]:
    """Rebuild the agents that `config.json` describes, each with one or several seeds."""
    found = []
    for agent in config["agents"][:: config["plan"]["num_seeds"]]:
        try:
            found.append(build(_maker(agent["class"]), agent["fields"]))
        except ValueError as error:
            raise ValueError(
                f"The agent of the run in {folder!r} cannot be rebuilt: {error} In Python, "
                f"pass it: `eqsim_zoo.load_run({folder!r}, agent=..., env=...)`."
            ) from error
    return found


def _maker(name: str) -> Any:
    """Return the agent in `eqsim.AGENTS` whose class has a name."""
    targets = {k: p.target for k, p in eqsim.AGENTS.plugins().items()}
    targets |= {k: f":{_name(x)}" for k, x in eqsim.AGENTS.registered().items()}
    for key, target in targets.items():
        if target.rpartition(":")[2] == name:
            return eqsim.AGENTS.get(key)
    raise ValueError(f"no agent of the class {name!r} is registered.")


def _name(maker: Any) -> str:
    return maker.__name__ if isinstance(maker, type) else ""
