"""`eqsim train`, whose options are the fields of the agent that it names, and `eqsim
resume`.

`train_agent` is a dynamic command: `_build` finds the agent among the arguments and makes
a dataclass of options from its fields, which tyro parses. `run_training` makes a `Run` of
the options and a preset, and trains it.
"""

import contextlib
import dataclasses
import enum
import inspect
import itertools
import json
import keyword
import pathlib
import re
import signal
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import numpy as np
import tyro
from rich.console import Console

import eqsim
from eqsim import AbstractAgent, AbstractOnlineAgent
from eqsim.envs import is_import_path
from eqsim.plugins import CommandError

from ..agents.skill_agent import AbstractSkillAgent
from ..runs import find_preset, Offline, Run
from ..runs.fields import build, fields_of, full_name
from ..runs.folders import read_config
from ..runs.run import maker_of
from ..training import (
    AbstractCallback,
    Interrupted,
    Result,
    resume,
    TensorBoard,
    Terminated,
    train,
    Video,
    WeightsAndBiases,
)
from ._printing import console, evaluation_table, sentences


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
    sweep: Annotated[_Several, tyro.conf.arg(metavar="FIELD=A,B,C")] = ()
    """Values of a numeric field, trained together in one program; if repeated, all
    combinations are trained."""
    num_seeds: int = 1
    """Number of seeds, from `--seed` on, trained together in one program."""
    pipeline: str | None = None
    """Name of the pipeline; by default that of the environment."""
    option: Annotated[_Several, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Option of the environment, such as `motion=walk.csv`; may be repeated. Of a mapping,
    entries that are not given are those of the preset."""
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
    pool_size: int | None = None
    """Number of initial states computed in advance; 0 computes one for each episode. By
    default that of the preset, or 1024."""
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


_OPTIONS = tuple(field.name for field in dataclasses.fields(Request))
_OF_RUN = ("seed", "num_seeds", "evaluations", "episodes", "turns")
"""Options that always set the field of a `Run` with this name."""
_OF_PRESET = ("episode_length", "pipeline", "pool_size", "randomize", "skills")
"""Options that set the field of a `Run` with this name if they are given."""
SUMMARY = "Train an agent; writes metrics, checkpoints and learning curves."


def _build(argv: Sequence[str]) -> Callable[..., None]:
    names = read_names(argv)
    if names.agent is None:
        return _without_fields
    with sentences():
        start = _start(names)
    holder, fields = agent_options(start.agent, start.make)
    section = _identifier(names.agent)
    default = dataclasses.field(default_factory=holder)
    annotated = Annotated[holder, tyro.conf.OmitArgPrefixes]
    request: Any = dataclasses.make_dataclass(
        "AgentRequest", [(section, annotated, default)], bases=(Request,), frozen=True
    )

    def train(request: Request) -> None:
        parsed, unset = vars(vars(request)[section]), vars(holder())
        changed = {k: x for k, x in parsed.items() if x != unset[k]}
        truth = {"true": True, "false": False}
        given = {k: truth.get(x, x) for k, x in changed.items()}
        run_training(request, {fields[k]: x for k, x in given.items()})

    train.__doc__ = SUMMARY
    train.__annotations__["request"] = Annotated[request, tyro.conf.arg(name="")]
    return train


def _without_fields(request: Annotated[Request, tyro.conf.arg(name="")]) -> None:
    """Train an agent; writes metrics, checkpoints and learning curves.

    `eqsim train AGENT --help` lists the fields of an agent, and `eqsim train AGENT ENV
    --help` their values in the preset.
    """
    run_training(request, {})


train_agent = eqsim.plugins.DynamicCommand(SUMMARY, _build)


class Names(NamedTuple):
    """Arguments that determine which fields there are, and their defaults; None if they
    are not given."""

    agent: str | None
    env: str | None
    preset: str | None
    data: str | None
    steps: float | None


def read_names(argv: Sequence[str]) -> Names:
    """Find agent, environment, preset, dataset and steps among the arguments of `eqsim
    train`, whose other options are not known yet.

    The agent is the first word that names one and is not the value of an option; the
    environment is the next word, or the next one that names an environment.
    """
    split = lambda word: word.split("=", 1) if word.startswith("--") else [word]
    words = [part for word in argv for part in split(word)]
    values = dict(zip(words, words[1:]))
    valued = {f"--{name.replace('_', '-')}" for name in _OPTIONS} - {"--overwrite"}
    known = lambda names: {*names.names(), *names.plugins(), *names.hidden()}
    agents, envs, before = known(eqsim.AGENTS), known(eqsim.ENVS), ["", *words]
    free = [x for x, left in zip(words, before) if left not in valued]
    rest = [*itertools.dropwhile(lambda x: x not in agents, free)]
    if not rest:
        return Names(None, None, None, None, None)
    named = [x for x in rest[1:] if x in envs]
    env = next((x for x in [*rest[1:2], *named] if not x.startswith("-")), None)
    steps = None
    with contextlib.suppress(ValueError):
        steps = float(values["--steps"]) if "--steps" in values else None
    return Names(rest[0], env, values.get("--preset"), values.get("--data"), steps)


class _Start(NamedTuple):
    """Defaults of the options of an agent.

    - `preset`: preset of agent and environment; None if there is none.
    - `agent`: agent with the values of the preset, in `Offline` if it learns from a dataset.
    - `make`: factory of the agent.
    - `settings`: fields that the preset sets.
    """

    preset: Run | None
    agent: AbstractAgent
    make: Callable[..., AbstractAgent]
    settings: dict[str, Any]


def _start(names: Names) -> _Start:
    assert names.agent is not None
    preset = None
    if names.env is not None and not is_import_path(names.env):
        options = names.agent, names.env, names.preset
        preset = find_preset(*options, steps=names.steps)
    settings = {} if preset is None else preset.settings
    make = maker_of(names.agent, False)
    if names.data is not None or not isinstance(make(), AbstractOnlineAgent):
        make = maker_of(names.agent, True)
        settings = {f"agent.{name}": value for name, value in settings.items()}
    return _Start(preset, build(make, settings), make, settings)


def agent_options(
    agent: AbstractAgent, make: Callable[..., Any]
) -> tuple[type, dict[str, str]]:
    """Return a dataclass for tyro with options for the fields of an agent, whose values are
    the defaults, and the fields by the names in the dataclass. A field with the name of an
    option of the command becomes `agent.NAME`.

    **Arguments:**

    - `make`: class of the agent, or a function that makes it; only its parameters can be
        set.
    """
    taken, options, fields = {*inspect.signature(make).parameters}, [], {}
    for name, value in fields_of(agent).items():
        *path, own = name.split(".")
        holder: Any = agent
        for part in path:
            holder = vars(holder)[part]
        kind, default = _option(holder, own, value)
        if kind is None or name.partition(".")[0] not in taken:
            continue
        text = field_help(type(holder)).get(own, "")
        option = f"agent.{name}" if name in _OPTIONS else name
        # Without the name of what holds it, where that is clear.
        short = own != name and own not in _OPTIONS and full_name(agent, own) == name
        aliases = (f"--{own.replace('_', '-')}",) if short else ()
        about = tyro.conf.arg(name=option, help=text, aliases=aliases)
        key = option.replace(".", "__")
        annotated = Annotated[kind, about]
        options.append((key, annotated, dataclasses.field(default=default)))
        fields[key] = name
    made = dataclasses.make_dataclass("Fields", options, frozen=True)
    learns = agent.agent if isinstance(agent, Offline) else agent
    made.__doc__ = f"Fields of {type(learns).__name__}."
    return made, fields


def _option(holder: eqx.Module, name: str, value: Any) -> tuple[Any, Any]:
    """Return type and default of the option for a field; None if text cannot give it."""
    if isinstance(value, enum.Enum):
        return Literal[tuple(type(value).__members__)], value.name
    if value is None:
        hint = typing.get_type_hints(type(holder)).get(name)
        union = isinstance(hint, types.UnionType)
        simple = union and {*hint.__args__} <= {int, float, str, type(None)}
        if hint == int | None:
            return Annotated[Any, _constructor(int, False, True)], None
        return (hint if simple else None), None
    value = value if isinstance(value, str | tuple) else np.asarray(value)
    several = isinstance(value, tuple) or (not isinstance(value, str) and value.ndim)
    items = [*value] if several else [value]
    kind = _KINDS.get("U" if isinstance(value, str) else np.asarray(items).dtype.kind)
    if kind is None or not items:
        return None, None
    if kind is bool:
        return Literal["true", "false"], str(bool(value)).lower()
    # The shortest text of a float in single precision, not its value in double precision.
    items = [kind(str(item)) for item in items]
    if several or kind is int:
        return Annotated[Any, _constructor(kind, bool(several))], (
            tuple(items) if several else items[0]
        )
    return kind, items[0]


_KINDS = {"b": bool, "i": int, "u": int, "f": float, "U": str}


def _constructor(kind: type, several: bool, optional: bool = False) -> Any:
    """Return how tyro reads values separated by commas, and integers such as 1e6; None is
    one of the values if it is `optional`."""

    def read(word: str) -> Any:
        value = kind(word) if kind is not int else float(word)
        if kind is int and value != int(value):
            raise ValueError(f"{word!r} is not an integer")
        if kind is int:
            return int(word) if word.lstrip("+-").isdecimal() else int(value)
        return value

    def read_all(words: list[str]) -> Any:
        if optional and words == ["None"]:
            return None
        parts = [part for word in words for part in word.split(",") if part]
        return tuple(map(read, parts)) if several else read(words[0])

    shown = lambda x: ",".join(map(str, x)) if several else str(x)
    metavar = {int: "INT", float: "FLOAT", str: "STR"}[kind]
    metavar += "|None" if optional else ""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if several else 1,
        metavar=f"{metavar},..." if several else metavar,
        instance_from_str=read_all,
        is_instance=lambda x: True,
        str_from_instance=lambda x: [shown(x)],
    )


def field_help(holder: type) -> dict[str, str]:
    """Return the descriptions of the fields of a class by name, from the section
    `**Arguments:**` in the docstrings of the class and of its bases."""
    names = r"(?:^|(?<=[.;] ))((?:`\w+`(?:, | and )?)+): "
    found: dict[str, str] = {}
    for base in reversed(holder.__mro__):
        _, _, rest = inspect.cleandoc(base.__doc__ or "").partition("**Arguments:**")
        section = re.split(r"\n\n(?=\S)(?!- )", rest, maxsplit=1)[0]
        for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]:
            # Names and texts alternate after the text before the first name.
            parts = re.split(names, " ".join(item.split()))[1:]
            for several, text in zip(parts[::2], parts[1::2]):
                plain = re.sub(r"[$`{}\\]", "", text.strip())
                for name in re.findall(r"`(\w+)`", several):
                    found[name] = plain[:1].upper() + plain[1:]
    return found


def _identifier(agent: str) -> str:
    """Return the name of an agent as a Python identifier, used as heading of its
    options."""
    word = "".join(c if c.isalnum() else "_" for c in agent)
    return f"{word}_" if keyword.iskeyword(word) or word[:1].isdigit() else word


def run_training(request: Request, fields: dict[str, Any]) -> None:
    """Train an agent in an environment; writes metrics, checkpoints and curves.

    **Arguments:**

    - `fields`: fields of the agent that were given as options.
    """
    screen = console()
    with sentences():
        run, text = _run(request, fields)
        folder = request.out or f"runs/{request.agent}-{request.env}".replace(":", "-")
        screen.print(f"{run}, {text}, into {folder}")
        own = request.env if is_import_path(request.env) else None
        with _interruptible(screen, own):
            result = train(
                run,
                out=folder,
                overwrite=request.overwrite,
                callbacks=_callbacks(request.video, request.logger, folder),
                progress=True,
            )
    _end(screen, result)


def _run(request: Request, fields: dict[str, Any]) -> tuple[Run, str]:
    """Return the run, and a description of the source of its hyper-parameters."""
    if not is_import_path(request.env):
        eqsim.ENVS.get(request.env)  # Raises with similar names.
    words = request.agent, request.env, request.preset, request.data
    start = _start(Names(*words, request.steps))
    if request.data is None and isinstance(start.agent, Offline):
        raise CommandError(
            f"{request.agent!r} learns from a dataset. Pass one (`--data FILE`, written by "
            "`eqsim record`)."
        )
    text, run = "by its preset", start.preset
    if run is None:
        text = "with its defaults, as there is no preset"
        if not request.steps:
            raise CommandError(
                f"There is no preset for {request.agent!r} on {request.env!r}. Set the "
                "number of steps, for instance `--steps 1e6`."
            )
        run = Run(request.agent, request.env, request.steps)
    sweep, known = {}, fields_of(start.agent)
    for pair in request.sweep:
        name, values = _swept(pair)
        name = full_name(start.agent, name)
        if name in known and not eqx.is_array(known[name]):
            raise CommandError(
                f"`--sweep {pair}`: `{name}` cannot be swept, as it is part of the program "
                "that all agents share. Start a run for each value."
            )
        sweep[name] = values
    given = {name: vars(request)[name] for name in (*_OF_RUN, *_OF_PRESET)}
    given = {k: x for k, x in given.items() if k in _OF_RUN or x is not None}
    if isinstance(start.agent, AbstractSkillAgent) and run.skills is None:
        given = {"skills": "one_hot:5"} | given
    options = _merged(run.options, _env_options(request.option))
    path = None if request.data is None else str(pathlib.Path(request.data).resolve())
    run = dataclasses.replace(
        run,
        agent=request.agent,
        env=request.env,
        settings={**start.settings, **fields},
        sweep=sweep,
        options=options,
        data=path,
        **given,
    )
    return run, text


def _swept(text: str) -> tuple[str, list[float]]:
    name, _, values = text.partition("=")
    try:
        return name.strip().replace("-", "_"), [float(x) for x in values.split(",")]
    except ValueError as error:
        raise CommandError(
            f"`--sweep {text}` must be a field with numbers, such as `--sweep "
            "learning_rate=1e-4,1e-3`."
        ) from error


def _env_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return options by name. The name of an existing file is stored as an absolute path, so
    that a run can be resumed from another folder."""
    options = {}
    for text in texts:
        name, value = _env_option(text)
        if name in options:
            raise CommandError(f"`--option {name}=` was given twice.")
        if isinstance(value, str) and value and pathlib.Path(value).is_file():
            value = str(pathlib.Path(value).resolve())
        options[name] = value
    return options


def _merged(preset: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a preset with those given. Where both are mappings, entries that
    are not given remain."""
    merged = dict(preset)
    for name, value in given.items():
        before = preset.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            value = before | value
        merged[name] = value
    return merged


def _env_option(text: str) -> tuple[str, Any]:
    """Return name and value of an option: a value of JSON, or text."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip().isidentifier()):
        raise CommandError(
            f"`--option {text}` must be a name and a value, such as `--option start=2.5`."
        )
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


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
        steps: number of control steps to add.
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
            env=env,
            callbacks=_callbacks(video, logger, folder),
            progress=True,
        )
    _end(screen, result)


def _note_annealing(screen: Console, config: dict[str, Any], steps: float) -> None:
    """Say so if additional steps would be taken at a learning rate of zero."""
    fields = config["agents"][0]["fields"]
    end = fields.get("anneal_steps", fields.get("agent.anneal_steps", 0.0))
    if 0.0 < end < config["run"]["steps"] + steps:
        screen.print(
            f"Note: the learning rate of this run is zero after {end:,.0f} steps, so later "
            "steps do not change the policy. To train longer, start a run with more steps "
            "or another `--anneal-steps` (0: constant)."
        )


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
        _, found = result.evaluations[-1]
        screen.print(evaluation_table(result.members, found))
    screen.print(
        f"{result.counters.steps:,} steps in {result.counters.seconds:.0f} s; wrote "
        f"{result.folder}: metrics, checkpoints and a page, index.html"
    )
