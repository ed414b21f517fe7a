"""Policies with memory: networks of an actor-critic, and the controller that acts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractController, State

from .._actions import squash
from .._distributions import log_slope, Normal
from .._encoding import EncodedNetwork, Eyes
from .._encoding_agent import AbstractEncodingAgent
from .._networks import Activation
from .._replay import Transition
from .._statistics import normalize, ObservationStatistics
from ._networks import RecurrentNetwork


class Inputs(eqx.Module):
    """Inputs of a policy with memory in one step.

    **Arguments:**

    - `obs`: normalized observation: a vector, an image, or a dictionary of both.
    - `action`: previous action, between -1 and 1; zeros at the start of an episode.
    """

    obs: Any
    action: Float[Array, "*rows nu"]


class Sequence(eqx.Module):
    """Consecutive steps of one environment, of one episode or several.

    **Arguments:**

    - `inputs`: normalized observations and previous actions. Images are not encoded, so
        that gradients of each update reach the encoder.
    - `begins`: true for the first step of an episode.
    - `policy_memory`, `value_memory`: hidden states of policy and value network before
        the first step.
    """

    inputs: Inputs
    begins: Bool[Array, "*rows time"]
    policy_memory: Float[Array, "*rows size"]
    value_memory: Float[Array, "*rows size"]


class ActorMemory(eqx.Module):
    """Memory of a `RecurrentActor`: `hidden` state of the policy network, and previous
    `action`, between -1 and 1."""

    hidden: Float[Array, "*rows size"]
    action: Float[Array, "*rows nu"]


class RecurrentActorCritic(eqx.Module):
    r"""Policy and value networks with memories of their own, and a normal policy whose
    standard deviation does not depend on the observation.

    Inputs of both are the features of the normalized observation and the previous action
    as $\tanh(u)$; zeros at the start of an episode. The features of a vector are the
    vector itself; policy and value have encoders of their own.

    **Arguments:**

    - `policy`: network to the mean $u$ of actions before squashing.
    - `log_std`: logarithm of the standard deviation before squashing.
    - `value`: network to values.
    - `policy_encoder`, `value_encoder`: maps from observations to features.
    """

    policy: RecurrentNetwork
    log_std: Float[Array, " nu"]
    value: RecurrentNetwork
    policy_encoder: Eyes
    value_encoder: Eyes

    @staticmethod
    def create(
        agent: AbstractEncodingAgent,
        keys: tuple[PRNGKeyArray, PRNGKeyArray],
        obs: Any,
        sizes: tuple[int, int],
        hidden: tuple[tuple[int, ...], tuple[int, ...]],
        activation: Activation,
        initial_log_std: Float[Array, ""],
    ) -> "RecurrentActorCritic":
        """Create networks with small initial actions.

        **Arguments:**

        - `agent`: agent with the encoder.
        - `keys`, `hidden`: random keys, and hidden layer sizes of the heads, of policy and
            value.
        - `obs`: an observation, of which shapes and types matter.
        - `sizes`: sizes of actions and hidden states.
        """
        (nu, memory), dtype = sizes, initial_log_std.dtype

        def network(layers, scale):
            return lambda key, size: RecurrentNetwork.create(
                key,
                size + nu,
                memory,
                layers,
                activation.function,
                last_scale=scale,
                dtype=dtype,
            )

        policy, value = network((*hidden[0], nu), 0.01), network((*hidden[1], 1), 1.0)
        policy_encoder, policy = _split(
            agent.actor_encoded(keys[0], obs, policy, dtype)
        )
        value_encoder, value = _split(agent.critic_encoded(keys[1], obs, value, dtype))
        log_std = jnp.zeros(nu, dtype) + initial_log_std
        return RecurrentActorCritic(
            policy, log_std, value, policy_encoder, value_encoder
        )

    def mean(
        self, memory: Float[Array, " size"], inputs: Inputs
    ) -> tuple[Float[Array, " size"], Float[Array, " nu"]]:
        """Compute the hidden state of the policy after a step, and the mean action before
        squashing."""
        return self.policy(memory, _features(self.policy_encoder, inputs))

    def log_prob(
        self, steps: Sequence, action: Float[Array, "time nu"]
    ) -> Float[Array, " time"]:
        """Compute log-densities of actions before squashing."""
        mean = self._means(steps)
        density = lambda mean, action: Normal(mean, self.log_std).log_prob(action)
        return jax.vmap(density)(mean, action)

    def evaluate(
        self,
        steps: Sequence,
        action: Float[Array, "time nu"],
        bounded: Bool[Array, " nu"],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, " time"], Float[Array, " time"], Float[Array, " time"]]:
        """Compute log-densities of actions before squashing, entropies and values.

        **Arguments:**

        - `bounded`: true for actuators whose action is squashed by tanh; the entropy of
            those is estimated from one draw.
        """
        mean, (_, value) = self._means(steps), self._values(steps)

        def one(mean, action, key):
            normal = Normal(mean, self.log_std)
            slope = jnp.where(bounded, log_slope(normal.sample(key)), 0.0)
            return normal.log_prob(action), normal.entropy() + jnp.sum(slope)

        keys = jr.split(key, mean.shape[0])
        return *jax.vmap(one)(mean, action, keys), value[:, 0]

    def values(
        self, steps: Sequence, next_inputs: Inputs
    ) -> tuple[Float[Array, " time"], Float[Array, " time"], Float[Array, " size"]]:
        """Compute values of the observations before and after each step, and the hidden
        state of the value network after the last one.

        The value after a step continues from the hidden state before it, also where the
        episode ends.

        **Arguments:**

        - `next_inputs`: normalized observations after each step, before a reset, and its
            action.
        """
        memories, value = self._values(steps)
        later = jax.vmap(lambda x: _features(self.value_encoder, x))(next_inputs)
        _, next_value = jax.vmap(self.value)(memories, later)
        return value[:, 0], next_value[:, 0], memories[-1]

    def _means(self, steps: Sequence) -> Float[Array, "time nu"]:
        seen = jax.vmap(lambda x: _features(self.policy_encoder, x))(steps.inputs)
        return self.policy.unroll(steps.policy_memory, seen, steps.begins)[1]

    def _values(
        self, steps: Sequence
    ) -> tuple[Float[Array, "time size"], Float[Array, "time 1"]]:
        seen = jax.vmap(lambda x: _features(self.value_encoder, x))(steps.inputs)
        return self.value.unroll(steps.value_memory, seen, steps.begins)


def _split(network: Any) -> tuple[Eyes, RecurrentNetwork]:
    """Separate the encoder of a network, if it has one, as the memory is after it."""
    if isinstance(network, EncodedNetwork):
        return Eyes(network.senses), network.network
    return Eyes(None), network


def _features(eyes: Eyes, inputs: Inputs) -> Float[Array, " features"]:
    return jnp.concatenate([eyes(inputs.obs), inputs.action])


def sequences(
    statistics: ObservationStatistics | None,
    steps: Transition,
    memory: ActorMemory,
    value_memory: Float[Array, "envs size"],
) -> tuple[Sequence, Inputs]:
    """Build the inputs of an actor-critic from collected steps.

    **Arguments:**

    - `statistics`: running statistics of observations.
    - `steps`: transitions with axes (environment, time), actions before squashing.
    - `memory`, `value_memory`: memories before the first step; zeros at the start of an
        episode.

    **Returns:** the steps, and the inputs after each step, as `next_inputs` of
    `RecurrentActorCritic.values`.
    """
    seen = jax.vmap(jax.vmap(lambda obs: normalize(statistics, obs)))
    ended, taken = steps.done[:, :-1], jnp.tanh(steps.action)
    begins = jnp.concatenate([jnp.zeros_like(steps.done[:, :1]), ended], axis=1)
    last = jnp.where(ended[..., None], 0.0, taken[:, :-1])
    before = jnp.concatenate([memory.action[:, None], last], axis=1)
    inputs, next_inputs = Inputs(seen(steps.obs), before), seen(steps.next_obs)
    found = Sequence(inputs, begins, memory.hidden, value_memory)
    return found, Inputs(next_inputs, taken)


class RecurrentActor(AbstractController):
    """Policy of a `RecurrentActorCritic`, with its memory.

    **Arguments:**

    - `networks`: policy and value networks.
    - `statistics`: running statistics of observations.
    - `bounds`: action range; None for actions before squashing.
    - `sample`: true for samples, false for the mean.
    """

    networks: RecurrentActorCritic
    statistics: ObservationStatistics | None
    bounds: Float[Array, "nu 2"] | None
    sample: bool = eqx.field(static=True)

    def init(self, state: State, key: PRNGKeyArray) -> ActorMemory:
        """Return zeros."""
        return self.first_memory()

    def act(
        self, memory: ActorMemory, state: State, obs: Any, key: PRNGKeyArray
    ) -> tuple[ActorMemory, Float[Array, " nu"]]:
        """Compute an action from the observation and the memory; `state` is not read."""
        return self.next_action(memory, obs, key)

    def first_memory(self) -> ActorMemory:
        """Return the memory at the start of an episode: zeros."""
        none = jnp.zeros_like(self.networks.log_std)
        return ActorMemory(self.networks.policy.first_memory(), none)

    def next_action(
        self, memory: ActorMemory, obs: Any, key: PRNGKeyArray | None
    ) -> tuple[ActorMemory, Float[Array, " nu"]]:
        """Compute the memory after a step, and the action. The key may be None without
        `sample`."""
        inputs = Inputs(normalize(self.statistics, obs), memory.action)
        hidden, mean = self.networks.mean(memory.hidden, inputs)
        normal = Normal(mean, self.networks.log_std)
        u = normal.sample(key) if self.sample and key is not None else normal.mode()
        action = u if self.bounds is None else squash(self.bounds, u)
        return ActorMemory(hidden, jnp.tanh(u)), action
