"""Policies with memory.

Recurrent networks: a gated recurrent unit between an encoder and a head; `RecurrentActorCritic`,
the networks of a policy and its value; and `RecurrentActor`, the controller that acts.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractController, State

from .collecting import Transition
from .networks import AbstractInputs, Activation, FeaturesNetwork, Linear, MLP
from .observations import Features, normalize, ObservationStatistics
from .policies import Normal, squash_action, squash_log_slope


class GRU(eqx.Module):
    r"""Gated recurrent unit: with input $x$, hidden state $h$, and affine maps $A$ of the
    input and $B$ of the hidden state for each gate,

    $$r = \sigma(A_r x + B_r h), \quad z = \sigma(A_z x + B_z h), \quad
    n = \tanh(A_n x + r \odot B_n h), \quad h' = (1 - z) \odot n + z \odot h.$$

    **Arguments:**

    - `inputs`, `hidden`: $A$ and $B$ of the three gates, in this order.

    ??? cite "Reference"
        Cho et al., *Learning phrase representations using RNN encoder-decoder for
        statistical machine translation*, 2014; with the reset gate after the product, as
        in cuDNN.
    """

    inputs: Linear
    hidden: Linear

    @staticmethod
    def create(key: PRNGKeyArray, inputs: int, size: int, dtype: Any) -> "GRU":
        """Create a unit.

        **Arguments:**

        - `inputs`, `size`: sizes of the input and of the hidden state.
        """
        key_inputs, key_hidden = jr.split(key)
        return GRU(
            Linear.create(key_inputs, inputs, 3 * size, 1.0, dtype),
            Linear.create(key_hidden, size, 3 * size, 1.0, dtype),
        )

    def __call__(
        self, hidden: Float[Array, " size"], gates: Float[Array, " gates"]
    ) -> Float[Array, " size"]:
        """Compute the next hidden state.

        **Arguments:**

        - `hidden`: hidden state.
        - `gates`: `inputs(x)`, which a caller can compute for all steps of a sequence.
        """
        reset, update, new = jnp.split(gates, 3)
        old_reset, old_update, old_new = jnp.split(self.hidden(hidden), 3)
        reset = jax.nn.sigmoid(reset + old_reset)
        update = jax.nn.sigmoid(update + old_update)
        new = jnp.tanh(new + reset * old_new)
        return new + update * (hidden - new)


class RecurrentNetwork(eqx.Module):
    """Network with a memory: a linear encoder and `activation`, a `GRU`, and a multilayer
    perceptron of the new hidden state and the code.

    The head also sees the code, so that tasks without need for memory are learned as by
    a network without it.

    **Arguments:**

    - `encoder`: layer from inputs to codes, as large as the hidden state.
    - `gru`: recurrent unit.
    - `head`: network from the hidden state and the code to outputs.
    """

    encoder: Linear
    gru: GRU
    head: MLP

    @staticmethod
    def create(
        key: PRNGKeyArray,
        inputs: int,
        memory_size: int,
        sizes: tuple[int, ...],
        activation: Callable,
        *,
        last_scale: float = 1.0,
        dtype: Any = jnp.float32,
    ) -> "RecurrentNetwork":
        """Create a network.

        **Arguments:**

        - `inputs`, `memory_size`: sizes of the input and of the hidden state.
        - `sizes`: sizes of the hidden layers of the head, and of the output.
        - `activation`: nonlinearity of code and head.
        - `last_scale`: scale of the last layer, see `Linear`.
        """
        keys = jr.split(key, 3)
        layers = 2 * memory_size, *sizes
        return RecurrentNetwork(
            Linear.create(keys[0], inputs, memory_size, 1.0, dtype),
            GRU.create(keys[1], memory_size, memory_size, dtype),
            MLP.create(keys[2], layers, activation, last_scale=last_scale, dtype=dtype),
        )

    def first_memory(self) -> Float[Array, " size"]:
        """Return the hidden state at the start of an episode: zeros."""
        return jnp.zeros_like(self.encoder.bias)

    def __call__(
        self, memory: Float[Array, " size"], x: Float[Array, " inputs"]
    ) -> tuple[Float[Array, " size"], Float[Array, " outputs"]]:
        """Compute the hidden state after a step, and the output."""
        code = self._code(x)
        memory = self.gru(memory, self.gru.inputs(code))
        return memory, self._output(memory, code)

    def unroll(
        self,
        memory: Float[Array, " size"],
        x: Float[Array, "time inputs"],
        begins: Bool[Array, " time"],
    ) -> tuple[Float[Array, "time size"], Float[Array, "time outputs"]]:
        """Compute the hidden state after each step, and the outputs.

        **Arguments:**

        - `memory`: hidden state before the first step.
        - `x`: input of each step.
        - `begins`: true for the first step of an episode, before which the hidden state
            is set to zero.
        """
        codes = jax.vmap(self._code)(x)
        gates = jax.vmap(self.gru.inputs)(codes)

        def step(memory, now):
            gates, begins = now
            memory = self.gru(jnp.where(begins, 0.0, memory), gates)
            return memory, memory

        _, memories = lax.scan(step, memory, (gates, begins))
        return memories, jax.vmap(self._output)(memories, codes)

    def _code(self, x):
        return self.head.activation(self.encoder(x))

    def _output(self, memory, code):
        return self.head(jnp.concatenate([memory, code]))


class StepInputs(eqx.Module):
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

    inputs: StepInputs
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
    - `policy_features`, `value_features`: maps from observations to features; None for
        vectors.
    """

    policy: RecurrentNetwork
    log_std: Float[Array, " nu"]
    value: RecurrentNetwork
    policy_features: Features | None
    value_features: Features | None

    @staticmethod
    def create(
        inputs: AbstractInputs,
        keys: tuple[PRNGKeyArray, PRNGKeyArray],
        obs: Any,
        sizes: tuple[int, int],
        hidden: tuple[tuple[int, ...], tuple[int, ...]],
        activation: Activation,
        initial_log_std: Float[Array, ""],
    ) -> "RecurrentActorCritic":
        """Create networks with small initial actions.

        **Arguments:**

        - `inputs`: inputs of the networks.
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
        policy_features, policy = _split(inputs.actor(keys[0], obs, policy, dtype))
        value_features, value = _split(inputs.critic(keys[1], obs, value, dtype))
        log_std = jnp.zeros(nu, dtype) + initial_log_std
        return RecurrentActorCritic(
            policy, log_std, value, policy_features, value_features
        )

    def mean(
        self, memory: Float[Array, " size"], inputs: StepInputs
    ) -> tuple[Float[Array, " size"], Float[Array, " nu"]]:
        """Compute the hidden state of the policy after a step, and the mean action before
        squashing."""
        return self.policy(memory, _features(self.policy_features, inputs))

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
            slope = squash_log_slope(bounded, normal.sample(key))
            return normal.log_prob(action), normal.entropy() + slope

        keys = jr.split(key, mean.shape[0])
        return *jax.vmap(one)(mean, action, keys), value[:, 0]

    def values(
        self, steps: Sequence, next_inputs: StepInputs
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
        later = jax.vmap(lambda x: _features(self.value_features, x))(next_inputs)
        _, next_value = jax.vmap(self.value)(memories, later)
        return value[:, 0], next_value[:, 0], memories[-1]

    def _means(self, steps: Sequence) -> Float[Array, "time nu"]:
        seen = jax.vmap(lambda x: _features(self.policy_features, x))(steps.inputs)
        return self.policy.unroll(steps.policy_memory, seen, steps.begins)[1]

    def _values(
        self, steps: Sequence
    ) -> tuple[Float[Array, "time size"], Float[Array, "time 1"]]:
        seen = jax.vmap(lambda x: _features(self.value_features, x))(steps.inputs)
        return self.value.unroll(steps.value_memory, seen, steps.begins)


def _split(network: Any) -> tuple[Features | None, RecurrentNetwork]:
    """Separate the map to features from a network, if it has one, as the memory is after
    it."""
    if isinstance(network, FeaturesNetwork):
        return network.features, network.network
    return None, network


def _features(
    features: Features | None, inputs: StepInputs
) -> Float[Array, " features"]:
    obs = inputs.obs if features is None else features(inputs.obs)
    return jnp.concatenate([obs, inputs.action])


def sequences(
    statistics: ObservationStatistics | None,
    steps: Transition,
    memory: ActorMemory,
    value_memory: Float[Array, "envs size"],
) -> tuple[Sequence, StepInputs]:
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
    inputs, next_inputs = StepInputs(seen(steps.obs), before), seen(steps.next_obs)
    found = Sequence(inputs, begins, memory.hidden, value_memory)
    return found, StepInputs(next_inputs, taken)


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
        inputs = StepInputs(normalize(self.statistics, obs), memory.action)
        hidden, mean = self.networks.mean(memory.hidden, inputs)
        normal = Normal(mean, self.networks.log_std)
        u = normal.sample(key) if self.sample and key is not None else normal.mode()
        action = u if self.bounds is None else squash_action(self.bounds, u)
        return ActorMemory(hidden, jnp.tanh(u)), action
