"""`eqsim train` and `eqsim resume`"""

import contextlib
import dataclasses
import pathlib
import signal
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console

import eqsim
from eqsim import CommandError

from ..agents._skill_agent import AbstractSkillAgent
from ..runs import Plan, RunFolder
from ..runs._presets import find_preset
from ..runs._recipe import Recipe
from ..runs._recorded import as_learner
from ..runs._settings import describe, full_name, parse, unknown
from ..training import AbstractCallback, TensorBoard, WeightsAndBiases
from ..training._evaluate import Evaluation
from ..training._train import Result, resume, train
from ._errors import sentences
from ._tables import console, evaluation_table


Logger = Literal["tensorboard", "wandb"]
_Several = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `eqsim train`."""

    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """Name of the agent, for instance `ppo`."""
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Name of the environment, for instance `ant`."""
    preset: str | None = None
    """Name of a preset other than the usual one, for instance `qdax`."""
    steps: float | None = None
    """Control steps, in all environments together; 2e7 is a number, too."""
    seed: int = 0
    """Of all that is random."""
    out: str | None = None
    """Folder of the run; by default runs/AGENT-ENV."""
    num_envs: int | None = None
    """Environments side by side: the field of the agent of that name."""
    settings: Annotated[_Several, tyro.conf.arg(name="set", metavar="FIELD=VALUE")] = ()
    """A field of the agent, as often as you like; see `eqsim plugins show AGENT`."""
    sweep: Annotated[_Several, tyro.conf.arg(metavar="FIELD=A,B,C")] = ()
    """Numbers to try side by side in one program; all combinations, if given again."""
    num_seeds: int = 1
    """Seeds, from `--seed` on, that learn side by side in one program."""
    pipeline: str | None = None
    """Name of the physics; by default what the environment chooses."""
    episode_length: int | None = None
    """Control steps of an episode, at most; by default 1000."""
    randomize: str | None = None
    """Preset by which the robot of each episode is drawn."""
    skills: str | None = None
    """What skills an agent of skills learns: one_hot:5, uniform:2 or normal:2; by default
    one_hot:5. Drawn again within an episode:
    one_hot:5,resample_probability=0.02,least_steps=10."""
    data: str | None = None
    """Recording from which an agent such as `iql` learns; see `eqsim record`. A step is
    then an update."""
    pool_size: int = 1024
    """Resets made in advance, of which episodes begin with one; 0: true resets."""
    evaluations: int = 10
    """How often the agent is evaluated."""
    episodes: int = 32
    """Of each evaluation."""
    turns: int = 100
    """About how many rows of metrics are written."""
    logger: Logger | None = None
    """Who is told the metrics beside the files; needs the extra of that name."""
    overwrite: bool = False
    """Throw away the run that is in the folder."""


def train_agent(request: Annotated[Request, tyro.conf.arg(name="")]) -> None:
    """Trains an agent in an environment; writes metrics, checkpoints and curves."""
    screen = console()
    with sentences():
        recipe, steps, length, text = _recipe(request)
        folder = request.out or f"runs/{request.agent}-{request.env}".replace(":", "-")
        agents, env, data = recipe.agents(), recipe.environment(), recipe.recording()
        points = f", {len(agents)} settings" if len(agents) > 1 else ""
        seeds = f", {request.num_seeds} seeds" if request.num_seeds > 1 else ""
        screen.print(
            f"{request.agent} on {request.env}, {text}: {steps:,g} steps{points}{seeds}, "
            f"into {folder}"
        )
        plan = Plan(
            steps,
            request.seed,
            request.num_seeds,
            length,
            request.pool_size,
            request.turns,
            request.evaluations,
            request.episodes,
        )
        with _abrupt():
            result = train(
                agents,
                env if data is None else data,
                plan,
                eval_env=env,
                out=RunFolder(folder, request.overwrite, recipe),
                callbacks=_loggers(request.logger, folder),
                progress=True,
            )
    _end(screen, result)


