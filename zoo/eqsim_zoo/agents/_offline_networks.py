"""Networks of agents that learn from datasets."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.wrappers import RunningStatistics

from ..blocks import (
    Critic,
    DeterministicPolicy,
    Ensemble,
    MLP,
    StochasticPolicy,
)
from ..blocks._heads import (
    ChoiceCritic,
    ChoicePolicy,
    GaussianPolicy,
    select_action,
    StateValue,
)
from ..blocks._levels import Levels
from ..vision import (
    encoded_size,
    EncodedNetwork,
    Encoders,
    init_observation_statistics,
)


class Start:
    """Inputs and outputs for which networks are created.

    **Arguments:**

    - `agent`: agent with the sizes of the networks.
    - `obs`: an observation, of which shapes and types matter.
    - `bounds`: action range.
    """

    def __init__(self, agent: Any, obs: Any, bounds: Float[Array, "nu 2"]):
        self.agent, self.obs, self.bounds = agent, obs, bounds

    @property
    def nu(self) -> int:
        """Number of actuators."""
        return self.bounds.shape[0]

    def statistics(self) -> dict[str, RunningStatistics] | None:
        """Return initial statistics; None if observations are not normalized."""
        if not self.agent.normalize_observations:
            return None
        return init_observation_statistics(self.obs, self.bounds.dtype)

    def network(
        self,
        key: PRNGKeyArray,
        head: Callable[[PRNGKeyArray, int], Any],
        shared: Encoders | None = None,
    ) -> EncodedNetwork:
        """Create a network with its own encoder, or with a shared one.

        **Arguments:**

        - `head`: `(key, features) -> network`.
        """
        key_eyes, key_head = jr.split(key)
        dtype = self.bounds.dtype
        if shared is not None and self.agent.shared_encoder:
            return EncodedNetwork(
                Encoders({}), head(key_head, encoded_size(shared, self.obs))
            )
        senses = Encoders.create(key_eyes, self.obs, self.agent.encoder, dtype)
        return EncodedNetwork(senses, head(key_head, encoded_size(senses, self.obs)))

    def mlp(
        self,
        key: PRNGKeyArray,
        inputs: int,
        outputs: int,
        last_scale: float = 1.0,
        plain: bool = False,
    ) -> MLP:
        """Create a network with the layer sizes of the agent; a `plain` one never has
        layer normalization."""
        return MLP.create(
            key,
            (inputs, *self.agent.hidden, outputs),
            last_scale=last_scale,
            layer_norm=self.agent.layer_norm and not plain,
            dtype=self.bounds.dtype,
        )

    def critic(
        self, key: PRNGKeyArray, number: int = 2, levels: int = 0
    ) -> EncodedNetwork:
        """Create a network of action values, for continuous actions or for levels."""
        if levels:
            table = Levels(levels, self.nu)
            make = lambda n: lambda key: self.mlp(key, n, table.count)
            return self.network(
                key,
                lambda key, n: ChoiceCritic(
                    Ensemble.create(key, number, make(n)), table
                ),
            )
        head = lambda key, n: Critic.create(
            key,
            n,
            self.nu,
            self.agent.hidden,
            number=number,
            layer_norm=self.agent.layer_norm,
            dtype=self.bounds.dtype,
        )
        return self.network(key, head)

    def actor(
        self, key: PRNGKeyArray, levels: int = 0, shared: Encoders | None = None
    ) -> EncodedNetwork:
        """Create a normal policy, or a categorical one over levels."""
        if levels:
            table = Levels(levels, self.nu)
            head = lambda key, n: ChoicePolicy(
                self.mlp(key, n, table.count, 0.01), table
            )
            return self.network(key, head, shared)
        zeros = jnp.zeros_like(self.bounds[:, 0])
        head = lambda key, n: GaussianPolicy(self.mlp(key, n, self.nu, 0.01), zeros)
        return self.network(key, head, shared)

    def deterministic(
        self, key: PRNGKeyArray, shared: Encoders | None = None
    ) -> EncodedNetwork:
        """Create a deterministic policy."""
        head = lambda key, n: DeterministicPolicy(self.mlp(key, n, self.nu, 0.01))
        return self.network(key, head, shared)

    def squashed(
        self, key: PRNGKeyArray, shared: Encoders | None = None
    ) -> EncodedNetwork:
        """Create a policy like that of soft actor-critic, without layer
        normalization."""
        outputs = 2 * self.nu
        head = lambda key, n: StochasticPolicy(self.mlp(key, n, outputs, 0.01, True))
        return self.network(key, head, shared)

    def value(
        self, key: PRNGKeyArray, shared: Encoders | None = None
    ) -> EncodedNetwork:
        """Create a network of state values."""
        return self.network(key, lambda key, n: StateValue(self.mlp(key, n, 1)), shared)


def action_distance(policy: Callable[[Any], Any], obs: Any, action: Array) -> Array:
    """Compute the mean squared difference between actions of the dataset and
    deterministic actions of a policy, summed over actuators."""
    best = jax.vmap(lambda obs: select_action(policy(obs), None))(obs)
    return jnp.mean(jnp.sum((best - action) ** 2, axis=1))
