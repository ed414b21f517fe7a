"""Runs for `eqsim view`."""

import pathlib
from collections.abc import Callable
from typing import Any

from eqsim import AbstractController, AbstractEnv, agent_policy

from ..blocks.collecting import evaluation_env
from ..runs._folder import load_run
from ..runs._run import BEST
from ._named_env import named_run


def view_run(
    folder: str, *, env: str | None = None
) -> tuple[AbstractEnv, Callable[[Any, Any], Any] | AbstractController]:
    """Read the environment of a run, and the policy of its first agent.

    **Arguments:**

    - `env`: name of the environment, or `module:object`; by default the stored name.

    The policy is that of the best checkpoint if there is one, and of the last otherwise.

    **Raises:** `FileNotFoundError` if it is not the folder of a run; `ValueError` if a
    file is damaged or the run cannot be made again.
    """
    given = named_run(folder, env)
    run = load_run(folder, best=(pathlib.Path(folder) / BEST).exists(), **given)
    whole = evaluation_env(run.environment(), run.plan.episode_length)
    return whole, agent_policy(run.members.agent(0), run.members.pick(run.state, 0))
