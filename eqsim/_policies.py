"""Interfaces of policies with memory and of agents."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .envs import AbstractEnv, Timestep
from .model import State


class AbstractController(eqx.Module):
    """A policy that reads the state of the robot and has a memory.

    `eqsim.rollout` accepts a controller in place of `(obs, key) -> action`. It calls
    `init` at the start of a rollout and `act` in every control step. With `AutoReset`,
    it also calls `init` at the start of every new episode.
    """

    @abc.abstractmethod
    def init(self, state: State, key: PRNGKeyArray) -> Any:
        """Compute the memory before the first step.

        **Arguments:**

        - `state`: the first state of the robot.
        - `key`: key of `jax.random.key`.

        **Returns:** arrays in any structure, which are passed to `act`.
        """

    @abc.abstractmethod
    def act(
        self, memory: Any, state: State, obs: Any, key: PRNGKeyArray
    ) -> tuple[Any, Float[Array, " nu"]]:
        """Compute an action.

        **Arguments:**

        - `memory`: memory from `init` or from the last call.
        - `state`: state of the robot.
        - `obs`: observation of the environment.
        - `key`: key, different in every step.

        **Returns:** the new memory and the action.
        """


def renewed(
    controller: AbstractController,
    env: AbstractEnv,
    memory: Any,
    state: Any,
    timestep: Timestep,
    key: PRNGKeyArray,
) -> Any:
    """Compute the memory after a step, initialized again if `AutoReset` started an
    episode.

    **Arguments:**

    - `controller`, `env`: the controller and its environment.
    - `memory`: memory after the step.
    - `state`, `timestep`: results of the step of the environment.
    - `key`: key for `init`.
    """
    if timestep.final_obs is None:
        return memory
    begins = timestep.done | timestep.first
    # `vmap` executes both sides of a branch, and `init` may be expensive. The loop
    # body runs only if an environment of the batch starts an episode.
    none = jnp.zeros_like(begins)
    begin = lambda _: (none, controller.init(env.physics(state), key))
    return lax.while_loop(lambda now: now[0], begin, (begins, memory))[1]


class AbstractAgent(eqx.Module):
    """A learning algorithm. Its fields are hyperparameters.

    Real-valued hyperparameters are arrays, so `eqx.filter_vmap` can train several
    agents with different values in one program. Everything that is learned or
    remembered is part of the agent's state, a pytree of its own type: networks,
    optimizer states, statistics, keys and counters, all of it arrays or static.
    """

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> Any:
        """Create the state of an untrained agent.

        **Arguments:**

        - `key`: key of `jax.random.key`; equal keys give equal states.
        - `env`: environment in which the agent acts; an agent that learns from datasets
            reads only its sizes and bounds.

        **Raises:** `ValueError` if the agent does not support the environment.
        """

    @abc.abstractmethod
    def act(
        self, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*batch nu"]:
        """Compute the action for one observation; the agents of eqsim-zoo also take
        observations with leading batch axes, which the actions then have too.

        **Arguments:**

        - `state`: state of one agent with one seed, from `init`, `iterate`, or an `update`
            that takes the whole state.
        - `obs`: observation of one environment, or a batch. An agent with memory acts as
            in the first step of an episode. For a batch and an agent of a plugin that
            takes none, use `jax.vmap`.
        - `key`: key to sample an action, as in training; without a key, the action is
            deterministic.
        """

    @abc.abstractmethod
    def update(
        self, learner: Any, batch: Any, /
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        """Update the agent from a batch.

        **Arguments:**

        - `learner`: the state from `init`, or the part of it that is learned, as the agent
            documents. Off-policy agents of eqsim-zoo take `state.learner`, without
            environments and replay.
        - `batch`: data of a type that the agent documents.

        **Returns:** the new `learner`, of the same structure, and metrics: numbers by
        name.
        """


class AbstractOnlineAgent(AbstractAgent):
    """An agent that collects its own data."""

    @abc.abstractmethod
    def iterate(
        self, state: Any, env: AbstractEnv
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        """Collect data and learn once. Compile this method and call it repeatedly.

        **Arguments:**

        - `state`: state from `init`, which includes the environments that are stepped.
        - `env`: environment given to `init`.

        **Returns:** the new state, of the same structure, and metrics: numbers of shape
        () by name. `steps` is the number of control steps of this call, over all
        environments; if an agent does not report it, calls are counted instead.
        `return` and `length` are means over the episodes that ended in this call; if
        none ended, the last known values, and NaN before the first.
        """


class AbstractRecurrentAgent(AbstractAgent):
    """An agent whose policy has a memory, such as the hidden state of a recurrent network.

    `act` has no memory: it acts as in the first step of an episode. Every later step
    needs the policy that `controller` returns; `agent_policy` returns it for any agent.
    """

    @abc.abstractmethod
    def controller(self, state: Any, *, sample: bool = False) -> AbstractController:
        """Create the policy with its memory, for `eqsim.rollout`.

        The first action of the controller is that of `act`.

        **Arguments:**

        - `state`: state from `init` or `iterate`.
        - `sample`: True to sample actions, as in training.
        """


class _Policy(eqx.Module):
    """Policy of an agent without memory."""

    agent: AbstractAgent
    state: Any
    sample: bool = eqx.field(static=True)

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, "*batch nu"]:
        return self.agent.act(self.state, obs, key=key if self.sample else None)


def agent_policy(
    agent: AbstractAgent, state: Any, *, sample: bool = False
) -> Callable[[Any, PRNGKeyArray], Float[Array, " nu"]] | AbstractController:
    """Create the policy of an agent for `eqsim.rollout`.

    **Arguments:**

    - `agent`, `state`: the agent and its state.
    - `sample`: True to sample actions, as in training; by default, actions are
        deterministic.

    **Returns:** `agent.controller(state)` for an `AbstractRecurrentAgent`; for other
    agents a module `(obs, key) -> action` that calls `agent.act`.
    """
    if isinstance(agent, AbstractRecurrentAgent):
        return agent.controller(state, sample=sample)
    return _Policy(agent, state, sample)
