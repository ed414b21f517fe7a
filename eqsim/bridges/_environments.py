from collections.abc import Callable
from typing import Any

from jaxtyping import PRNGKeyArray

from .._errors import check_type
from ..envs import AbstractEnv
from ..model import System
from ..randomize import presets
from ..wrappers import AbstractWrapper, DomainRandomization, Lifetime, nested_envs


Randomizer = Callable[[PRNGKeyArray, System], System]
"""Function `(key, sys) -> sys` that draws a robot."""


def check_no_auto_reset(env: Any, library: str, instead: str = "") -> None:
    """Raise an error unless `env` is an environment that the caller resets.

    **Arguments:**

    - `env`: the environment.
    - `library`: name of the library that resets it.
    - `instead`: end of the message: features of the library to use instead.

    **Raises:** `TypeError` if `env` is not an environment; `ValueError` if it contains
    a wrapper whose state is kept over episodes, such as `AutoReset`.
    """
    make = "Create one with `eqsim.make(name)`."
    check_type("env", env, AbstractEnv, "an environment of eqsim", make)
    for held in nested_envs(env):
        if isinstance(held, AbstractWrapper) and held.lifetime is Lifetime.RUN:
            raise ValueError(
                f"The state of `{type(held).__name__}` is kept across episodes, but "
                f"{library} starts episodes itself. Leave it out{instead}."
            )


def randomized(
    env: AbstractEnv, randomize: Randomizer | str | None, name: str = ""
) -> AbstractEnv:
    """Wrap an environment in `DomainRandomization`, unless `randomize` is None.

    **Arguments:**

    - `env`: the environment.
    - `randomize`: function `(key, sys) -> sys`, or the name of a preset.
    - `name`: name of the environment in `eqsim.ENVS`, to which presets belong.

    **Raises:** `ValueError` for an unknown preset.
    """
    if isinstance(randomize, str):
        known = presets(name)
        if randomize not in known:
            raise ValueError(
                f"`randomize` is {randomize!r}, but there is no such preset. Presets: "
                f"{', '.join(known) or 'none'}; or pass a function (key, sys) -> sys."
            )
        randomize = known[randomize]
    return env if randomize is None else DomainRandomization(env, randomize)
