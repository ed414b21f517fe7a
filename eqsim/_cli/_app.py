"""What the command understands."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from .._registry import PluginError
from ..render import NoOpenGL
from ._list import list_all
from ._names import UsageError
from ._rollout import Request, run_rollout
from ._show import show


_Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]


def _list() -> None:
    """Environments, pipelines and presets of randomization that are installed."""
    list_all()


def _show(env: _Name, pipeline: str | None = None) -> None:
    """What an environment is: its robot, actions, observations and rewards.

    Args:
        env: name of the environment, for instance `ant`.
        pipeline: name of the physics; by default what the environment chooses.
    """
    show(env, pipeline)


def _rollout(
    env: _Name,
    pipeline: str | None = None,
    num_envs: int = 16,
    length: int = 200,
    seed: int = 0,
    randomize: str | None = None,
    out: str = "out/rollout",
    picture: bool = False,
) -> None:
    """Runs random actions, and writes numbers (.npz) and plots (.png).

    Args:
        env: name of the environment, for instance `ant`.
        pipeline: name of the physics; by default what the environment chooses.
        num_envs: how many environments run side by side.
        length: control steps of each, and time limit of an episode.
        seed: of all that is random.
        randomize: preset by which the robot of each episode is drawn.
        out: files to write, without suffix.
        picture: also write an animation of the first environment (.gif).
    """
    run_rollout(Request(env, pipeline, num_envs, length, seed, randomize, out, picture))


_COMMANDS = {"list": _list, "show": _show, "rollout": _rollout}


def run(argv: Sequence[str]) -> int:
    """Runs a command, and says what went wrong without a traceback."""
    arguments: Any = list(argv) or ["--help"]
    try:
        tyro.extras.subcommand_cli_from_dict(
            _COMMANDS,
            prog="eqsim",
            description="A differentiable robot simulator.",
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except UsageError as error:
        return _failed(error, 2)
    except (PluginError, NoOpenGL, FloatingPointError, OSError) as error:
        return _failed(error, 1)
    except SystemExit as end:  # How the parser ends, after help as well.
        return end.code if isinstance(end.code, int) else 0
    return 0


def _failed(error: Exception, status: int) -> int:
    print(f"eqsim: {error}", file=sys.stderr)
    return status
