"""Options of `eqsim train`."""

import contextlib
import dataclasses
import enum
import functools as ft
import keyword
import pathlib
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tyro
from rich.console import Console

import eqsim
from eqsim import AbstractAgent, AbstractOnlineAgent, CommandError
from eqsim.envs import is_import_path

from ..agents._skill_agent import AbstractSkillAgent
from ..runs import Plan, RunFolder
from ..runs._presets import find_preset, Preset
from ..runs.fields import (
    describe,
    field_descriptions,
    full_name,
    options,
    parse,
    unknown,
)
from ..runs.folders import read_config
from ..runs.offline import as_learner, Offline, offline_maker
from ..runs.run import needs_data, Recipe
from ..training import AbstractCallback, TensorBoard, Video, WeightsAndBiases
from ..training._train import Interrupted, Result, resume, Terminated, train
from ..training.evaluation import Evaluation
from ._printing import console, evaluation_table, sentences
from ._reading import named_run


Logger = Literal["tensorboard", "wandb"]
_Several = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class Request:
    """Options that do not depend on the agent."""

    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """Name of the agent, for instance `ppo`."""
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Name of the environment, for instance `ant`, or `module:Class`."""
    preset: str | None = None
    """Name of an alternative preset, for instance `qdax`."""
    steps: float | None = None
    """Number of control steps, summed over all environments, for instance 2e7; by default
    that of the preset."""
    seed: int = 0
    """Random seed."""
    out: str | None = None
    """Folder of the run; by default runs/AGENT-ENV."""
    settings: Annotated[_Several, tyro.conf.arg(name="set", metavar="FIELD=VALUE")] = ()
    """Field of the agent, the same as `--FIELD VALUE`; may be repeated."""
    sweep: Annotated[_Several, tyro.conf.arg(metavar="FIELD=A,B,C")] = ()
    """Values of a numeric field, trained together in one program; if repeated, all
    combinations are trained."""
    num_seeds: int = 1
    """Number of seeds, from `--seed` on, trained together in one program."""
    pipeline: str | None = None
    """Name of the pipeline; by default that of the environment."""
    episode_length: int | None = None
    """Time limit of an episode in control steps; by default 1000."""
    randomize: str | None = None
    """Randomization preset, applied in each episode."""
    skills: str | None = None
    """Skills of an agent that learns skills: one_hot:5, uniform:2 or normal:2; by default
    one_hot:5. With options of `Skills`:
    one_hot:5,resample_probability=0.02,least_steps=10."""
    data: str | None = None
    """Dataset for an agent such as `iql`, see `eqsim record`. A step is then an update."""
    pool_size: int = 1024
    """Number of initial states computed in advance; 0 computes one for each episode."""
    evaluations: int = 10
    """Number of evaluations."""
    episodes: int = 32
    """Episodes of each evaluation."""
    turns: int = 100
    """Approximate number of rows of metrics."""
    logger: Logger | None = None
    """Additional logger; needs the extra of the same name."""
    video: int = 0
    """Write an animation of an episode at every n-th evaluation, to the folder `videos`;
    0 for none."""
    overwrite: bool = False
    """Delete an existing run in the folder."""


RUN_OPTIONS = tuple(field.name for field in dataclasses.fields(Request))


class Names(NamedTuple):
    """Arguments that determine which fields there are, and their defaults; None if they
    are not given."""

    agent: str | None
    env: str | None
    preset: str | None
    data: str | None


def read_names(argv: Sequence[str]) -> Names:
    """Find agent, environment, preset and dataset among the arguments of `eqsim train`,
    whose other options are not known yet.

    The agent is the first word that names one and is not the value of an option; the next
    word is the environment.
    """
    words = [part for word in argv for part in _split(word)]
    values = dict(zip(words, words[1:]))
    known = {*eqsim.AGENTS.names(), *eqsim.AGENTS.plugins(), *eqsim.AGENTS.hidden()}
    places = [k for k, word in enumerate(words) if word in known]
    free = [k for k in places if not k or not _takes_value(words[k - 1])]
    if not free:
        return Names(None, None, None, None)
    (first, *_) = free
    following = words[first + 1 : first + 2]
    env = following[0] if following and not following[0].startswith("-") else None
    return Names(words[first], env, values.get("--preset"), values.get("--data"))


def _split(word: str) -> list[str]:
    """Split `--option=value` into two words."""
    return word.split("=", 1) if word.startswith("--") else [word]


def _takes_value(word: str) -> bool:
    """Return whether a word is an option of the run that has a value."""
    name = word.removeprefix("--").replace("-", "_")
    known = name in RUN_OPTIONS or name == "set"
    return word.startswith("--") and known and name != "overwrite"


_METAVARS = {"i": "INT", "u": "INT", "f": "FLOAT"}


@dataclasses.dataclass(frozen=True)
class AgentOptions:
    """Options for the fields of an agent.

    **Arguments:**

    - `agent`: agent with the default values.
    - `holder`: dataclass for tyro, with one field per option.
    - `names`: fields of the agent by the field of `holder`.
    """

    agent: AbstractAgent
    holder: type
    names: dict[str, str]

    def settings(self, parsed: Any) -> dict[str, Any]:
        """Return the fields of the agent that differ from their defaults, by name."""
        defaults = {f.name: f.default for f in dataclasses.fields(self.holder)}
        values = {name: vars(parsed)[name] for name in self.names}
        changed = {k: v for k, v in values.items() if v != defaults[k]}
        return {
            self.names[k]: parse(self.agent, self.names[k], v)
            if isinstance(v, str)
            else v
            for k, v in changed.items()
        }


def agent_options(
    agent: AbstractAgent, make: Callable[..., Any], taken: Iterable[str]
) -> AgentOptions:
    """Return options for the fields of an agent, with its values as defaults.

    **Arguments:**

    - `make`: class of the agent, or a function that makes it.
    - `taken`: options of the command: a field of that name becomes `agent.NAME`.
    """
    fields, names, taken = [], {}, {*taken}
    values = describe(agent)
    for name, (holder, value) in options(agent, make).items():
        own = name.rpartition(".")[2]
        text = field_descriptions(type(holder)).get(own, "")
        text = text[:1].upper() + text[1:]
        option = f"agent.{name}" if name in taken else name
        # Without the name of what holds it, where that is clear.
        short = own != name and own not in taken and full_name(agent, own) == name
        aliases = (f"--{own.replace('_', '-')}",) if short else ()
        key = option.replace(".", "__")
        kind, default = _option_type(agent, name, value, values[name])
        about = tyro.conf.arg(name=option, help=text, aliases=aliases)
        annotated = Annotated[kind, about]
        fields.append((key, annotated, dataclasses.field(default=default)))
        names[key] = name
    holder = dataclasses.make_dataclass("Fields", fields, frozen=True)
    learns = agent.agent if isinstance(agent, Offline) else agent
    holder.__doc__ = f"Fields of {type(learns).__name__}."
    return AgentOptions(agent, holder, names)


def section_name(agent: str) -> str:
    """Return the name of an agent as a Python identifier, used as heading of its
    options."""
    word = "".join(c if c.isalnum() else "_" for c in agent)
    return f"{word}_" if keyword.iskeyword(word) or word[:1].isdigit() else word


def _option_type(
    agent: AbstractAgent, name: str, value: Any, encoded: Any
) -> tuple[Any, Any]:
    """Return the type of an option, and its default."""
    if isinstance(value, enum.Enum):
        names = tuple(type(value).__members__)
        return Literal[names], encoded
    if np.asarray(value).dtype.kind == "b":
        return Literal["true", "false"], str(encoded).lower()
    several = isinstance(encoded, list)
    first = encoded[0] if several else value
    kind = _METAVARS.get(np.asarray(first).dtype.kind, "STR")
    if not several and kind == "FLOAT":
        encoded = float(encoded)
    spec = tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if several else 1,
        metavar=f"{kind},..." if several else kind,
        instance_from_str=ft.partial(_read, agent, name),
        is_instance=lambda x: True,
        str_from_instance=lambda x: [_shown(x)],
    )
    default = tuple(encoded) if several else encoded
    return Annotated[Any, spec], default


def _read(agent: AbstractAgent, name: str, words: list[str]) -> Any:
    return parse(agent, name, ",".join(words))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


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


SUMMARY = "Train an agent; writes metrics, checkpoints and learning curves."


def _build(argv: Sequence[str]) -> Callable[..., None]:
    names = read_names(argv)
    if names.agent is None:
        return _without_fields
    with sentences():
        options = _options(names)
    section = section_name(names.agent)
    default = dataclasses.field(default_factory=options.holder)
    holder = Annotated[options.holder, tyro.conf.OmitArgPrefixes]
    request: Any = dataclasses.make_dataclass(
        "AgentRequest", [(section, holder, default)], bases=(Request,), frozen=True
    )

    def train(request: Request) -> None:
        run_training(request, options.settings(vars(request)[section]))

    train.__doc__ = SUMMARY
    train.__annotations__["request"] = Annotated[request, tyro.conf.arg(name="")]
    return train


def _without_fields(request: Annotated[Request, tyro.conf.arg(name="")]) -> None:
    """Train an agent; writes metrics, checkpoints and learning curves.

    `eqsim train AGENT --help` lists the fields of an agent, and `eqsim train AGENT ENV
    --help` their values in the preset.
    """
    run_training(request, {})


def _options(names: Names) -> AgentOptions:
    assert names.agent is not None
    _, agent, learner = preset_agent(names)
    make = eqsim.AGENTS.get(names.agent)
    offline = learner is not agent
    maker = offline_maker(make) if offline else make
    return agent_options(learner, maker, RUN_OPTIONS)


train_agent = eqsim.DynamicCommand(SUMMARY, _build)
