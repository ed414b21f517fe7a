"""`eqsim train` and `eqsim resume`"""

import contextlib
import pathlib
import signal
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

import eqsim
from eqsim import AbstractAgent, AbstractOnlineAgent, CommandError
from eqsim.envs import is_import_path

from ..agents.skill_agent import AbstractSkillAgent
from ..runs import Plan, RunFolder
from ..runs._config import read_config
from ..runs._presets import find_preset, Preset
from ..runs._recipe import needs_data, Recipe
from ..runs._recorded import as_learner
from ..runs._settings import describe, full_name, parse, unknown
from ..training import AbstractCallback, TensorBoard, Video, WeightsAndBiases
from ..training._evaluate import Evaluation
from ..training._result import Interrupted, Result, Terminated
from ..training._train import resume, train
from ._errors import sentences
from ._named_env import named_run
from ._request import Logger, Names, Request
from ._tables import console, evaluation_table


def run_training(request: Request, fields: dict[str, Any]) -> None:
    """Train an agent in an environment; writes metrics, checkpoints and curves.

    **Arguments:**

    - `fields`: fields of the agent that were given as options.
    """
    screen = console()
    with sentences():
        recipe, steps, length, text = _recipe(request, fields)
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
        own = request.env if is_import_path(request.env) else None
        with _interruptible(screen, own):
            result = train(
                agents,
                env if data is None else data,
                plan,
                eval_env=env,
                out=RunFolder(folder, request.overwrite, recipe),
                callbacks=_callbacks(request.video, request.logger, folder),
                progress=True,
            )
    _end(screen, result)


def resume_run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    env: str | None = None,
    steps: float = 0.0,
    logger: Logger | None = None,
    video: int = 0,
) -> None:
    """Resume a run that was stopped, or extend a complete one.

    Args:
        folder: folder of the run.
        env: name of the environment, or `module:Class`; by default the stored name.
        steps: number of control steps to add to the plan.
        logger: logger besides the files.
        video: write an animation of an episode at every n-th evaluation; 0 for none.
    """
    screen = console()
    with sentences(), _interruptible(screen, env):
        if steps:
            _note_annealing(screen, read_config(pathlib.Path(folder)), steps)
        result = resume(
            folder,
            more_steps=steps,
            callbacks=_callbacks(video, logger, folder),
            progress=True,
            **named_run(folder, env),
        )
    _end(screen, result)


def _note_annealing(screen: Console, config: dict[str, Any], steps: float) -> None:
    """Say so if additional steps would be taken at a learning rate of zero."""
    if config["recipe"] is None:
        return
    end = config["recipe"]["settings"].get("anneal_steps", 0.0)
    if 0.0 < end < config["plan"]["steps"] + steps:
        screen.print(
            f"Note: the learning rate of this run is zero after {end:,.0f} steps, so later "
            "steps do not change the policy. To train longer, start a run with more steps "
            "or another `--anneal-steps` (0: constant)."
        )


def preset_agent(
    names: Names, steps: float | None = None
) -> tuple[Preset | None, AbstractAgent, AbstractAgent]:
    """Return the preset for an agent in an environment and a number of steps, the agent
    with its values, and what the loop trains: `Offline` around an agent that learns from
    a dataset."""
    assert names.agent is not None
    preset = None
    if names.env is not None:
        preset = find_preset(names.agent, names.env, names.preset)
    if preset is not None and steps:
        preset = preset.with_steps(steps)
    agent = eqsim.AGENTS.get(names.agent)() if preset is None else preset.agent
    online = isinstance(agent, AbstractOnlineAgent) and names.data is None
    return preset, agent, agent if online else as_learner(agent)


def _recipe(
    request: Request, options: dict[str, Any]
) -> tuple[Recipe, int | float, int, str]:
    """Return the recipe of the run, its steps, the time limit of episodes, and a
    description of the source of its hyper-parameters."""
    for what, name, registry in (
        ("agent", request.agent, eqsim.AGENTS),
        ("environment", request.env, eqsim.ENVS),
    ):
        known = {*registry.names(), *registry.plugins(), *registry.hidden()}
        own = registry is eqsim.ENVS and is_import_path(name)
        if name not in known and not own:
            raise ValueError(unknown(f"There is no {what}", name, registry.names()))
    names = Names(request.agent, request.env, request.preset, request.data)
    preset, agent, learner = preset_agent(names, request.steps)
    if request.data is None and learner is not agent:
        raise ValueError(needs_data(request.agent))
    agent = learner
    steps = preset.steps if preset else request.steps
    if not steps:
        raise CommandError(
            f"There is no preset for {request.agent!r} on {request.env!r}. Set the "
            "number of steps, for instance `--steps 1e6`."
        )
    fields = describe(agent)
    settings = fields | options | _given(agent, request.settings, options)
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
    length = request.episode_length or (preset.episode_length if preset else 1000)
    text = (
        "with its defaults, as there is no preset"
        if preset is None
        else "by its preset"
    )
    return recipe, steps, length, text


def _given(
    agent: AbstractAgent, texts: Sequence[str], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of `--set` by name of field."""
    found = {}
    for name, text in (_pair("--set", text) for text in texts):
        name = full_name(agent, name)
        if name in options:
            raise ValueError(
                f"`--set {name}={text}`: the field is also given as an option of its own. "
                "Leave out one of them."
            )
        found[name] = parse(agent, name, text)
    return found


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(
            f"`{option} {text}` must be `{option} FIELD=VALUE`, such as `{option} "
            "learning_rate=1e-3`."
        )
    return name.strip().replace("-", "_"), value


def _callbacks(
    video: int, logger: Logger | None, folder: str
) -> list[AbstractCallback]:
    """Return the callbacks besides the default ones; animations come before loggers."""
    if video < 0:
        raise CommandError(f"`--video` must be at least 0, got {video}.")
    found: list[AbstractCallback] = [Video(video)] if video else []
    if logger == "tensorboard":
        found.append(TensorBoard(pathlib.Path(folder) / "tensorboard"))
    if logger == "wandb":
        found.append(WeightsAndBiases("eqsim", pathlib.Path(folder).name))
    return found


@contextlib.contextmanager
def _interruptible(screen: Console, env: str | None) -> Iterator[None]:
    """End the process at the second Ctrl-C; files stay complete. After the first one, or
    SIGTERM, say how to resume.

    **Arguments:**

    - `env`: environment that the user must name to resume; None for the stored one.
    """
    option = "" if env is None else f" --env {env}"
    before: Any = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    except (Interrupted, Terminated) as error:
        done = error.result.counters
        screen.print(
            f"Stopped after turn {done.turn}, {done.steps:,} steps. Resume with `eqsim "
            f"resume {error.result.folder}{option}`."
        )
        number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        raise SystemExit(128 + number) from None
    finally:
        signal.signal(signal.SIGINT, before)


def _end(screen: Console, result: Result) -> None:
    if result.evaluations:
        found: Evaluation = result.evaluations[-1][1]
        screen.print(evaluation_table(result.members, found))
    screen.print(
        f"{result.counters.steps:,} steps in {result.counters.seconds:.0f} s; wrote "
        f"{result.folder}: metrics, checkpoints and curves.png"
    )
