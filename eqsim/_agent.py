"""What an agent is, so that one loop trains all of them."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from .envs import AbstractEnv


class AbstractAgent(eqx.Module):
    """A way to learn a policy. Its fields are its hyper-parameters.

    Numbers among them are arrays, so that `eqx.filter_vmap` makes a fleet of agents with
    different ones. What it learns and remembers is its state, a PyTree of its own type:
    networks, states of optimizers, statistics, keys and counters, all of it arrays or
    static.
    """

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> Any:
        """The state before anything is learned.

        **Arguments:**

        - `key`: of `jax.random.key`; equal keys give equal states.
        - `env`: where the agent is to act; an agent that learns from recordings takes
            no more than sizes and bounds from it.

        **Raises:** `ValueError` if the agent can not act there.
        """

    @abc.abstractmethod
    def act(
        self, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        """The action after one observation.

        **Arguments:**

        - `state`: from `init`, `update` or `iterate`.
        - `obs`: of one environment; `jax.vmap` takes many.
        - `key`: to draw an action, as while learning; without one the action is the one
            that the agent thinks best, the same each time.
        """

    @abc.abstractmethod
    def update(
        self, state: Any, batch: Any
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        """Learns from a batch, of the type that the agent documents.

        **Returns:** the new state, of the same structure, and what to report: numbers by
        name.
        """


class AbstractOnlineAgent(AbstractAgent):
    """An agent that collects what it learns from."""

    @abc.abstractmethod
    def iterate(
        self, state: Any, env: AbstractEnv
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        """Collects and learns, once: compile it, and call it again and again.

        **Arguments:**

        - `state`: from `init`, with the environments that it steps.
        - `env`: as given to `init`.

        **Returns:** the new state, of the same structure, and what to report: numbers of
        shape () by name. `steps` is the number of control steps that this call took, in
        all environments; an agent that does not report it is counted in calls.
        `return` and `length` are means over the episodes that ended in this call; where
        none did, those known last, and NaN before the first.
        """
