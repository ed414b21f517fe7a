"""Skills as text: a prior with its size, and options of `Skills`."""

import dataclasses
import itertools
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import eqsim
from eqsim import (
    AbstractAgent,
    AbstractEnv,
    AbstractOnlineAgent,
    DomainRandomization,
    randomize,
)
from eqsim.bridges import check_count
from eqsim.envs import is_import_path
from eqsim.wrappers import (
    AbstractPrior,
    NormalSkills,
    OneHotSkills,
    Skills,
    UniformSkills,
)

from ..blocks._hyperparameters import number_of_steps
from ..data import Dataset, load_data
from .fields import build, describe, unknown
from .members import Members
from .offline import offline_maker


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
        read, expected = _OPTIONS[name]
        try:
            options[name] = read(value)
        except ValueError as error:
            raise ValueError(
                f"{text!r}: `{name}` is {value!r}; expected {expected}."
            ) from error
    return Skills(env, prior_of(prior), **options)


def prior_of(text: str) -> AbstractPrior:
    """Return a prior of skills given as text, such as `one_hot:5`.

    **Raises:** `ValueError` if the name or the size is invalid.
    """
    name, _, number = text.strip().replace("-", "_").partition(":")
    if name not in _PRIORS:
        raise ValueError(unknown("No prior of skills", name, _PRIORS))
    if not number.isdecimal():
        raise ValueError(f"{text!r}: expected a size after the name, as in `{name}:5`.")
    return _PRIORS[name](int(number))


def _probability(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value < 2**31:
        raise ValueError(text)
    return value


_OPTIONS = {
    "resample_probability": (_probability, "a number from 0 to 1, such as 0.02"),
    "least_steps": (_count, "an integer from 1, such as 10"),
}


_MOST = 2**30
"""Maximum number of steps of a turn, as they are counted in 32 bits."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Length, seeds and evaluations of a run.

    **Arguments:**

    - `steps`: control steps of each member, summed over its environments; also a whole
        float, such as 1e6. A run ends with the iteration in which this number is reached.
    - `seed`: first seed.
    - `num_seeds`: number of seeds, trained in one program. The result of each is that
        of a run with this seed alone, up to rounding.
    - `episode_length`: maximum number of control steps of an episode.
    - `pool_size`: number of precomputed resets from which initial states are drawn; 0
        computes a reset for each episode, which is slow in a batch. Each seed has its
        own. See `training_env`.
    - `turns`: approximate number of rows of metrics. A turn is one compiled call.
    - `evaluations`: number of evaluations; 0 disables them.
    - `episodes`: number of episodes of each evaluation.
    - `planned`: number of steps over which turns and evaluations are spaced; by default
        `steps`. A run that is extended keeps its spacing.

    **Raises:** `ValueError` if a value is not an integer or out of range.
    """

    steps: int | float
    seed: int = 0
    num_seeds: int = 1
    episode_length: int = 1000
    pool_size: int = 1024
    turns: int = 100
    evaluations: int = 10
    episodes: int = 32
    planned: int = 0

    def __post_init__(self):
        least = {"seed": 0, "pool_size": 0, "evaluations": 0, "planned": 0}
        for name, value in dataclasses.asdict(self).items():
            if name == "steps":
                value = number_of_steps(name, value)
            check_count(name, value, least.get(name, 1))
            object.__setattr__(self, name, int(value))
        if not self.planned:
            object.__setattr__(self, "planned", self.steps)

    def longer(self, steps: int | float) -> "Plan":
        """Return the plan extended by a number of steps."""
        more = number_of_steps("steps", steps, 0)
        return dataclasses.replace(self, steps=self.steps + more)

    def iterations(self, counters: "Counters") -> int:
        """Return the number of iterations of the next turn. It depends only on the plan
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


def counters_from_json(stored: dict[str, Any]) -> Counters:
    """Convert counters from JSON, which has no tuples; those of earlier versions that are
    not used any more are left out."""
    known = {name: x for name, x in stored.items() if name in Counters._fields}
    return Counters(**{name: _tuples(value) for name, value in known.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def needs_data(agent: str) -> str:
    """Return the message about an agent that is trained without its dataset."""
    return (
        f"{agent!r} has no `iterate`, so it cannot be trained in an environment alone. Pass "
        "a dataset (`--data FILE`, written by `eqsim record`)."
    )


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Names and settings of a run, which can be written to JSON.

    **Arguments:**

    - `agent`, `env`: names in `eqsim.AGENTS` and `eqsim.ENVS`; for the environment also
        `module:object`, see `eqsim.make`.
    - `settings`: fields of the agent by name; others have their defaults.
    - `sweep`: lists of values by field name; all combinations are trained. Only
        array-valued fields can be swept, as all agents share one program.
    - `pipeline`: name of the pipeline; by default that of the environment.
    - `options`: options of the environment, as in `eqsim.make`.
    - `randomize`: name of a preset of domain randomization.
    - `skills`: prior of skills, such as `one_hot:5`, `uniform:2` or `normal:2`. The
        environment is wrapped in `Skills`, whose options may follow, as in
        `uniform:2,resample_probability=0.02,least_steps=10`.
    - `data`: path of a dataset for offline agents, see `load_data`.
    """

    agent: str
    env: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    sweep: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    pipeline: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    randomize: str | None = None
    skills: str | None = None
    data: str | None = None

    def points(self) -> list[dict[str, Any]]:
        """Return the swept fields of each agent."""
        values = itertools.product(*self.sweep.values())
        return [dict(zip(self.sweep, point)) for point in values]

    def agents(self) -> list[AbstractOnlineAgent]:
        """Return one agent for each point of the sweep.

        **Raises:** `ValueError` if an agent, a field or a value is invalid; `PluginError`
        if the plugin of the agent cannot be used.
        """
        make = self.maker()
        made = [build(make, {**self.settings, **point}) for point in self.points()]
        found: list[AbstractOnlineAgent] = []
        for agent in made:
            if not isinstance(agent, AbstractOnlineAgent):
                raise ValueError(needs_data(self.agent))
            found.append(agent)
        return found

    def maker(self) -> Callable[..., AbstractAgent]:
        """Return the factory of the agent; with a dataset, that of `Offline` around it."""
        make = eqsim.AGENTS.get(self.agent)
        return make if self.data is None else offline_maker(make)

    def recording(self) -> Dataset | None:
        """Load the dataset; None without one.

        **Raises:** `FileNotFoundError` if there is no such file; `ValueError` if it is
        invalid.
        """
        return None if self.data is None else load_data(self.data)

    def environment(self) -> AbstractEnv:
        """Return the environment, without auto-reset.

        **Raises:** `ValueError` if a name or an option is invalid; `PluginError` if a
        plugin cannot be used.
        """
        try:
            env = eqsim.make(self.env, pipeline=self.pipeline, **self.options)
        except TypeError as error:
            raise ValueError(f"Cannot make {self.env!r}: {error}") from error
        env = self._randomized(env)
        return env if self.skills is None else with_skills(env, self.skills)

    def _randomized(self, env: AbstractEnv) -> AbstractEnv:
        if self.randomize is None:
            return env
        found = randomize.presets(self.env.rpartition(":")[2])
        if self.randomize not in found:
            raise ValueError(unknown("No randomization preset", self.randomize, found))
        return DomainRandomization(env, found[self.randomize])

    def complete(self) -> "Recipe":
        """Return the recipe with all fields of the agent, so that it does not depend on
        defaults that change between versions."""
        first = build(self.maker(), self.settings)
        return dataclasses.replace(self, settings=describe(first))


def check_not_imported(folder: Any, recipe: Recipe) -> None:
    """Raise `ValueError` if a recipe that was read from a file names an environment by
    `module:object`: only names given by the user import a module."""
    if is_import_path(recipe.env):
        raise ValueError(
            f"The run in {str(folder)!r} was trained on {recipe.env!r}. Modules named by "
            "files are not imported: if you trust this one, pass the environment, on the "
            f"command line `--env {recipe.env}`, in Python "
            f"`env=eqsim.make({recipe.env!r})`."
        )


def recipe_from_json(stored: Any) -> Recipe:
    """Make the recipe that a file describes.

    **Arguments:**

    - `stored`: the fields of a `Recipe` by name, as JSON reads them.

    **Raises:** `ValueError` if a field does not exist or has another type.
    """
    names = [field.name for field in dataclasses.fields(Recipe)]
    if not isinstance(stored, dict) or not {"agent", "env"} <= {*stored} <= {*names}:
        raise ValueError(f"a recipe has the fields {', '.join(names)}")
    for name, value in stored.items():
        if name in ("settings", "sweep", "options"):
            if not isinstance(value, dict):
                raise ValueError(
                    f"`{name}` must be a dictionary of values by name, got {value!r}"
                )
        elif not isinstance(value, str) and (
            value is not None or name in ("agent", "env")
        ):
            raise ValueError(f"`{name}` must be text, got {value!r}")
    for name, values in stored.get("sweep", {}).items():
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"`sweep[{name!r}]` must be a list of values, got {values!r}"
            )
    return Recipe(**stored)