def resume_run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    steps: float = 0.0,
    logger: Logger | None = None,
) -> None:
    """Goes on with a run that was stopped, or makes one longer.

    Args:
        folder: of the run.
        steps: how many to add to those that were planned.
        logger: who is told the metrics beside the files.
    """
    screen = console()
    with sentences(), _abrupt():
        told = _loggers(logger, folder)
        result = resume(folder, more_steps=steps, callbacks=told, progress=True)
    _end(screen, result)


def _recipe(request: Request) -> tuple[Recipe, int | float, int, str]:
    """How it is made, its steps, the length of episodes, and where that comes from."""
    for what, name, registry in (
        ("agent", request.agent, eqsim.AGENTS),
        ("environment", request.env, eqsim.ENVS),
    ):
        if name not in {*registry.names(), *registry.plugins(), *registry.hidden()}:
            raise ValueError(unknown(f"There is no {what}", name, registry.names()))
    preset = find_preset(request.agent, request.env, request.preset)
    agent = eqsim.AGENTS.get(request.agent)() if preset is None else preset.agent
    if request.data is not None:
        agent = as_learner(agent)
    given = [_pair("--set", text) for text in request.settings]
    if request.num_envs is not None:
        given.append(("num_envs", str(request.num_envs)))
    given = [(full_name(agent, name), text) for name, text in given]
    fields = describe(agent)
    settings = fields | {k: parse(agent, k, text) for k, text in given}
    sweep = {}
    for name, text in (_pair("--sweep", text) for text in request.sweep):
        name = full_name(agent, name)
        if np.ndim(fields.get(name, 0)) > 0:
            raise ValueError(f"`--sweep {name}`: only single numbers can be swept.")
        sweep[name] = [parse(agent, name, value) for value in text.split(",")]
    pipeline = request.pipeline or (preset.pipeline if preset else None)
    skills = request.skills or (preset.skills if preset else None)
    if skills is None and isinstance(agent, AbstractSkillAgent):
        skills = "one_hot:5"
    recipe = Recipe(
        request.agent,
        request.env,
        settings,
        sweep,
        pipeline=pipeline,
        randomize=request.randomize,
        skills=skills,
        data=None
        if request.data is None
        else str(pathlib.Path(request.data).resolve()),
        options={} if preset is None else {**preset.options},
    )
    steps = request.steps or (preset.steps if preset else None)
    if steps is None:
        raise CommandError(
            f"There is no preset for {request.agent!r} on {request.env!r}: say how long it "
            "is to learn, for instance `--steps 1e6`."
        )
    length = request.episode_length or (preset.episode_length if preset else 1000)
    text = (
        "with its defaults, as there is no preset"
        if preset is None
        else "by its preset"
    )
    return recipe, steps, length, text


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(
            f"`{option} {text}`: `{option} FIELD=VALUE` is expected, as in "
            f"`{option} learning_rate=1e-3`."
        )
    return name.strip().replace("-", "_"), value


def _loggers(name: Logger | None, folder: str) -> list[AbstractCallback]:
    if name == "tensorboard":
        return [TensorBoard(pathlib.Path(folder) / "tensorboard")]
    if name == "wandb":
        return [WeightsAndBiases("eqsim", pathlib.Path(folder).name)]
    return []


@contextlib.contextmanager
def _abrupt() -> Iterator[None]:
    """The second Ctrl-C ends the process, whatever it is at: files stay whole."""
    before: Any = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(screen: Console, result: Result) -> None:
    if result.interrupted:
        screen.print(
            f"Stopped after turn {result.counters.turn}, {result.counters.steps:,} steps. "
            f"Go on with `eqsim resume {result.folder}`."
        )
        raise SystemExit(128 + result.interrupted)
    if result.evaluations:
        found: Evaluation = result.evaluations[-1][1]
        screen.print(evaluation_table(result.members, found))
    screen.print(
        f"{result.counters.steps:,} steps in {result.counters.seconds:.0f} s; wrote "
        f"{result.folder}: metrics, checkpoints and curves.png"
    )
