"""What wrappers share."""

import abc
import enum
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..envs import AbstractEnv, check_action, ResetOptions, Timestep
from ..model import State, System
from ..pipelines import AbstractPipeline


class Lifetime(enum.Enum):
    """Of what a wrapper adds: it is the same at every step; it begins anew with each
    episode; it outlives episodes."""

    NONE = enum.auto()
    EPISODE = enum.auto()
    RUN = enum.auto()


class AbstractWrapper(AbstractEnv):
    """An environment around another one, `env`, whose robot and pipeline it has.

    **Raises:** `ValueError` if what belongs to one episode holds what outlives episodes.
    """

    env: eqx.AbstractVar[AbstractEnv]

    @property
    @abc.abstractmethod
    def lifetime(self) -> Lifetime:
        """How long what it adds lives."""

    @property
    def sys(self) -> System:
        """The robot of the environment inside."""
        return self.env.sys

    @property
    def pipeline(self) -> AbstractPipeline:
        """The physics of the environment inside."""
        return self.env.pipeline

    def __check_init__(self):
        check_env(self, self.env)
        if self.lifetime is Lifetime.EPISODE:
            refuse_run(self)


def check_env(holder: AbstractEnv, env: Any) -> None:
    """Raises `TypeError` unless `env` is an environment."""
    if not isinstance(env, AbstractEnv):
        raise TypeError(
            f"`{type(holder).__name__}` is around an environment, but got {env!r}."
        )


def refuse_run(holder: AbstractWrapper) -> None:
    """Raises `ValueError` if anything that `holder` holds outlives episodes."""
    own = type(holder).__name__
    for held in layers(holder.env):
        if isinstance(held, AbstractWrapper) and held.lifetime is Lifetime.RUN:
            name = type(held).__name__
            raise ValueError(
                f"`{own}` is around `{name}`, but what it does belongs to one episode, and "
                f"`{name}` goes on over many. Write `{name}({own}(...))`."
            )


class AbstractStateful(AbstractWrapper):
    """A wrapper with a state of its own, in which `inner` is that of the environment it
    holds; time and actions are as they were."""

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self.env.action_range

    def physics(self, state: Any) -> State:
        return self.env.physics(state.inner)


class AbstractStateless(AbstractWrapper):
    """A wrapper whose state is that of the environment it holds."""

    def physics(self, state: Any) -> State:
        return self.env.physics(state)


class AbstractReport(AbstractStateless):
    """A wrapper that changes what is reported of an episode, and nothing else."""

    @abc.abstractmethod
    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        """What to report of a state in which `action` is held; after a reset, zeros."""

    @property
    def lifetime(self) -> Lifetime:
        # Behind a reset it would report the next episode.
        return Lifetime.EPISODE

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self.env.action_range

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[Any, Timestep]:
        state, timestep = self.env.reset(key, options)
        rest = jnp.zeros(self.sys.nu, self.physics(state).q.dtype)
        return state, self.report(state, rest, timestep)

    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        check_action(self, action)
        state, timestep = self.env.step(state, action)
        return state, self.report(state, action, timestep)


def layers(env: AbstractEnv) -> Iterator[AbstractEnv]:
    """The environment and all those that it holds, from the outside to the task."""
    yield env
    while isinstance(env, AbstractWrapper):
        env = env.env
        yield env


def vector_size(holder: AbstractEnv, env: AbstractEnv) -> int:
    """The number of entries of an observation of `env`.

    **Raises:** `ValueError` if it is no vector of floating point numbers.
    """
    _, timestep = eqx.filter_eval_shape(env.reset, jr.key(0))
    obs = timestep.obs
    if len(obs.shape) != 1 or not jnp.issubdtype(obs.dtype, jnp.floating):
        raise ValueError(
            f"`{type(holder).__name__}` needs observations that are vectors of floating "
            f"point numbers, but they have shape {obs.shape} and type {obs.dtype}."
        )
    return obs.shape[0]
