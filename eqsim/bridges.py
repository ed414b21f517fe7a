"""Parts that adapters to other libraries share: checks of arguments and keys, checks and
randomization of environments, and compiled functions for libraries that call one step
at a time."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
from jaxtyping import PRNGKeyArray

from ._errors import (
    check_count as check_count,
    check_key as check_key,
    check_type as check_type,
    is_key as is_key,
    typed_key as typed_key,
)
from .envs import AbstractEnv
from .model import System
from .randomize import presets
from .wrappers import (
    AbstractCarryOver,
    AbstractWrapper,
    DomainRandomization,
    Lifetime,
    nested_envs,
)


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


def carries_over(env: AbstractEnv) -> bool:
    """Return true if the end of an episode decides how the next one starts, as with a
    curriculum: a library that starts episodes itself calls
    `eqsim.wrappers.next_episode`."""
    return any(isinstance(held, AbstractCarryOver) for held in nested_envs(env))


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


class CompiledEnv:
    """Compiled functions of an environment, for libraries that call one step at a time.

    Passing a tree of modules to a compiled function is slow, so the environment is
    flattened once. Environments that differ only in values share compiled programs.

    Pickling and copying keep the environment; an unpickled object compiles again.

    **Arguments:**

    - `env`: the environment.

    **Attributes:**

    - `arrays`: array leaves of the environment.

    !!! example

        ```python
        compiled = CompiledEnv(eqsim.make("point_mass"))
        state, timestep = compiled(lambda env, key: env.reset(key), jax.random.key(0))
        ```
    """

    def __init__(self, env: AbstractEnv):
        self._env = env
        leaves, treedef = jtu.tree_flatten(env)
        self.arrays = [x for x in leaves if eqx.is_array(x)]
        static = tuple(_ARRAY if eqx.is_array(x) else x for x in leaves)
        self._static = _Static(treedef, static)

    def __call__(self, function: Callable, *args: Any) -> Any:
        """Call `function(env, *args)`, compiled once for each function and shapes."""
        return _call(function, self._static, self.arrays, *args)

    def __reduce__(self) -> tuple[type, tuple]:
        # The cached hash is valid only in this process.
        return CompiledEnv, (self._env,)


_ARRAY = object()


class _Static:
    """Parts of an environment that are not arrays, with a cached hash."""

    def __init__(self, treedef: Any, leaves: tuple):
        self.treedef, self.leaves = treedef, leaves
        self._hash = hash((treedef, leaves))

    def env(self, arrays: Sequence[Any]) -> AbstractEnv:
        left = iter(arrays)
        leaves = [next(left) if x is _ARRAY else x for x in self.leaves]
        return jtu.tree_unflatten(self.treedef, leaves)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, _Static) and (self.treedef, self.leaves) == (
            other.treedef,
            other.leaves,
        )


@ft.partial(jax.jit, static_argnums=(0, 1))
def _call(function: Callable, static: _Static, arrays: list, *args: Any) -> Any:
    return function(static.env(arrays), *args)
