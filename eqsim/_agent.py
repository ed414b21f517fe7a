"""Interface of agents, so that one training loop works for all of them."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

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
    ) -> Float[Array, " nu"]:
        """Compute the action for one observation.

        **Arguments:**

        - `state`: state from `init`, `update` or `iterate`.
        - `obs`: observation of one environment; use `jax.vmap` for many.
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
