"""What the checks of one agent share: probes, programs and states."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float

from .._agent import AbstractAgent, AbstractOnlineAgent
from ..envs import AbstractEnv
from ._check import NotApplicable
from ._tools import counted_jit
from .probes import action_reward, observed_action_reward, Probe


@counted_jit
def first_state(agent, key, env):
    """A state before anything is learned, compiled."""
    return agent.init(key, env)


@counted_jit
def iterate(agent, state, env):
    """A turn of learning, compiled."""
    return agent.iterate(state, env)


@eqx.filter_jit
def act(agent, state, obs, key):
    """An action, compiled."""
    return agent.act(state, obs, key=key)


@eqx.filter_jit
def mean_reward(agent, state, env):
    """What the agent gets of a probe, without drawing actions."""
    return env.mean_reward(lambda obs: agent.act(state, obs))


WRAP = "__eqsim_wrap__"
"""Of the class of an agent, a static method: the wrapper in which it can act, around an
environment. What it learns is then not the reward of a probe."""


class AgentKit:
    """An agent, and what is computed of it when a check first asks for it."""

    def __init__(
        self, agent: AbstractAgent, iterations: int, build: Callable[[], Any] | None
    ):
        self.agent, self.iterations, self.build = agent, iterations, build
        self.keys = jr.split(jr.key(0), 3)

    @ft.cached_property
    def wrap(self) -> Callable[[AbstractEnv], AbstractEnv] | None:
        """How a probe must be wrapped for this agent; None if it takes it as it is."""
        for cls in type(self.agent).__mro__:
            if WRAP in vars(cls):
                return vars(cls)[WRAP].__func__
        return None

    def probe(self, probe: Probe) -> AbstractEnv:
        """A probe, in the wrapper that the agent needs."""
        return probe if self.wrap is None else self.wrap(probe)

    @ft.cached_property
    def env(self) -> AbstractEnv:
        """A probe whose reward depends on the action."""
        return self.probe(action_reward())

    @ft.cached_property
    def observed(self) -> AbstractEnv:
        """A probe whose best action depends on what is seen."""
        return self.probe(observed_action_reward())

    def online(self) -> AbstractOnlineAgent:
        """The agent, if it collects what it learns from."""
        if not isinstance(self.agent, AbstractOnlineAgent):
            raise NotApplicable(
                f"`{type(self.agent).__name__}` has no `iterate`, and only itself knows "
                "the batches that `update` takes"
            )
        return self.agent

    @ft.cached_property
    def first(self) -> Any:
        """A state before anything is learned."""
        return first_state(self.agent, self.keys[0], self.env)

    @ft.cached_property
    def second(self) -> tuple[Any, dict[str, Array]]:
        """The state after one turn, and what it reported."""
        return iterate(self.online(), self.first, self.env)

    @property
    def state(self) -> Any:
        """A state, after one turn if the agent can take one."""
        online = isinstance(self.agent, AbstractOnlineAgent)
        return self.second[0] if online else self.first

    @ft.cached_property
    def obs(self) -> Float[Array, " nobs"]:
        """Something to see."""
        return self.env.reset(self.keys[0])[1].obs
