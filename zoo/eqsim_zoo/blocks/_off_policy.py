"""What agents share that learn from a memory: to fill it, and to learn from it."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import ScaleAction, Statistics

from ._actions import check_action_bounds
from ._collect import add_steps, collect, flatten_time, reset_envs, Running
from ._hyperparameters import as_scalar, cast_floats, check_positive, static
from ._learner import Learner
from ._networks import Critic, MLP
from ._parallel import check_divisible, replicate, shard_batch
from ._policies import Explorer
from ._replay import Replay, Transition
from ._statistics import init_statistics, update_statistics


class Memory(eqx.Module):
    """What an agent has seen.

    **Arguments:**

    - `running`: the environments.
    - `replay`: transitions, with actions between -1 and 1.
    - `steps`: control steps taken.
    """

    running: Running
    replay: Replay
    steps: Int[Array, ""]


class AbstractOffPolicy(AbstractOnlineAgent):
    """An agent that learns from a memory of what it has done, whichever policy did it.

    **Arguments:**

    - `num_envs`, `unroll_length`: environments, and steps of each per iteration.
    - `num_updates`, `batch_size`: updates per iteration, and transitions for each.
    - `capacity`: transitions that are remembered. `random_steps`: that are taken at random
        before anything is learned.
    - `actor_hidden`, `critic_hidden`, `layer_norm`: of the networks.
    - `normalize_observations`: whether observations are normalized.
    - `learning_rate`: of Adam. `discount`, `target_rate`: $\\gamma$ and $\\tau$.
    - `reward_scale`: rewards are multiplied by it.
    """

    num_envs: int = static(16)
    unroll_length: int = static(4)
    num_updates: int = static(16)
    batch_size: int = static(256)
    capacity: int = static(2**18)
    actor_hidden: tuple[int, ...] = static((256, 256))
    critic_hidden: tuple[int, ...] = static((256, 256))
    layer_norm: bool = static(False)
    normalize_observations: bool = static(False)
    random_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=2000.0)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    target_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.005)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def __check_init__(self):
        _check_sizes(self)

    @abc.abstractmethod
    def begin(
        self, key: PRNGKeyArray, memory: Memory, bounds: Float[Array, "nu 2"]
    ) -> Any:
        """The state before anything is learned."""

    @abc.abstractmethod
    def explore(self, state: Any) -> tuple[Any, Float[Array, ""]]:
        """The policy that acts, and the noise on its actions: see `Explorer`."""

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> Any:
        key, key_envs = jr.split(key)
        memory = remember(self, env, key_envs)
        like = cast_floats(self, memory.running.obs.dtype)
        return like.begin(key, memory, jnp.array(env.action_range))

    def iterate(
        self, state: Any, env: AbstractEnv
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        self = cast_floats(self, state.bounds.dtype)
        return _iterate(self, state, env, *self.explore(state))

    def create_critic(self, key: PRNGKeyArray, memory: Memory) -> Critic:
        """Critics for what is remembered."""
        rows = memory.replay.rows
        sizes = rows.obs.shape[1], rows.action.shape[1]
        return Critic.create(
            key,
            *sizes,
            self.critic_hidden,
            layer_norm=self.layer_norm,
            dtype=rows.obs.dtype,
        )

    def create_actor(self, key: PRNGKeyArray, memory: Memory, outputs: int) -> MLP:
        """A network for the policy, with so many numbers per actuator."""
        rows = memory.replay.rows
        last = outputs * rows.action.shape[1]
        sizes = (rows.obs.shape[1], *self.actor_hidden, last)
        return MLP.create(key, sizes, last_scale=0.01, dtype=rows.obs.dtype)

    def statistics(self, memory: Memory) -> Statistics | None:
        """Of observations, before there are any; none if they are taken as they are."""
        obs = memory.running.obs[0]
        return init_statistics(obs) if self.normalize_observations else None

    def optimizer(self) -> optax.GradientTransformation:
        """Of the networks."""
        return optax.adam(self.learning_rate)


def _check_sizes(agent: AbstractOffPolicy) -> None:
    check_positive(agent, "num_envs", "unroll_length", "batch_size", "capacity")
    name, rows = type(agent).__name__, agent.num_envs * agent.unroll_length
    if agent.batch_size > agent.capacity:
        raise ValueError(
            f"`{name}.batch_size` is {agent.batch_size}, but the memory has a `capacity` of "
            f"{agent.capacity}: enlarge it, or take smaller batches."
        )
    if rows > agent.capacity:
        raise ValueError(
            f"`{name}` collects {rows} transitions per iteration (`num_envs` times "
            f"`unroll_length`), but the memory has a `capacity` of {agent.capacity}."
        )
    if agent.num_updates < 0:
        raise ValueError(f"`{name}.num_updates` is {agent.num_updates}: at least 0.")


def remember(
    agent: AbstractOffPolicy,
    env: AbstractEnv,
    key: PRNGKeyArray,
    row: Callable[[Transition], Any] = lambda transition: transition,
) -> Memory:
    """An empty memory.

    **Arguments:**

    - `row`: what is remembered of a transition.

    **Raises:** `ValueError` if the agent can not act in that environment.
    """
    check_action_bounds(agent, env)
    check_divisible(agent, "num_envs", "batch_size")
    running = reset_envs(agent, env, key, agent.num_envs)
    obs, no = running.obs[0], jnp.zeros((), bool)
    action = jnp.zeros(env.sys.nu, obs.dtype)
    example = Transition(obs, action, running.timestep.reward[0], obs, no, no)
    rows = agent.num_envs * agent.unroll_length
    replay = Replay.create(row(example), agent.capacity, rows)
    return Memory(running, replicate(replay), jnp.zeros((), jnp.int32))


def critic_step(
    critic: Learner,
    obs: Any,
    action: Float[Array, "rows nu"],
    target: Float[Array, " rows"],
    optimizer: optax.GradientTransformation,
) -> tuple[Learner, dict[str, Array]]:
    r"""A step of all critics against $\sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2$.

    **Returns:** the learner; `critic_loss`, and the mean value `q`.
    """

    def loss(critic):
        q = jax.vmap(critic)(obs, action)
        off = jnp.mean((q - target[:, None]) ** 2, axis=0)
        return jnp.sum(off), {"q": jnp.mean(q)}

    critic, metrics = critic.apply_loss_fn(loss, optimizer)
    return critic, {"critic_loss": metrics["loss"], "q": metrics["q"]}


def _iterate(
    agent: AbstractOffPolicy,
    state: Any,
    env: AbstractEnv,
    policy: Any,
    noise: Float[Array, ""],
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """Practises with a state that has `memory`, `statistics` and `key`; what
    `agent.update` changes beside these is learned.

    **Arguments:**

    - `policy`: what acts, see `Explorer`.
    - `noise`: of a deterministic one.
    """
    key, *keys = jr.split(state.key, 3)
    random = acts_at_random(agent, state.memory)
    explorer = Explorer(policy, state.statistics, noise, random)
    place = lambda s: (s.memory, s.statistics, s.key)

    def see(state, steps):
        rows, statistics = replicate(flatten_time(steps)), state.statistics
        if statistics is not None:
            statistics = update_statistics(statistics, rows.obs)
        new = eqx.tree_at(place, state, (None, statistics, key), is_leaf=_is_none)
        return new, rows

    def learn(state, replay, key):
        return several(agent, agent.update, state, replay, key)

    memory, new, report = practise(
        agent, state.memory, env, explorer, state, keys, see=see, learn=learn
    )
    return eqx.tree_at(lambda s: s.memory, new, memory, is_leaf=_is_none), report


def _is_none(x: Any) -> bool:
    return x is None


def acts_at_random(agent: AbstractOffPolicy, memory: Memory) -> Bool[Array, ""]:
    """Whether so little was done that actions are still uniform."""
    return _as(memory.steps, agent.random_steps) < agent.random_steps


def several(
    agent: AbstractOffPolicy,
    update: Callable[[Any, Any], tuple[Any, dict[str, Array]]],
    state: Any,
    replay: Replay,
    key: PRNGKeyArray,
) -> tuple[Any, dict[str, Array]]:
    """`agent.num_updates` updates, each with a batch of its own, and the means of what
    they report."""

    def once(state, key):
        return update(state, shard_batch(replay.sample(key, agent.batch_size)))

    state, metrics = lax.scan(once, state, jr.split(key, agent.num_updates))
    return state, jtu.tree_map(lambda x: jnp.mean(x, axis=0), metrics)


def practise(
    agent: AbstractOffPolicy,
    memory: Memory,
    env: AbstractEnv,
    policy: Callable[[Any, PRNGKeyArray], Float[Array, " nu"]],
    state: Any,
    keys: Sequence[PRNGKeyArray],
    *,
    see: Callable[[Any, Transition], tuple[Any, Any]],
    learn: Callable[[Any, Replay, PRNGKeyArray], tuple[Any, dict[str, Array]]],
) -> tuple[Memory, Any, dict[str, Float[Array, ""]]]:
    """Acts, remembers, and learns, once there is enough to learn from.

    **Arguments:**

    - `agent`: whose sizes are taken.
    - `policy`: what acts, with actions between -1 and 1.
    - `state`: what is learned.
    - `keys`: to act, and to learn.
    - `see`: `(state, steps) -> (state, rows)`, before anything is learned: with
        transitions of axes (environment, time), and the rows to remember. The new state
        is without the memory, in which learning changes nothing.
    - `learn`: `(state, replay, key) -> (state, metrics)`.

    **Returns:** the memory, the state, and what to report.
    """
    key_act, key_learn = keys
    running, steps, report = collect(
        ScaleAction(env), policy, memory.running, key_act, agent.unroll_length
    )
    state, rows = see(state, steps)
    replay = memory.replay.add(rows)
    count = add_steps(report, memory.steps)
    if agent.num_updates:
        ask = lambda state: learn(state, replay, key_learn)
        shapes = jax.eval_shape(ask, state)[1]
        zeros = jtu.tree_map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        acted = _as(count, agent.random_steps) > agent.random_steps
        enough = (replay.size >= agent.batch_size) & acted
        state, metrics = lax.cond(enough, ask, lambda state: (state, zeros), state)
        report = report | metrics
    return Memory(running, replay, count), state, report


def _as(steps: Int[Array, ""], like: Float[Array, ""]) -> Float[Array, ""]:
    return steps.astype(like.dtype)
