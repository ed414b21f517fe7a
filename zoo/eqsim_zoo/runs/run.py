"""A run: what is trained, in what, for how long; and its progress.

`Run` names or holds agents, environment and dataset. It makes them when they are first
used (`members`, `environment()`, `dataset()`), and says after how many steps turns end and
evaluations are due. `folders` writes it to `config.json` and reads it.
"""

import dataclasses
import functools as ft
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import eqsim
from eqsim import AbstractAgent, AbstractEnv, DomainRandomization, randomize
from eqsim.bridges import check_count, check_type
from eqsim.wrappers import (
    AbstractSkillPrior,
    NormalSkills,
    OneHotSkills,
    Skills,
    UniformSkills,
)

from ..blocks.collecting import pool_key, training_env
from ..blocks.hyperparameters import number_of_steps
from ..data.dataset import Dataset
from ..data.files import load_data
from .fields import build, full_name, unknown
from .members import agents_given, MemberEnvs, Members, members_of
from .offline import as_learner, check_data, kind_of, offline_maker, Recorded


_MOST = 2**30
"""Maximum number of steps of a turn, as they are counted in 32 bits."""
_LEAST = {
    "steps": 1,
    "seed": 0,
    "num_seeds": 1,
    "episode_length": 1,
    "pool_size": 0,
    "turns": 1,
    "evaluations": 0,
    "episodes": 1,
    "planned": 0,
}
"""Numbers of a run, and the least value of each."""
_TEXTS, _DICTS = ("pipeline", "randomize", "skills"), ("settings", "sweep", "options")
_OF_NAMES = {"agent": ("settings", "sweep"), "env": (*_TEXTS, "options")}
"""Fields that belong to an agent and an environment given by name."""


