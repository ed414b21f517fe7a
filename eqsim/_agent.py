"""Interface of agents, so that one training loop works for all of them."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from ._controller import AbstractController
from .envs import AbstractEnv


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

        - `state`: state from `init`, `update` or `iterate`, of one member.
        - `obs`: observation of one environment, or a batch. An agent with memory acts as
            in the first step of an episode. For a batch and an agent of a plugin that
            takes none, use `jax.vmap`.
        - `key`: key to sample an action, as in training; without a key, the action is
            deterministic.
        """

    @abc.abstractmethod
    def update(
        self, state: Any, batch: Any
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        """Update the agent from a batch, whose type the agent documents.

        **Returns:** the new state, of the same structure, and metrics: numbers by name.
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

        - `state`: state from `init`, `update` or `iterate`.
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
