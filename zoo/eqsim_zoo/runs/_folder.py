"""Run folders: creating and loading them."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from eqsim import AbstractAgent, AbstractEnv

from ..blocks.collecting import pool_key, training_env
from ..data.dataset import Dataset
from ._checkpoint import load_checkpoint, read_about
from ._config import (
    check_agents,
    check_same,
    describes_agents,
    read_config,
    write_config,
)
from ._environment import warn_if_different
from ._members import agents_given, members_of
from ._plan import Plan
from ._recipe import check_not_imported, recipe_from_json
from ._recorded import as_learner, Recorded
from ._run import BEST, CONFIG, LAST, Run, VIDEOS


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
