"""Base classes of wrappers.

A wrapper says how long the state that it adds lives (`Lifetime`), and whether it has one
(`AbstractStateful`, with the inner state in `state.inner`) or passes that of the inner
environment on (`AbstractStateless`). `AbstractCarryOver` has a state that decides on the start of
the next episode. `AbstractReport` is a stateless wrapper that changes only the timesteps.
Wrappers that change the time step or the range of actions derive from `AbstractWrapper` itself.
"""

import abc
import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import described
from ..envs import (
    AbstractEnv,
    check_action,
    observation_array,
    reset_options,
    ResetOptions,
    Timestep,
)
from ..model import State, System
from ..pipelines import AbstractPipeline


Options = ResetOptions | Mapping[str, Any] | None
"""Options of `reset`, as an object or a dictionary."""


class Lifetime(enum.Enum):
    """Lifetime of the state that a wrapper adds: constant over steps, reset with each
    episode, or kept over episodes."""

    NONE = enum.auto()
    EPISODE = enum.auto()
    RUN = enum.auto()


class AbstractWrapper(AbstractEnv):
    """A wrapper around another environment, `env`, with the same robot and pipeline.

    - `lifetime`: lifetime of the state that the wrapper adds.

    **Raises:** `ValueError` if a wrapper whose state belongs to one episode contains
    one whose state is kept over episodes.
    """

    env: eqx.AbstractVar[AbstractEnv]
    if TYPE_CHECKING:
        # Type checkers would take an `AbstractClassVar` for an argument of subclasses.
        lifetime: ClassVar[Lifetime]
    else:
        lifetime: eqx.AbstractClassVar[Lifetime]

    @property
    def sys(self) -> System:
        """The robot of the inner environment."""
        return self.env.sys

    @property
    def pipeline(self) -> AbstractPipeline:
        """The physics of the inner environment."""
        return self.env.pipeline

    def __check_init__(self):
        check_env(self, self.env)
        if self.lifetime is Lifetime.EPISODE:
            refuse_run(self)


def check_env(holder: AbstractEnv, env: Any) -> None:
    """Raise `TypeError` unless `env` is an environment."""
    if not isinstance(env, AbstractEnv):
        raise TypeError(
            f"`{type(holder).__name__}` must wrap an environment, got {described(env)}."
        )


def refuse_run(holder: AbstractWrapper) -> None:
    """Raise `ValueError` if any environment in `holder` has a state that is kept over
    episodes."""
    own = type(holder).__name__
    for held in nested_envs(holder.env):
        if isinstance(held, AbstractWrapper) and held.lifetime is Lifetime.RUN:
            name = type(held).__name__
            raise ValueError(
                f"The state of `{own}` belongs to one episode, but it wraps `{name}`, "
                f"whose state is kept across episodes. Write `{name}({own}(...))`."
            )


class AbstractStateful(AbstractWrapper):
    """A wrapper with a state of its own, whose `inner` is the state of the inner
    environment. Time step and actions are those of the inner environment."""

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self.env.action_range

    def physics(self, state: Any) -> State:
        return self.env.physics(state.inner)


class AbstractCarryOver(AbstractStateful):
    """A wrapper whose last state in an episode decides how the next one starts, such as a
    curriculum. `AutoReset` and `next_episode` pass its options to the next reset."""

    @abc.abstractmethod
    def next_options(self, key: PRNGKeyArray, state: Any) -> ResetOptions:
        """Return the options of the next reset, given the last state of an episode."""

    @abc.abstractmethod
    def progress(self, state: Any) -> dict[str, Float[Array, ""]]:
        """Return numbers by name that training reports, such as a level."""


def next_options(
    env: AbstractEnv, key: PRNGKeyArray, state: Any
) -> ResetOptions | None:
    """Return the options of the next reset, given the last state of an episode; None if no
    wrapper decides on them."""
    while isinstance(env, AbstractWrapper):
        if isinstance(env, AbstractCarryOver):
            return env.next_options(key, state)
        if isinstance(env, AbstractStateful):
            state = state.inner
        env = env.env
    return None


_OPTIONS = 0x7FFFFFFF
"""Number of the key of options, which differs from all keys into which a wrapper splits
that of a reset: `split(key)[k]` equals `fold_in(key, k)`."""


def next_episode(
    env: AbstractEnv,
    key: PRNGKeyArray,
    last: Any,
    options: ResetOptions | Mapping[str, Any] | None = None,
) -> tuple[Any, Timestep]:
    """Reset an environment after an episode, with the options of a curriculum if there is
    one.

    **Arguments:**

    - `key`: key of the reset.
    - `last`: last state of the episode.
    - `options`: options that replace those of the curriculum; others remain.
    """
    found = next_options(env, jr.fold_in(key, _OPTIONS), last)
    if options is not None:
        parts = vars(reset_options(options)).items()
        given = {name: value for name, value in parts if value is not None}
        found = dataclasses.replace(reset_options(found), **given)
    return env.reset(key, found)


class AbstractStateless(AbstractWrapper):
    """A wrapper whose state is the state of the inner environment, with its time step and
    its actions."""

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self.env.action_range

    def physics(self, state: Any) -> State:
        return self.env.physics(state)


class AbstractReport(AbstractStateless):
    """A wrapper that only changes the timesteps of an episode."""

    @abc.abstractmethod
    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        """Return the timestep of a state under a constant action; after a reset, the
        action is zero."""

    # Outside an auto-reset, it would change the timestep of the next episode.
    lifetime = Lifetime.EPISODE

    def reset(self, key: PRNGKeyArray, options: Options = None) -> tuple[Any, Timestep]:
        state, timestep = self.env.reset(key, options)
        rest = jnp.zeros(self.sys.nu, self.physics(state).q.dtype)
        return state, self.report(state, rest, timestep)

    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        check_action(self, action)
        state, timestep = self.env.step(state, action)
        return state, self.report(state, action, timestep)


def nested_envs(env: AbstractEnv) -> Iterator[AbstractEnv]:
    """Return the environment and all inner environments, from the outermost to the
    task."""
    yield env
    while isinstance(env, AbstractWrapper):
        env = env.env
        yield env


def vector_size(holder: AbstractEnv, env: AbstractEnv) -> int:
    """Return the number of entries of an observation of `env`.

    **Raises:** `ValueError` if it is not a floating-point vector.
    """
    obs = observation_array(env, f"`{type(holder).__name__}`")
    if len(obs.shape) != 1 or not jnp.issubdtype(obs.dtype, jnp.floating):
        raise ValueError(
            f"`{type(holder).__name__}` needs observations that are vectors of floating "
            f"point numbers, but they have shape {obs.shape} and type {obs.dtype}."
        )
    return obs.shape[0]
