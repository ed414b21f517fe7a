"""Blocks of off-policy agents: settings, replay memory and the scan of updates."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.wrappers import ScaleAction

from ._actions import check_action_bounds
from ._collect import add_steps, collect, flatten_time, reset_envs, Running
from ._encoding import AbstractAugmentation, augment, encoded_size, eyes, Through
from ._encoding_agent import AbstractEncodingAgent, check_augmentations
from ._hyperparameters import as_scalar, check_counts, check_positive, static
from ._learner import mean_metrics
from ._networks import Critic, MLP
from ._parallel import check_divisible, replicate, shard_batch
from ._ranges import check_ranges
from ._replay import Replay, Transition
from ._statistics import normalize, ObservationStatistics


class Memory(eqx.Module):
    """Environments of an off-policy agent and the transitions collected in them.

    **Arguments:**

    - `running`: states of the environments.
    - `replay`: rows to learn from, with actions between -1 and 1.
    - `steps`: control steps taken in all environments together.
    """

    running: Running
    replay: Replay
    steps: Int[Array, ""]


class AbstractOffPolicy(AbstractEncodingAgent):
    """Settings of an agent that learns from a replay.

    **Arguments:** those of `AbstractEncodingAgent`, and

    - `num_envs`: number of environments.
    - `unroll_length`: steps of each environment per iteration.
    - `num_updates`: gradient steps per iteration.
    - `batch_size`: transitions per gradient step.
    - `capacity`: transitions in the replay.
    - `random_steps`: steps with uniform actions before learning starts.
    - `actor_hidden`, `critic_hidden`: hidden layer sizes of the network.
    - `shared_encoder`: true if the actor uses the encoder of the critic, which alone
        trains it; both then see the same parts.
    - `augmentations`: image augmentations in their order, drawn for each row of a batch.
    - `layer_norm`: true if critics have layer normalization.
    - `normalize_observations`: true to normalize observations by running statistics.
    - `learning_rate`: Adam step size of actor and critic.
    - `discount`: discount $\\gamma$.
    - `target_rate`: target update rate $\\tau$.
    - `reward_scale`: factor that multiplies rewards.
    """

    num_envs: int = static(16)
    unroll_length: int = static(4)
    num_updates: int = static(16)
    batch_size: int = static(256)
    capacity: int = static(2**18)
    actor_hidden: tuple[int, ...] = static((256, 256))
    critic_hidden: tuple[int, ...] = static((256, 256))
    shared_encoder: bool = static(False)
    augmentations: tuple[AbstractAugmentation, ...] = ()
    layer_norm: bool = static(False)
    normalize_observations: bool = static(False)
    random_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=2000.0)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    target_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.005)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def __check_init__(self):
        sizes = "num_envs", "unroll_length", "batch_size", "capacity"
        check_positive(self, *sizes, "actor_hidden", "critic_hidden")
        check_ranges(self)
        name, rows = type(self).__name__, self.num_envs * self.unroll_length
        if self.batch_size > self.capacity:
            raise ValueError(
                f"`{name}.batch_size` must be at most the `capacity` of the replay "
                f"buffer, {self.capacity}, got {self.batch_size}. Increase `capacity`, "
                "or use smaller batches."
            )
        if rows > self.capacity:
            raise ValueError(
                f"`{name}` collects {rows} transitions per iteration (`num_envs` times "
                "`unroll_length`), more than the `capacity` of the replay buffer, "
                f"{self.capacity}. Increase `capacity`, or collect fewer."
            )
        check_counts(self, "num_updates")
        check_augmentations(name, self.augmentations)
        if self.shared_encoder and self.actor_parts != self.critic_parts:
            raise ValueError(
                f"With `shared_encoder`, `{name}.actor_parts` and `critic_parts` must "
                f"be equal, got {self.actor_parts} and {self.critic_parts}."
            )

    def image_settings(self) -> dict[str, Any]:
        names = "encoder", "shared_encoder", "augmentations"
        return {name: vars(self)[name] for name in names}

    def networks(
        self,
        keys: Sequence[PRNGKeyArray],
        obs: Any,
        policy: Callable[[MLP], Any],
        sizes: tuple[int, int],
        dtype: Any,
    ) -> tuple[Any, Any]:
        """Create actor and critic.

        **Arguments:**

        - `keys`: random keys of actor and critic.
        - `obs`: an observation, of which shapes and types matter.
        - `policy`: policy around a network, such as `StochasticPolicy`.
        - `sizes`: numbers of outputs of the actor, and of actuators.
        """

        def actor(key, size):
            layers = size, *self.actor_hidden, sizes[0]
            return policy(MLP.create(key, layers, last_scale=0.01, dtype=dtype))

        def critic(key, size):
            options: dict[str, Any] = dict(layer_norm=self.layer_norm, dtype=dtype)
            return Critic.create(key, size, sizes[1], self.critic_hidden, **options)

        critics = self.critic_encoded(keys[1], obs, critic, dtype)
        if self.shared_encoder:
            return actor(keys[0], encoded_size(critics.senses, obs)), critics
        return self.actor_encoded(keys[0], obs, actor, dtype), critics

    def policy(self, actor: Any, critic: Any) -> Any:
        """Return the policy of observations: the actor, after the encoder of the critic if
        that is shared."""
        return Through(eyes(self, critic), actor)

    def features(self, critic: Any, obs: Any) -> Any:
        """Return the inputs of the actor for rows of observations, constants of its
        loss."""
        return jax.vmap(eyes(self, critic))(obs)

    def seen(
        self, statistics: ObservationStatistics | None, obs: Any, key: PRNGKeyArray
    ) -> Any:
        """Normalize and augment the rows of a batch of observations."""
        if not self.augmentations:
            return jax.vmap(lambda obs: normalize(statistics, obs))(obs)
        look = lambda obs, key: augment(
            self.augmentations, normalize(statistics, obs), key
        )
        return jax.vmap(look)(obs, jr.split(key, jtu.tree_leaves(obs)[0].shape[0]))

    def optimizer(self) -> optax.GradientTransformation:
        """Return Adam with `learning_rate`."""
        return optax.adam(self.learning_rate)


def init_running(
    agent: AbstractOffPolicy, env: AbstractEnv, key: Key[Array, ""]
) -> tuple[Running, Transition]:
    """Reset the environments of an off-policy agent.

    **Returns:** the environments, and a transition whose shapes are those to be stored.

    **Raises:** `ValueError` if the agent cannot act in the environment.
    """
    check_action_bounds(agent, env)
    check_divisible(agent, "num_envs", "batch_size")
    running = reset_envs(agent, env, key, agent.num_envs)
    obs, reward = jtu.tree_map(lambda x: x[0], (running.obs, running.timestep.reward))
    no, action = jnp.zeros((), bool), jnp.zeros(env.sys.nu, reward.dtype)
    return running, Transition(obs, action, reward, obs, no, no)


def init_memory(agent: AbstractOffPolicy, running: Running, example: Any) -> Memory:
    """Create an empty replay.

    **Arguments:**

    - `example`: one row of the replay, whose values do not matter.
    """
    block = agent.num_envs * agent.unroll_length
    replay = Replay.create(example, agent.capacity, block)
    return Memory(running, replicate(replay), jnp.zeros((), jnp.int32))


def collect_to_replay(
    agent: AbstractOffPolicy,
    env: AbstractEnv,
    policy: Callable[[Any, Key[Array, ""]], Float[Array, " nu"]],
    memory: Memory,
    key: Key[Array, ""],
) -> tuple[Memory, Transition, dict[str, Float[Array, ""]]]:
    """Step all environments `unroll_length` times, and add the transitions to the replay.

    **Arguments:**

    - `policy`: `(obs, key) -> action`, with actions between -1 and 1.

    **Returns:** the memory; the transitions that were added, with one axis; and the
    report of `collect`.
    """
    running, steps, report = collect(
        ScaleAction(env), policy, memory.running, key, agent.unroll_length
    )
    rows = replicate(flatten_time(steps))
    replay, count = memory.replay.add(rows), add_steps(report, memory.steps)
    return Memory(running, replay, count), rows, report


def explores_uniformly(agent: AbstractOffPolicy, memory: Memory) -> Bool[Array, ""]:
    """Return whether the step is one of the first `random_steps` steps."""
    return memory.steps.astype(agent.random_steps.dtype) < agent.random_steps


def scan_updates(
    agent: AbstractOffPolicy,
    update: Callable[[Any, Any], tuple[Any, dict[str, Array]]],
    state: Any,
    memory: Memory,
    key: Key[Array, ""],
    number: int | None = None,
) -> tuple[Any, dict[str, Array]]:
    """Scan gradient steps, each on a batch of the replay; before `random_steps` steps were
    taken and the replay holds a batch, leave the state unchanged and return metrics of
    zero.

    **Arguments:**

    - `update`: `(state, batch) -> (state, metrics)`.
    - `state`: learned state. Keep the replay out of it, as it would be copied.
    - `number`: number of steps; `agent.num_updates` if None.

    **Returns:** the new state, and `mean_metrics` of the steps.
    """
    keys = jr.split(key, agent.num_updates if number is None else number)
    if not keys.shape[0]:
        return state, {}

    def once(state, key):
        return update(state, shard_batch(memory.replay.sample(key, agent.batch_size)))

    def run(state):
        state, metrics = lax.scan(once, state, keys)
        return state, mean_metrics(metrics)

    shapes = jax.eval_shape(run, state)[1]
    zeros = jtu.tree_map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    acted = memory.steps.astype(agent.random_steps.dtype) > agent.random_steps
    enabled = (memory.replay.size >= agent.batch_size) & acted
    return lax.cond(enabled, run, lambda state: (state, zeros), state)
