"""Recipes: names and settings that define an agent and its environment."""

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
from eqsim.envs import is_import_path

from ..data.dataset import Dataset
from ..data.files import load_data
from ._recorded import offline_maker
from ._settings import build, describe, unknown
from ._skill_priors import with_skills


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
