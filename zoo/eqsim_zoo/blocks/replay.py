"""Off-policy learning: the replay buffer, temporal-difference losses, and the iteration.

`Replay` stores rows on the device; `td_target` and `td_loss` are what critics learn;
`AbstractOffPolicy` holds settings, networks and the iteration of `SAC` and `TD3`: collect steps,
add them to the replay, update statistics, and take gradient steps on batches.
"""

import abc
import dataclasses
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

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.bridges import check_count
from eqsim.wrappers import ScaleAction

from .collecting import (
    add_steps,
    collect,
    flatten_time,
    reset_envs,
    Running,
    Transition,
)
from .hyperparameters import (
    as_scalar,
    check_counts,
    check_positive,
    check_ranges,
    same_precision,
    static,
)
from .networks import AbstractInputs, Critic, mean_metrics, MLP, Vectors
from .observations import (
    acts_on_batches,
    init_statistics,
    normalize,
    ObservationStatistics,
    update_statistics,
)
from .parallel import check_divisible, replicate, shard_batch
from .policies import check_action_bounds, Explorer


# The replay buffer.


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


# Temporal-difference losses.


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


# The iteration.


class OffPolicyState(eqx.Module):
    """State of an agent that learns from a replay.

    **Arguments:**

    - `learner`: learned part, which `update` takes and returns: networks, optimizer states,
        statistics, and the random `key`.
    - `memory`: environments and replay.
    """

    learner: Any
    memory: Memory

    @property
    def key(self) -> PRNGKeyArray:
        """Random key of the learner."""
        return self.learner.key


class AbstractOffPolicy(AbstractOnlineAgent):
    r"""Settings and iteration of an agent that learns from a replay.

    Its state is an `OffPolicyState`; `update` takes and returns `state.learner`.

    **Arguments:**

    - `num_envs`: number of environments.
    - `unroll_length`: steps of each environment per iteration.
    - `num_updates`: gradient steps per iteration.
    - `batch_size`: transitions per gradient step.
    - `capacity`: transitions in the replay.
    - `random_steps`: steps with uniform actions before learning starts.
    - `actor_hidden`, `critic_hidden`: hidden layer sizes of the network.
    - `inputs`: inputs of the networks: `blocks.Vectors`, or `vision.Images` for images.
    - `layer_norm`: true if critics have layer normalization.
    - `normalize_observations`: true to normalize observations by running statistics.
    - `learning_rate`: Adam step size of actor and critic.
    - `discount`: discount $\gamma$.
    - `target_rate`: target update rate $\tau$.
    - `reward_scale`: factor that multiplies rewards.
    """

    num_envs: int = static(16)
    unroll_length: int = static(4)
    num_updates: int = static(16)
    batch_size: int = static(256)
    capacity: int = static(2**18)
    actor_hidden: tuple[int, ...] = static((256, 256))
    critic_hidden: tuple[int, ...] = static((256, 256))
    inputs: AbstractInputs = Vectors()
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

    @abc.abstractmethod
    def create(
        self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"], dtype: Any
    ) -> Any:
        """Create the learner, without statistics.

        **Arguments:**

        - `obs`: an observation, of which shapes and types matter.
        - `bounds`: action range.
        - `dtype`: type of the networks.
        """

    @abc.abstractmethod
    def action(
        self, learner: Any, obs: Any, key: PRNGKeyArray | None
    ) -> Float[Array, " nu"]:
        """Compute the action for one observation, see `act`."""

    @abc.abstractmethod
    def explorer(self, learner: Any, random: Bool[Array, ""]) -> Explorer:
        """Return the policy that collects steps.

        **Arguments:**

        - `random`: true for uniform actions.
        """

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> OffPolicyState:
        key, key_envs = jr.split(key)
        running, example = init_running(self, env, key_envs)
        # A copy of the range, as the state may be donated and the system not.
        bounds = jnp.array(env.action_range)
        learner = self.create(key, example.obs, bounds, example.reward.dtype)
        if self.normalize_observations:
            statistics = init_statistics(example.obs)
            learner = dataclasses.replace(learner, statistics=statistics)
        return OffPolicyState(learner, init_memory(self, running, example))

    @acts_on_batches
    def act(
        self, state: OffPolicyState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        return self.action(state.learner, obs, key)

    @same_precision
    def iterate(
        self, state: OffPolicyState, env: AbstractEnv
    ) -> tuple[OffPolicyState, dict[str, Float[Array, "..."]]]:
        """Collect `unroll_length` steps, add them to the replay, and learn from
        `num_updates` batches of it."""
        learner, memory = state.learner, state.memory
        key, key_act, key_learn = jr.split(learner.key, 3)

        # Collect, and add to the replay.
        explorer = self.explorer(learner, explores_uniformly(self, memory))
        memory, rows, report = collect_to_replay(self, env, explorer, memory, key_act)
        statistics = update_statistics(learner.statistics, rows.obs)
        learner = dataclasses.replace(learner, statistics=statistics, key=key)

        # Learn.
        learner, metrics = scan_updates(self, self.update, learner, memory, key_learn)
        return OffPolicyState(learner, memory), report | metrics

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

        critics = self.inputs.critic(keys[1], obs, critic, dtype)
        return self.inputs.actor(keys[0], obs, actor, dtype, critics), critics

    def seen(
        self, statistics: ObservationStatistics | None, obs: Any, key: PRNGKeyArray
    ) -> Any:
        """Normalize and augment the rows of a batch of observations."""
        obs = jax.vmap(lambda obs: normalize(statistics, obs))(obs)
        return self.inputs.augment(obs, key)

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
    running = reset_envs(agent, env, key, agent.num_envs, agent.inputs)
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
    learner: Any,
    memory: Memory,
    key: Key[Array, ""],
    number: int | None = None,
) -> tuple[Any, dict[str, Array]]:
    """Scan gradient steps, each on a batch of the replay; before `random_steps` steps were
    taken and the replay holds a batch, leave the learner unchanged and return metrics of
    zero.

    **Arguments:**

    - `update`: `(learner, batch) -> (learner, metrics)`.
    - `number`: number of steps; `agent.num_updates` if None.

    **Returns:** the new learner, and `mean_metrics` of the steps.
    """
    keys = jr.split(key, agent.num_updates if number is None else number)
    if not keys.shape[0]:
        return learner, {}

    def once(learner, key):
        return update(learner, shard_batch(memory.replay.sample(key, agent.batch_size)))

    def run(learner):
        learner, metrics = lax.scan(once, learner, keys)
        return learner, mean_metrics(metrics)

    shapes = jax.eval_shape(run, learner)[1]
    zeros = jtu.tree_map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    acted = memory.steps.astype(agent.random_steps.dtype) > agent.random_steps
    enabled = (memory.replay.size >= agent.batch_size) & acted
    return lax.cond(enabled, run, lambda learner: (learner, zeros), learner)
