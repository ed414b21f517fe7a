"""Names and numbers from which an agent and its environment can be made again."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import eqsim
from eqsim import (
    AbstractAgent,
    AbstractEnv,
    AbstractOnlineAgent,
    DomainRandomization,
    randomize,
)

from ..data import Dataset, load_data
from ._recorded import offline_maker
from ._settings import build, describe, unknown
from ._skill_priors import with_skills


def needs_data(agent: str) -> str:
    """Message about an agent that is trained without the dataset that it needs."""
    return (
        f"{agent!r} learns from a dataset: it has no `iterate`, and cannot be trained in an "
        "environment alone. Name a dataset (`--data FILE`, which `eqsim record` writes)."
    )


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Of a run, all that can be written down.

    **Arguments:**

    - `agent`, `env`: names out of `eqsim.AGENTS` and `eqsim.ENVS`.
    - `settings`: fields of the agent by name; others have their defaults.
    - `sweep`: values to try by name of field, all combinations of them. Numbers only, as
        all of them learn in one program.
    - `pipeline`: name of the physics; by default what the environment chooses.
    - `options`: of the environment, as of `eqsim.make`.
    - `randomize`: preset by which the robot of each episode is drawn.
    - `skills`: a prior such as `one_hot:5`, `uniform:2` or `normal:2`: with it the
        environment is in `Skills`; fields of that after it, as in
        `uniform:2,resample_probability=0.02,least_steps=10`.
    - `data`: file of a recording, see `load_data`, for agents that learn from one.
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
        """What is swept, by name, of each agent."""
        values = itertools.product(*self.sweep.values())
        return [dict(zip(self.sweep, point)) for point in values]

    def agents(self) -> list[AbstractOnlineAgent]:
        """One agent for each point of the sweep.

        **Raises:** `ValueError` if there is no such agent, or it has no such field, or it
        refuses a value; `PluginError` if it cannot be used.
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
        """What makes the agent from its fields: with a recording, `Offline` around it."""
        make = eqsim.AGENTS.get(self.agent)
        return make if self.data is None else offline_maker(make)

    def recording(self) -> Dataset | None:
        """What it learns from, if that is a recording.

        **Raises:** `FileNotFoundError` if there is no such file; `ValueError` if it can
        not be learned from.
        """
        return None if self.data is None else load_data(self.data)

    def environment(self) -> AbstractEnv:
        """The environment, of one episode.

        **Raises:** `ValueError` if there is no such name, or one that does not go with
        the others; `PluginError` if one cannot be used.
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
            raise ValueError(
                unknown("There is no preset of randomization", self.randomize, found)
            )
        return DomainRandomization(env, found[self.randomize])

    def complete(self) -> "Recipe":
        """The same with all fields of the agent written down, so that a run is made again
        as it was even where defaults have changed since."""
        first = build(self.maker(), self.settings)
        return dataclasses.replace(self, settings=describe(first))


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
                raise ValueError(f"`{name}` is {value!r}: values by name are expected")
        elif not isinstance(value, str) and (
            value is not None or name in ("agent", "env")
        ):
            raise ValueError(f"`{name}` is {value!r}: text is expected")
    for name, values in stored.get("sweep", {}).items():
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"`sweep[{name!r}]` is {values!r}: a list of values is expected"
            )
    return Recipe(**stored)