CONFIG, LAST, BEST = "config.json", "last.ckpt", "best.ckpt"
VIDEOS = "videos"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Destination of a run, for `train(out=...)`.

    **Arguments:**

    - `path`: folder for metrics, curves and the checkpoints `last.ckpt` and `best.ckpt`.
    - `overwrite`: true to delete a run in that folder.
    - `recipe`: names and settings from which `resume` rebuilds agent and environment.
    """

    path: str | os.PathLike
    overwrite: bool = False
    recipe: Recipe | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """A run loaded from its folder.

    **Arguments:**

    - `folder`: folder of the run.
    - `members`: agents; `members.agent(0)` is the first.
    - `env`: environment without auto-reset; None for training on a dataset alone.
    - `plan`: training plan.
    - `recipe`: names and settings of the run; None if it was started with objects.
    - `data`: dataset; None for training in an environment.
    - `state`: state of all members, with a member axis if there are several; see
        `members.pick`.
    - `about`: metadata of the checkpoint: `counters`, `agents` and `env`.
    """

    folder: pathlib.Path
    members: Members
    env: AbstractEnv | None
    plan: Plan
    recipe: Recipe | None
    data: Dataset | None = None
    state: Any = None
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    def environment(self) -> AbstractEnv:
        """Return the environment.

        **Raises:** `ValueError` if the run was trained on a dataset alone.
        """
        if self.env is None:
            raise ValueError(
                f"The run in {str(self.folder)!r} was trained on a dataset without an "
                "environment. Pass `env` to `load_run` to act and to evaluate."
            )
        return self.env
