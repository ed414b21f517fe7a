"""Shared data of the checks of one agent: probes, programs and states."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float

from .._policies import AbstractAgent, AbstractOnlineAgent
from ..envs import AbstractEnv
from ._check import NotApplicable
from ._tools import counted_jit
from .probes import action_reward, observed_action_reward, Probe


@counted_jit
def first_state(agent, key, env):
    """Initialize the agent, compiled."""
    return agent.init(key, env)


@counted_jit
def iterate(agent, state, env):
    """Run one iteration of learning, compiled."""
    return agent.iterate(state, env)


@eqx.filter_jit
def act(agent, state, obs, key):
    """Compute an action, compiled."""
    return agent.act(state, obs, key=key)


@eqx.filter_jit
def mean_reward(agent, state, env):
    """Compute the mean reward of deterministic actions in a probe."""
    return env.mean_reward(lambda obs: agent.act(state, obs))


WRAP = "__eqsim_wrap__"
"""Static method of an agent class that wraps an environment so that the agent can act
in it. The agent then learns from another reward than that of the probe."""


class AgentKit:
    """An agent, and quantities that are computed when a check first needs them."""

    def __init__(
        self, agent: AbstractAgent, iterations: int, build: Callable[[], Any] | None
    ):
        self.agent, self.iterations, self.build = agent, iterations, build
        self.keys = jr.split(jr.key(0), 3)

    @ft.cached_property
    def wrap(self) -> Callable[[AbstractEnv], AbstractEnv] | None:
        """Return the function that wraps a probe for this agent; None if it needs no
        wrapper."""
        for cls in type(self.agent).__mro__:
            if WRAP in vars(cls):
                return vars(cls)[WRAP].__func__
        return None

    def probe(self, probe: Probe) -> AbstractEnv:
        """Return a probe with the wrappers that the agent needs."""
        return probe if self.wrap is None else self.wrap(probe)

    @ft.cached_property
    def env(self) -> AbstractEnv:
        """A probe whose reward depends on the action."""
        return self.probe(action_reward())

    @ft.cached_property
    def observed(self) -> AbstractEnv:
        """A probe whose best action depends on the observation."""
        return self.probe(observed_action_reward())

    def online(self) -> AbstractOnlineAgent:
        """Return the agent, if it collects its own data."""
        if not isinstance(self.agent, AbstractOnlineAgent):
            raise NotApplicable(
                f"`{type(self.agent).__name__}` has no `iterate`, and the batches of its "
                "`update` are unknown"
            )
        return self.agent

    @ft.cached_property
    def first(self) -> Any:
        """The state of the untrained agent."""
        return first_state(self.agent, self.keys[0], self.env)

    @ft.cached_property
    def second(self) -> tuple[Any, dict[str, Array]]:
        """State and metrics after one iteration."""
        return iterate(self.online(), self.first, self.env)

    @property
    def state(self) -> Any:
        """A state, after one iteration if the agent has `iterate`."""
        online = isinstance(self.agent, AbstractOnlineAgent)
        return self.second[0] if online else self.first

    @ft.cached_property
    def obs(self) -> Float[Array, " nobs"]:
        """An observation."""
        return self.env.reset(self.keys[0])[1].obs
