"""Policies: from observations to actions between -1 and 1."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from ._distributions import Categorical, log_slope, Normal, TanhNormal
from ._encoding_agent import AbstractEncodingAgent
from ._networks import Activation, MLP
from ._statistics import normalize, ObservationStatistics


# Logarithms of the least and the largest deviation.
_LEAST, _LARGEST = -5.0, 2.0


class StochasticPolicy(eqx.Module):
    r"""Tanh-normal policy whose mean and standard deviation depend on the observation.

    **Arguments:**

    - `network`: network with two outputs per actuator: the mean, and a number from which
        the standard deviation follows, between $e^{-5}$ and $e^2$.
    """

    network: MLP

    def __call__(self, obs: Float[Array, " features"]) -> TanhNormal:
        mean, raw = jnp.split(self.network(obs), 2)
        return TanhNormal(Normal(mean, bounded_log_std(raw)))


def bounded_log_std(raw: Float[Array, "*rows nu"]) -> Float[Array, "*rows nu"]:
    r"""Map numbers to logarithms of standard deviations between $e^{-5}$ and $e^2$."""
    return _LEAST + 0.5 * (_LARGEST - _LEAST) * (jnp.tanh(raw) + 1.0)


def sample_actions(
    policy: Callable[[Any], TanhNormal], obs: Any, key: PRNGKeyArray
) -> tuple[Float[Array, "rows nu"], Float[Array, " rows"]]:
    """Sample an action for each row of observations, with its log-density."""
    keys = jr.split(key, jtu.tree_leaves(obs)[0].shape[0])
    return jax.vmap(lambda obs, key: policy(obs).sample_and_log_prob(key))(obs, keys)


class DeterministicPolicy(eqx.Module):
    r"""Deterministic policy: $\tanh$ of the output of a network."""

    network: MLP

    def __call__(self, obs: Float[Array, " nobs"]) -> Float[Array, " nu"]:
        return jnp.tanh(self.network(obs))


class Explorer(eqx.Module):
    """Exploration policy of an off-policy agent.

    **Arguments:**

    - `policy`: stochastic or deterministic policy.
    - `statistics`: running statistics of observations.
    - `noise`: standard deviation of the noise on deterministic actions.
    - `random`: true for uniform actions.
    """

    policy: Callable[[Any], Any]
    statistics: ObservationStatistics | None
    noise: Float[Array, ""]
    random: Bool[Array, ""]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        key, key_random = jr.split(key)
        found = self.policy(normalize(self.statistics, obs))
        if isinstance(found, TanhNormal):
            action, _ = found.sample_and_log_prob(key)
        else:
            action = add_noise(found, self.noise, key)
        uniform = jr.uniform(key_random, action.shape, action.dtype, -1.0, 1.0)
        return jnp.where(self.random, uniform, action)


def add_noise(
    action: Float[Array, " nu"], noise: Float[Array, ""], key: PRNGKeyArray
) -> Float[Array, " nu"]:
    """Add normal noise to an action, clipped to -1 and 1."""
    normal = jr.normal(key, action.shape, action.dtype)
    return jnp.clip(action + noise * normal, -1.0, 1.0)


class ActorCritic(eqx.Module):
    """Policy and value networks: a normal policy whose standard deviation does not depend
    on the observation, or a categorical one over levels.

    **Arguments:**

    - `policy`: network from observations to means, or to logits of levels.
    - `log_std`: logarithm of the standard deviation before squashing; empty with levels.
    - `value`: network from observations to values.
    - `levels`: values of each actuator, evenly from -1 to 1; 0 for continuous actions.
    """

    policy: Callable[[Any], Float[Array, " outputs"]]
    log_std: Float[Array, " nu"]
    value: Callable[[Any], Float[Array, "1"]]
    levels: int = eqx.field(static=True)

    @staticmethod
    def create(
        agent: AbstractEncodingAgent,
        keys: Sequence[PRNGKeyArray],
        obs: Any,
        nu: int,
        hidden: tuple[tuple[int, ...], tuple[int, ...]],
        activation: Activation,
        initial_log_std: Float[Array, ""],
        levels: int = 0,
    ) -> "ActorCritic":
        """Create networks with small initial actions.

        **Arguments:**

        - `agent`: agent with the encoder.
        - `keys`, `hidden`: random keys and hidden layer sizes of policy and value.
        - `obs`: an observation, of which shapes and types matter.
        - `nu`: number of actuators.
        """
        dtype, function = initial_log_std.dtype, activation.function

        def policy(key, size):
            sizes = size, *hidden[0], nu * max(levels, 1)
            return MLP.create(key, sizes, function, last_scale=0.01, dtype=dtype)

        def value(key, size):
            return MLP.create(key, (size, *hidden[1], 1), function, dtype=dtype)

        return ActorCritic(
            agent.actor_encoded(keys[0], obs, policy, dtype),
            jnp.zeros(0 if levels else nu, dtype) + initial_log_std,
            agent.critic_encoded(keys[1], obs, value, dtype),
            levels,
        )

    def distribution(self, obs: Any) -> Normal | Categorical:
        """Return the distribution of actions before squashing, or of levels."""
        out = self.policy(obs)
        if self.levels:
            return Categorical(out.reshape(-1, self.levels))
        return Normal(out, self.log_std)

    def action(self, drawn: Shaped[Array, " nu"]) -> Float[Array, " nu"]:
        """Map a level to a number between -1 and 1; leave continuous actions unchanged."""
        if not self.levels:
            return drawn
        return 2.0 * drawn.astype(self._dtype) / (self.levels - 1) - 1.0

    def drawn(self, action: Float[Array, "*rows nu"]) -> Shaped[Array, "*rows nu"]:
        """Invert `action`."""
        if not self.levels:
            return action
        return jnp.round(0.5 * (action + 1.0) * (self.levels - 1)).astype(jnp.int32)

    def evaluate(
        self,
        obs: Any,
        action: Float[Array, " nu"],
        bounded: Bool[Array, " nu"],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Compute the log-density of an action, the entropy and the value.

        **Arguments:**

        - `bounded`: true for actuators whose action is squashed by tanh; the entropy of
            those is estimated from one draw.
        """
        distribution = self.distribution(obs)
        entropy = distribution.entropy()
        if isinstance(distribution, Normal):
            slope = log_slope(distribution.sample(key))
            entropy = entropy + jnp.sum(jnp.where(bounded, slope, 0.0))
        log_prob = distribution.log_prob(self.drawn(action))
        return log_prob, entropy, self.value(obs)[0]

    @property
    def _dtype(self):
        return self.log_std.dtype


class Actor(eqx.Module):
    """Policy of an `ActorCritic`, with actions before squashing.

    **Arguments:**

    - `networks`: policy and value networks.
    - `statistics`: running statistics of observations.
    """

    networks: ActorCritic
    statistics: ObservationStatistics | None

    def __call__(
        self, obs: Any, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        distribution = self.networks.distribution(normalize(self.statistics, obs))
        drawn = distribution.mode() if key is None else distribution.sample(key)
        return self.networks.action(drawn)
