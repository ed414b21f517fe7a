"""Policies with memory: networks of an actor-critic, and the controller that acts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractController, State
from eqsim.wrappers import Statistics

from .._actions import squash
from .._distributions import log_slope, Normal
from .._networks import Activation
from .._replay import Transition
from .._statistics import normalize
from ._networks import RecurrentNetwork


class Sequence(eqx.Module):
    """Consecutive steps of one environment, of one episode or several.

    **Arguments:**

    - `inputs`: normalized observations and previous actions.
    - `begins`: true for the first step of an episode.
    - `policy_memory`, `value_memory`: hidden states of policy and value network before
        the first step.
    """

    inputs: Float[Array, "*rows time ninput"]
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

    Inputs of both are the normalized observation and the previous action as $\tanh(u)$;
    zeros at the start of an episode.

    **Arguments:**

    - `policy`: network to the mean $u$ of actions before squashing.
    - `log_std`: logarithm of the standard deviation before squashing.
    - `value`: network to values.
    """

    policy: RecurrentNetwork
    log_std: Float[Array, " nu"]
    value: RecurrentNetwork

    @staticmethod
    def create(
        keys: tuple[PRNGKeyArray, PRNGKeyArray],
        sizes: tuple[int, int, int],
        hidden: tuple[tuple[int, ...], tuple[int, ...]],
        activation: Activation,
        initial_log_std: Float[Array, ""],
    ) -> "RecurrentActorCritic":
        """Create networks with small initial actions.

        **Arguments:**

        - `keys`, `hidden`: random keys, and hidden layer sizes of the heads, of policy and
            value.
        - `sizes`: sizes of observations, actions and hidden states.
        """
        nobs, nu, memory = sizes
        create = lambda key, layers, scale: RecurrentNetwork.create(
            key,
            nobs + nu,
            memory,
            layers,
            activation.function,
            last_scale=scale,
            dtype=initial_log_std.dtype,
        )
        return RecurrentActorCritic(
            create(keys[0], (*hidden[0], nu), 0.01),
            jnp.zeros(nu, initial_log_std.dtype) + initial_log_std,
            create(keys[1], (*hidden[1], 1), 1.0),
        )

    def log_prob(
        self, steps: Sequence, action: Float[Array, "time nu"]
    ) -> Float[Array, " time"]:
        """Compute log-densities of actions before squashing."""
        _, mean = self.policy.unroll(steps.policy_memory, steps.inputs, steps.begins)
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
        _, mean = self.policy.unroll(steps.policy_memory, steps.inputs, steps.begins)
        _, value = self.value.unroll(steps.value_memory, steps.inputs, steps.begins)

        def one(mean, action, key):
            normal = Normal(mean, self.log_std)
            slope = jnp.where(bounded, log_slope(normal.sample(key)), 0.0)
            return normal.log_prob(action), normal.entropy() + jnp.sum(slope)

        keys = jr.split(key, mean.shape[0])
        return *jax.vmap(one)(mean, action, keys), value[:, 0]

    def values(
        self, steps: Sequence, next_inputs: Float[Array, "time ninput"]
    ) -> tuple[Float[Array, " time"], Float[Array, " time"], Float[Array, " size"]]:
        """Compute values of the observations before and after each step, and the hidden
        state of the value network after the last one.

        The value after a step continues from the hidden state before it, also where the
        episode ends.

        **Arguments:**

        - `next_inputs`: normalized observations after each step, before a reset, and its
            action.
        """
        memories, value = self.value.unroll(
            steps.value_memory, steps.inputs, steps.begins
        )
        _, next_value = jax.vmap(self.value)(memories, next_inputs)
        return value[:, 0], next_value[:, 0], memories[-1]


def sequences(
    statistics: Statistics | None,
    steps: Transition,
    memory: ActorMemory,
    value_memory: Float[Array, "envs size"],
) -> tuple[Sequence, Float[Array, "envs time ninput"]]:
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
    join = lambda obs, action: jnp.concatenate([seen(obs), action], axis=-1)
    inputs, next_inputs = join(steps.obs, before), join(steps.next_obs, taken)
    return Sequence(inputs, begins, memory.hidden, value_memory), next_inputs


class RecurrentActor(AbstractController):
    """Policy of a `RecurrentActorCritic`, with its memory.

    **Arguments:**

    - `networks`: policy and value networks.
    - `statistics`: running statistics of observations.
    - `bounds`: action range; None for actions before squashing.
    - `sample`: true for samples, false for the mean.
    """

    networks: RecurrentActorCritic
    statistics: Statistics | None
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
        self, memory: ActorMemory, obs: Float[Array, " nobs"], key: PRNGKeyArray | None
    ) -> tuple[ActorMemory, Float[Array, " nu"]]:
        """Compute the memory after a step, and the action. The key may be None without
        `sample`."""
        x = jnp.concatenate([normalize(self.statistics, obs), memory.action])
        hidden, mean = self.networks.policy(memory.hidden, x)
        normal = Normal(mean, self.networks.log_std)
        u = normal.sample(key) if self.sample and key is not None else normal.mode()
        action = u if self.bounds is None else squash(self.bounds, u)
        return ActorMemory(hidden, jnp.tanh(u)), action