class Counters(NamedTuple):
    """Progress of a run.

    - `turn`, `iterations`, `steps`: numbers of turns, iterations and steps so far; steps
        of the member with the fewest.
    - `pace`: steps per iteration in the last turn.
    - `seconds`: run time, including compilation and evaluation, without the time between
        an interruption and `resume`.
    - `best`, `best_turn`: highest evaluated mean return of an agent over its seeds, and its
        turn.
    - `evaluated`: mean return of each member in the last evaluation.
    - `failed`: members with non-finite values, with the reason and the turn.
    - `exempt`: leaves of the state that were not finite before the first turn.
    - `streaks`: number of last iterations of each member in which at least half of the
        updates were not finite.
    """

    turn: int = 0
    iterations: int = 0
    steps: int = 0
    pace: float = 1.0
    seconds: float = 0.0
    best: float | None = None
    best_turn: int = 0
    evaluated: tuple[float | None, ...] = ()
    failed: tuple[tuple[int, str], ...] = ()
    exempt: tuple[str, ...] = ()
    streaks: tuple[int, ...] = ()

    @staticmethod
    def from_json(stored: dict[str, Any]) -> "Counters":
        """Convert counters from JSON, which has no tuples."""
        return Counters(**{name: _tuples(value) for name, value in stored.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run: agents, an environment or a dataset, and its length.

    **Arguments:**

    - `agent`: agent, or several that differ in numbers only and are trained in one program;
        or a name in `eqsim.AGENTS`.
    - `env`: environment of one episode, to which `TimeLimit` and `AutoReset` are added; or
        a name in `eqsim.ENVS` or `module:object`, see `eqsim.make`. With `data`, it is only
        used for evaluations, and may be None.
    - `steps`: control steps of each member, summed over its environments; also a whole
        float, such as 1e6. A run ends with the iteration in which this number is reached.
        With `data`, a step is an update.
    - `data`: dataset for agents that learn from one (see `Offline`), or the path of its
        file.
    - `eval_env`: environment of evaluations; `env` if None.
    - `seed`: first seed.
    - `num_seeds`: number of seeds, trained in one program. The result of each is that
        of a run with this seed alone, up to rounding.
    - `episode_length`: maximum number of control steps of an episode.
    - `pool_size`: number of precomputed resets from which initial states are drawn; 0
        computes a reset for each episode, which is slow in a batch. Each seed has its
        own. See `training_env`.
    - `turns`: approximate number of rows of metrics. A turn is one compiled call.
    - `evaluations`: number of evaluations, at most one per turn; 0 disables them.
    - `episodes`: number of episodes of each evaluation.
    - `planned`: number of steps over which turns and evaluations are spaced; by default
        `steps`. A run that is extended keeps its spacing.
    - `settings`: values of fields of an agent that is given by name; others have their
        defaults.
    - `sweep`: lists of values by field of an agent that is given by name; all combinations
        are trained. Only numbers can be swept, as all agents share one program.
    - `pipeline`, `options`: name of the pipeline and options of `eqsim.make` for an
        environment that is given by name.
    - `randomize`: preset of domain randomization, for an environment that is given by name.
    - `skills`: prior of skills, such as `one_hot:5`, `uniform:2` or `normal:2`, for an
        environment that is given by name. The environment is wrapped in `Skills`, whose options may
        follow, as in `uniform:2,resample_probability=0.02,least_steps=10`.

    **Raises:** `TypeError` or `ValueError` if a value has a wrong type or is out of range.
    """

    agent: str | AbstractAgent | Sequence[AbstractAgent]
    env: str | AbstractEnv | None
    steps: int | float
    _: dataclasses.KW_ONLY
    data: str | Dataset | None = None
    eval_env: AbstractEnv | None = None
    seed: int = 0
    num_seeds: int = 1
    episode_length: int = 1000
    pool_size: int = 1024
    turns: int = 100
    evaluations: int = 10
    episodes: int = 32
    planned: int = 0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    sweep: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    pipeline: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    randomize: str | None = None
    skills: str | None = None

    def __post_init__(self):
        self._check_kinds()
        for name, least in _LEAST.items():
            value = vars(self)[name]
            if name == "steps":
                value = number_of_steps(name, value)
            check_count(name, value, least)
            object.__setattr__(self, name, int(value))
        if not self.planned:
            object.__setattr__(self, "planned", self.steps)
        if self.data is not None:
            object.__setattr__(self, "pool_size", 0)
        if self.env is None and self.eval_env is None:
            object.__setattr__(self, "evaluations", 0)

    def _check_kinds(self) -> None:
        """Raise `TypeError` or `ValueError` if a field has a wrong type, or belongs to a
        name where there is an object."""
        make = "Create one, such as `eqsim.make(name)`."
        if not isinstance(self.agent, str):
            object.__setattr__(self, "agent", agents_given(self.agent))
        for name, kind, what in (
            ("env", str | AbstractEnv | None, "an environment, a name or None"),
            ("eval_env", AbstractEnv | None, "an environment or None"),
            ("data", str | Dataset | None, "a dataset, a path or None"),
        ):
            check_type(name, vars(self)[name], kind, what, make)
        for name in _TEXTS:
            check_type(name, vars(self)[name], str | None, "text or None")
        for name in _DICTS:
            check_type(name, vars(self)[name], dict, "a dictionary of values by name")
        for name, values in self.sweep.items():
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(
                    f"`sweep[{name!r}]` must be a list of values, got {values!r}"
                )
        for holder, fields in _OF_NAMES.items():
            given = [name for name in fields if vars(self)[name]]
            if given and not isinstance(vars(self)[holder], str):
                raise ValueError(
                    f"`{given[0]}` is for an `{holder}` given by name, but `{holder}` is an "
                    "object: change the object itself."
                )

    @ft.cached_property
    def members(self) -> Members:
        """Agents with their seeds. Agents of a run with a dataset are wrapped in `Offline`.

        **Raises:** `ValueError` if an agent, a field or a value is invalid, or agents cannot
        share a program; `PluginError` if the plugin of the agent cannot be used.
        """
        agents = self.agent
        if isinstance(agents, str):
            make = maker_of(agents, self.data is not None)
            points = itertools.product(*self.sweep.values())
            agents = [self._build(make, zip(self.sweep, point)) for point in points]
        if self.data is not None:
            agents = [as_learner(agent) for agent in agents_given(agents)]
        return members_of(agents, self.seed, self.num_seeds)

    def _build(self, make: Callable[..., AbstractAgent], point: Any) -> AbstractAgent:
        base = make()
        values = {**self.settings, **dict(point)}
        return build(make, {full_name(base, name): x for name, x in values.items()})

    @ft.cached_property
    def _environment(self) -> AbstractEnv | None:
        if not isinstance(self.env, str):
            return self.env
        try:
            env = eqsim.make(self.env, pipeline=self.pipeline, **self.options)
        except TypeError as error:
            raise ValueError(f"Cannot make {self.env!r}: {error}") from error
        if self.randomize is not None:
            found = randomize.presets(self.env.rpartition(":")[2])
            if self.randomize not in found:
                text = unknown("No randomization preset", self.randomize, found)
                raise ValueError(text)
            env = DomainRandomization(env, found[self.randomize])
        return env if self.skills is None else with_skills(env, self.skills)

    def environment(self) -> AbstractEnv:
        """Return the environment, without auto-reset.

        **Raises:** `ValueError` if there is none, or a name or an option is invalid;
        `PluginError` if a plugin cannot be used.
        """
        if self._environment is None:
            raise ValueError(
                "The run has a dataset without an environment. Pass `env` to act and to "
                "evaluate."
            )
        return self._environment

    def evaluation_environment(self) -> AbstractEnv | None:
        """Return the environment of evaluations; None if there is none."""
        return self.eval_env or self._environment

    @ft.cached_property
    def _dataset(self) -> Dataset | None:
        return load_data(self.data) if isinstance(self.data, str) else self.data

    def dataset(self) -> Dataset | None:
        """Return the dataset; None without one.

        **Raises:** `FileNotFoundError` if there is no such file; `ValueError` if it is
        invalid.
        """
        return self._dataset

    def source(self) -> AbstractEnv | MemberEnvs | Dataset:
        """Return what agents learn from: an environment with auto-reset, whose pool of
        resets depends on the seed of a member (`MemberEnvs` for several seeds), or a dataset.

        **Raises:** `ValueError` if the dataset does not fit, or there is neither.
        """
        data, env = self.dataset(), self._environment
        if data is not None:
            for member in range(0, self.members.count, self.num_seeds):
                learner: Any = self.members.agent(member)
                check_data(learner.agent, env, data)
        if env is None:
            if data is None:
                raise ValueError(
                    "A run needs an environment (`env`) or a dataset (`data`)."
                )
            return data
        if data is not None:
            env = Recorded(env, data)
        sizes = self.episode_length, self.pool_size
        return self.members.envs(lambda seed: training_env(env, *sizes, pool_key(seed)))

    def longer(self, steps: int | float) -> "Run":
        """Return the run extended by a number of steps."""
        more = number_of_steps("steps", steps, 0)
        return dataclasses.replace(self, steps=self.steps + more)

    def iterations(self, counters: Counters) -> int:
        """Return the number of iterations of the next turn. It depends only on the run
        and the counters, not on time, so that a resumed run takes the same turns."""
        if not counters.iterations:
            return 1  # Measures the number of steps per iteration.
        turn = min(math.ceil(self.planned / self.turns), _MOST)
        wanted = min(turn, self.steps - counters.steps)
        return max(1, math.ceil(wanted / counters.pace))

    def evaluates(self, before: int, after: int) -> bool:
        """Return whether an evaluation is due between two step counts; always true at
        the end."""
        if not self.evaluations:
            return False
        passed = lambda steps: steps * self.evaluations // self.planned
        return after >= self.steps or passed(after) > passed(before)

    def __str__(self) -> str:
        """Describe the run in a line."""
        agent, env = self.agent, self.env
        agents = 1 if isinstance(agent, str) else len(agents_given(agent))
        points = math.prod(map(len, self.sweep.values())) * agents
        names = [x if isinstance(x, str) else type(x).__name__ for x in (agent, env)]
        if not isinstance(agent, str):
            names[0] = kind_of(agents_given(agent)[0]).__name__
        many = f", {points} settings" if points > 1 else ""
        many += f", {self.num_seeds} seeds" if self.num_seeds > 1 else ""
        where = names[1] if env is not None else "a dataset"
        return f"{names[0]} on {where}: {self.steps:,} steps{many}"


def maker_of(agent: str, offline: bool) -> Callable[..., AbstractAgent]:
    """Return the factory of an agent by name, or that of `Offline` around it.

    **Raises:** `ValueError` if there is no such agent; `PluginError` if its plugin cannot
    be used.
    """
    make = eqsim.AGENTS.get(agent)
    return offline_maker(make) if offline else make


_PRIORS = {"one_hot": OneHotSkills, "uniform": UniformSkills, "normal": NormalSkills}


def with_skills(env: AbstractEnv, text: str) -> Skills:
    """Wrap an environment in `Skills` given as text, such as `one_hot:5` or
    `uniform:2,resample_probability=0.02,least_steps=10`.

    **Raises:** `ValueError` if a prior, an option or a value is invalid.
    """
    prior, *rest = text.split(",")
    options: dict[str, Any] = {}
    for word in rest:
        name, _, value = (part.strip() for part in word.partition("="))
        name = name.replace("-", "_")
        if name not in _OPTIONS:
            raise ValueError(
                unknown(f"{text!r}: `Skills` has no option", name, _OPTIONS)
            )
        if name in options:
            raise ValueError(f"{text!r}: `{name}` is given twice. Remove one of them.")
        kind, least, most, expected = _OPTIONS[name]
        try:
            options[name] = kind(value)
            if not least <= options[name] <= most:
                raise ValueError(value)
        except ValueError as error:
            raise ValueError(
                f"{text!r}: `{name}` is {value!r}; expected {expected}."
            ) from error
    return Skills(env, prior_of(prior), **options)


def prior_of(text: str) -> AbstractSkillPrior:
    """Return a prior of skills given as text, such as `one_hot:5`.

    **Raises:** `ValueError` if the name or the size is invalid.
    """
    name, _, number = text.strip().replace("-", "_").partition(":")
    if name not in _PRIORS:
        raise ValueError(unknown("No prior of skills", name, _PRIORS))
    if not number.isdecimal():
        raise ValueError(f"{text!r}: expected a size after the name, as in `{name}:5`.")
    return _PRIORS[name](int(number))


_OPTIONS = {
    "resample_probability": (float, 0, 1, "a number from 0 to 1, such as 0.02"),
    "least_steps": (int, 1, 2**31 - 1, "an integer from 1, such as 10"),
}
