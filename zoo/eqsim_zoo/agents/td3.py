""""""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv

from ..blocks.hyperparameters import as_scalar, cast_floats, check_positive, static
from ..blocks.networks import Learner, target_update
from ..blocks.observations import (
    acts_on_batches,
    init_statistics,
    normalize,
    ObservationStatistics,
    update_statistics,
)
from ..blocks.policies import add_noise, DeterministicPolicy, Explorer, scale
from ..blocks.replay import (
    AbstractOffPolicy,
    collect_to_replay,
    explores_uniformly,
    init_memory,
    init_running,
    lowest_value,
    Memory,
    scan_updates,
    td_loss,
    TD_METRICS,
    td_target,
    Transition,
)


class TD3State(eqx.Module):
    """State of `TD3`: learners of `actor` and `critic`, their `targets`, number of `updates`
    (modulo a multiple of `policy_delay`), running `statistics` of observations, action
    range `bounds`, and `memory`, which is None during updates."""

    actor: Learner
    critic: Learner
    targets: tuple[Any, Any]
    updates: Int[Array, ""]
    statistics: ObservationStatistics | None
    bounds: Float[Array, "nu 2"]
    memory: Memory | None
    key: PRNGKeyArray


class TD3(AbstractOffPolicy):
    r"""Twin delayed deep deterministic policy gradient: the target uses the minimum of two
    critics and smoothed target actions, and the policy is updated less often than the
    critics.

    $$y = r + \gamma_t \min_k \bar Q_k(o', \tilde a), \quad
    \tilde a = \mathrm{clip}(\bar\pi(o') + \epsilon), \quad
    L_Q = \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2, \quad
    L_\pi = -\mathrm{mean}\,Q_1(o, \pi(o)),$$

    with clipped normal noise $\epsilon$, and $\gamma_t$ zero where the task terminated.

    Differences from the paper: vectorized environments; rewards may be scaled, and
    observations and the layers of critics normalized.

    **Arguments:** those of `AbstractOffPolicy`, and

    - `policy_delay`: critic updates per update of policy and targets.
    - `exploration_noise`: standard deviation of the noise on actions.
    - `target_noise`: standard deviation of $\epsilon$, the noise on target actions.
    - `noise_clip`: clip range of $\epsilon$.

    ??? cite "Reference"
        Fujimoto, van Hoof, Meger, *Addressing function approximation error in actor-critic
        methods*, 2018, algorithm 1.
    """

    policy_delay: int = static(2)
    exploration_noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.1)
    target_noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    noise_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)

    def __check_init__(self):
        check_positive(self, "policy_delay")

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> TD3State:
        key, key_envs = jr.split(key)
        running, example = init_running(self, env, key_envs)
        obs, dtype = example.obs, example.reward.dtype
        self = cast_floats(self, dtype)
        *keys, key = jr.split(key, 3)
        sizes, adam = (env.sys.nu, env.sys.nu), self.optimizer()
        actor, critic = self.networks(keys, obs, DeterministicPolicy, sizes, dtype)
        return TD3State(
            actor=Learner.create(actor, adam),
            critic=Learner.create(critic, adam),
            targets=(actor, critic),
            updates=jnp.zeros((), jnp.int32),
            statistics=init_statistics(obs) if self.normalize_observations else None,
            bounds=jnp.array(env.action_range),
            memory=init_memory(self, running, example),
            key=key,
        )

    @acts_on_batches
    def act(
        self, state: TD3State, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        policy = self.policy(state.actor.model, state.critic.model)
        action = policy(normalize(state.statistics, obs))
        if key is not None:
            noise = self.exploration_noise.astype(action.dtype)
            action = add_noise(action, noise, key)
        return scale(state.bounds, action)

    def iterate(
        self, state: TD3State, env: AbstractEnv
    ) -> tuple[TD3State, dict[str, Float[Array, "..."]]]:
        """Collect `unroll_length` steps, add them to the replay, and learn from
        `num_updates` batches of it."""
        self = cast_floats(self, state.bounds.dtype)
        key, key_act, key_learn = jr.split(state.key, 3)
        memory, statistics = state.memory, state.statistics
        assert memory is not None

        # Collect, and add to the replay.
        uniform = explores_uniformly(self, memory)
        policy = self.policy(state.actor.model, state.critic.model)
        explorer = Explorer(policy, statistics, self.exploration_noise, uniform)
        memory, rows, report = collect_to_replay(self, env, explorer, memory, key_act)
        statistics = update_statistics(statistics, rows.obs)

        # Learn.
        state = dataclasses.replace(state, statistics=statistics, memory=None, key=key)
        state, metrics = scan_updates(self, self.update, state, memory, key_learn)
        return dataclasses.replace(state, memory=memory), report | metrics

    def update(
        self, state: TD3State, batch: Transition
    ) -> tuple[TD3State, dict[str, Float[Array, "..."]]]:
        """Take one gradient step on transitions with one axis, with actions between -1 and
        1.

        **Returns:** the new state; losses, the mean value `q`, and mean and standard
        deviation of its `target`. Between updates of the policy its loss is evaluated only.
        """
        self = cast_floats(self, batch.reward.dtype)
        key, key_noise = jr.split(state.key)
        keys = jr.split(jr.fold_in(key_noise, 1))
        obs = self.seen(state.statistics, batch.obs, keys[0])
        next_obs = self.seen(state.statistics, batch.next_obs, keys[1])
        (target_actor, target_critic), adam = state.targets, self.optimizer()

        # Critic.
        policy, noise = self.policy(target_actor, target_critic), self.target_noise
        next_action = smoothed_actions(
            policy, next_obs, noise, self.noise_clip, key_noise
        )
        next_value = lowest_value(target_critic, next_obs, next_action)
        target = td_target(
            self.reward_scale * batch.reward,
            next_value,
            batch.terminated,
            self.discount,
        )
        critic, of_critic = state.critic.apply_loss_fn(
            lambda critic: td_loss(critic, obs, batch.action, target), adam
        )

        # Actor and target networks, in every `policy_delay`-th update.
        features = self.features(critic.model, obs)
        loss = lambda actor: deterministic_actor_loss(
            actor, critic.model, obs, features
        )

        def improve():
            actor, of_actor = state.actor.apply_loss_fn(loss, adam)
            pair = actor.model, critic.model
            targets = target_update(pair, state.targets, self.target_rate)
            return actor, targets, of_actor["loss"]

        def wait():
            return state.actor, state.targets, loss(state.actor.model)[0]

        due = state.updates % self.policy_delay == 0
        actor, targets, actor_loss = lax.cond(due, improve, wait)
        new = dataclasses.replace(
            state,
            actor=actor,
            critic=critic,
            targets=targets,
            # Wraps around long before it overflows.
            updates=(state.updates + 1) % (self.policy_delay * 2**20),
            key=key,
        )
        metrics = {"critic_loss": of_critic["loss"], "actor_loss": actor_loss}
        return new, metrics | {name: of_critic[name] for name in TD_METRICS}


def smoothed_actions(
    policy: Callable[[Any], Float[Array, " nu"]],
    obs: Any,
    noise: Float[Array, ""],
    noise_clip: Float[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, "rows nu"]:
    r"""Compute target actions with policy smoothing,
    $\mathrm{clip}(\pi(o) + \epsilon, -1, 1)$ with clipped normal $\epsilon$."""
    action = jax.vmap(policy)(obs)
    normal = jr.normal(key, action.shape, action.dtype)
    return jnp.clip(action + jnp.clip(noise * normal, -noise_clip, noise_clip), -1, 1)


def deterministic_actor_loss(
    actor: Callable[[Any], Float[Array, " nu"]],
    critic: Callable[[Any, Any], Float[Array, " critics"]],
    obs: Any,
    features: Any = None,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Compute the loss $-\mathrm{mean}\,Q_1(o, \pi(o))$, the `action`, and the mean
    absolute value `abs_q`.

    **Arguments:**

    - `features`: input of the actor; `obs` if None.
    """
    action = jax.vmap(actor)(obs if features is None else features)
    q = jax.vmap(critic)(obs, action)[:, 0]
    return -jnp.mean(q), {"action": action, "abs_q": jnp.mean(jnp.abs(q))}
