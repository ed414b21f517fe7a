"""Losses of value functions."""

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
from eqsim.bridges import check_count
from eqsim.wrappers import ScaleAction

from ..vision.encoding import (
    AbstractAugmentation,
    AbstractEncodingAgent,
    augment,
    check_augmentations,
    encoded_size,
    eyes,
    Through,
)
from .collecting import add_steps, collect, flatten_time, reset_envs, Running
from .hyperparameters import (
    as_scalar,
    check_counts,
    check_positive,
    check_ranges,
    static,
)
from .networks import Critic, mean_metrics, MLP
from .observations import normalize, ObservationStatistics
from .parallel import check_divisible, replicate, shard_batch
from .policies import check_action_bounds


TD_METRICS = "q", "target", "target_std"
"""Metrics of `td_loss`."""


def td_loss(
    critic: Callable[[Any, Any], Float[Array, " critics"]],
    obs: Any,
    action: Float[Array, "rows nu"],
    target: Float[Array, " rows"],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Squared temporal-difference error $\sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2$ of an
    ensemble of critics; metrics: the mean value `q`, and mean `target` and standard
    deviation `target_std` of $y$."""
    q = jax.vmap(critic)(obs, action)
    errors = jnp.mean((q - target[:, None]) ** 2, axis=0)
    statistics = {"target": jnp.mean(target), "target_std": jnp.std(target)}
    return jnp.sum(errors), {"q": jnp.mean(q), **statistics}


def td_target(
    reward: Float[Array, " rows"],
    next_value: Float[Array, " rows"],
    terminated: Bool[Array, " rows"],
    discount: Float[Array, ""],
) -> Float[Array, " rows"]:
    r"""One-step target $r + \gamma V(o')$, without the second term where the task
    terminated. Truncated steps are bootstrapped."""
    return reward + jnp.where(terminated, 0.0, discount) * next_value


def lowest_value(
    critic: Callable[[Any, Any], Float[Array, " critics"]],
    obs: Any,
    action: Float[Array, "rows nu"],
) -> Float[Array, " rows"]:
    r"""Compute the minimum $\min_k Q_k(o, a)$ over an ensemble of critics."""
    return jnp.min(jax.vmap(critic)(obs, action), axis=1)


def clipped_policy_loss(
    log_prob: Float[Array, " rows"],
    old_log_prob: Float[Array, " rows"],
    advantage: Float[Array, " rows"],
    clip: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Clipped surrogate loss
    $-\mathrm{mean} \min(\rho A, \mathrm{clip}(\rho, 1 - \epsilon, 1 + \epsilon) A)$ with the
    ratio $\rho = \pi / \pi_{old}$, and the estimate $\mathrm{mean}(\rho - 1 - \log \rho)$ of
    the divergence from $\pi_{old}$."""
    change = log_prob - old_log_prob
    ratio = jnp.exp(change)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    gain = jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
    return -gain, jnp.mean(ratio - 1.0 - change)


def clipped_value_loss(
    value: Float[Array, " rows"],
    old_value: Float[Array, " rows"],
    target: Float[Array, " rows"],
    clip: Float[Array, ""],
) -> Float[Array, ""]:
    """Half the mean squared error of values, the larger of that of the value and that of
    the value clipped to `old_value` plus and minus `clip`; without clipping if that is 0.
    """
    error = (value - target) ** 2
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    larger = jnp.maximum(error, (near - target) ** 2)
    return 0.5 * jnp.mean(jnp.where(clip > 0.0, larger, error))


class Transition(eqx.Module):
    """Transitions, with any leading axes.

    **Arguments:**

    - `obs`, `action`, `reward`: observation before the step, action and reward.
    - `next_obs`: observation after the step, before any reset.
    - `terminated`: true if the task ended, so that nothing is bootstrapped.
    - `truncated`: true if the episode was cut off, so that the value is bootstrapped.
    """

    obs: Any
    action: Any
    reward: Float[Array, "..."]
    next_obs: Any
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]

    @property
    def done(self) -> Bool[Array, "..."]:
        """True at the last step of an episode."""
        return self.terminated | self.truncated


class Replay(eqx.Module):
    """Ring buffer of rows of any PyTree, on the device.

    Rows are added in blocks of a fixed size, so that no block wraps around.

    **Arguments:**

    - `rows`: the buffer; the first axis of each array is the capacity.
    - `at`: index of the next block.
    - `size`: number of rows.
    - `block`: number of rows added in one call.
    """

    rows: Any
    at: Int[Array, ""]
    size: Int[Array, ""]
    block: int = eqx.field(static=True)

    @staticmethod
    def create(example: Any, capacity: int, block: int = 1) -> "Replay":
        """Create an empty buffer.

        **Arguments:**

        - `example`: one row, whose values do not matter.
        - `capacity`: least number of rows, rounded up to a multiple of `block`.
        - `block`: number of rows added in one call.

        **Raises:** `ValueError` if the capacity or the block is not positive.
        """
        check_count("capacity", capacity)
        check_count("block", block)
        whole = -(-capacity // block) * block
        empty = lambda x: jnp.zeros((whole, *x.shape), x.dtype)
        # Two arrays, as each can be donated once.
        at, size = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return Replay(jtu.tree_map(empty, example), at, size, block)

    @property
    def capacity(self) -> int:
        """Largest number of rows."""
        return jtu.tree_leaves(self.rows)[0].shape[0]

    def add(self, rows: Any) -> "Replay":
        """Replace the oldest block by new rows.

        In place if the old buffer is donated; sample from the new one then, as the old one
        would be copied.

        **Raises:** `ValueError` if the number of rows is not that of a block.
        """
        number = jtu.tree_leaves(rows)[0].shape[0]
        if number != self.block:
            raise ValueError(
                f"Rows are added to this replay buffer in blocks of {self.block}, got "
                f"{number} rows."
            )
        put = lambda ring, new: lax.dynamic_update_slice_in_dim(ring, new, self.at, 0)
        at = (self.at + number) % self.capacity
        size = jnp.minimum(self.size + number, self.capacity)
        return Replay(jtu.tree_map(put, self.rows, rows), at, size, self.block)

    def sample(self, key: PRNGKeyArray, number: int) -> Any:
        """Sample rows uniformly with replacement; the buffer must not be empty."""
        index = jr.randint(key, (number,), 0, jnp.maximum(self.size, 1))
        take = lambda x: jnp.take(x, index, axis=0, mode="clip")
        return jtu.tree_map(take, self.rows)


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
