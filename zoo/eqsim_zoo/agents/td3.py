"""Twin delayed deep deterministic policy gradient.

`TD3Learner` holds what is learned, `TD3` its settings, networks and one gradient step
(`update`): critic, then actor and target networks. The losses are functions at the end.
`AbstractOffPolicy` collects the steps and samples the batches.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, check_positive, same_precision, static
from ..blocks.networks import Learner, target_update
from ..blocks.observations import normalize, ObservationStatistics
from ..blocks.policies import add_noise, DeterministicPolicy, Explorer, scale_action
from ..blocks.replay import (
    AbstractOffPolicy,
    lowest_value,
    td_loss,
    TD_METRICS,
    td_target,
)


class TD3Learner(eqx.Module):
    """Learned part of the state of `TD3`: `actor` and `critic`, their `targets`, number of
    `updates` (modulo a multiple of `policy_delay`), running `statistics` of observations,
    action range `bounds`, and random `key`."""

    actor: Learner
    critic: Learner
    targets: tuple[Any, Any]
    updates: Int[Array, ""]
    statistics: ObservationStatistics | None
    bounds: Float[Array, "nu 2"]
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

    def create(
        self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"], dtype: Any
    ) -> TD3Learner:
        *keys, key = jr.split(key, 3)
        nu = bounds.shape[0]
        actor, critic = self.networks(keys, obs, DeterministicPolicy, (nu, nu), dtype)
        return TD3Learner(
            actor=Learner.create(actor, self.optimizer()),
            critic=Learner.create(critic, self.optimizer()),
            targets=(actor, critic),
            updates=jnp.zeros((), jnp.int32),
            statistics=None,
            bounds=bounds,
            key=key,
        )

    def action(
        self, learner: TD3Learner, obs: Any, key: PRNGKeyArray | None
    ) -> Float[Array, " nu"]:
        policy = self.inputs.policy(learner.actor.model, learner.critic.model)
        action = policy(normalize(learner.statistics, obs))
        if key is not None:
            action = add_noise(action, self.exploration_noise, key)
        return scale_action(learner.bounds, action)

    def explorer(self, learner: TD3Learner, random: Bool[Array, ""]) -> Explorer:
        policy = self.inputs.policy(learner.actor.model, learner.critic.model)
        return Explorer(policy, learner.statistics, random, self.exploration_noise)

    @same_precision
    def update(
        self, learner: TD3Learner, batch: Transition
    ) -> tuple[TD3Learner, dict[str, Float[Array, "..."]]]:
        """Take one gradient step on a batch.

        **Arguments:**

        - `learner`: the learned part of an `OffPolicyState`.
        - `batch`: transitions with one axis, with actions between -1 and 1.

        **Returns:** the new learner; losses, the mean value `q`, and mean and standard
        deviation of its `target`. Between updates of the policy its loss is evaluated only.
        """
        key, key_noise = jr.split(learner.key)
        keys = jr.split(jr.fold_in(key_noise, 1))
        obs = self.seen(learner.statistics, batch.obs, keys[0])
        next_obs = self.seen(learner.statistics, batch.next_obs, keys[1])
        target_actor, target_critic = learner.targets

        # Critic.
        policy = self.inputs.policy(target_actor, target_critic)
        next_action = smoothed_actions(
            policy, next_obs, self.target_noise, self.noise_clip, key_noise
        )
        next_value = lowest_value(target_critic, next_obs, next_action)
        target = td_target(
            self.reward_scale * batch.reward,
            next_value,
            batch.terminated,
            self.discount,
        )
        critic, of_critic = learner.critic.apply_loss_fn(
            lambda critic: td_loss(critic, obs, batch.action, target), self.optimizer()
        )

        # Actor and target networks, in every `policy_delay`-th update.
        seen = self.inputs.actor_inputs(critic.model, obs)
        loss = lambda actor: deterministic_actor_loss(actor, critic.model, obs, seen)

        def improve():
            actor, of_actor = learner.actor.apply_loss_fn(loss, self.optimizer())
            pair = actor.model, critic.model
            targets = target_update(pair, learner.targets, self.target_rate)
            return actor, targets, of_actor["loss"]

        def wait():
            return learner.actor, learner.targets, loss(learner.actor.model)[0]

        due = learner.updates % self.policy_delay == 0
        actor, targets, actor_loss = lax.cond(due, improve, wait)
        new = dataclasses.replace(
            learner,
            actor=actor,
            critic=critic,
            targets=targets,
            # Wraps around long before it overflows.
            updates=(learner.updates + 1) % (self.policy_delay * 2**20),
            key=key,
        )
        metrics = {"critic_loss": of_critic["loss"], "actor_loss": actor_loss}
        return new, metrics | {name: of_critic[name] for name in TD_METRICS}


# Losses.


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
    actor_inputs: Any,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Compute the loss $-\mathrm{mean}\,Q_1(o, \pi(o))$, the `action`, and the mean
    absolute value `abs_q`.

    **Arguments:**

    - `actor_inputs`: rows that the actor takes; `obs`, unless it shares an encoder.
    """
    action = jax.vmap(actor)(actor_inputs)
    q = jax.vmap(critic)(obs, action)[:, 0]
    return -jnp.mean(q), {"action": action, "abs_q": jnp.mean(jnp.abs(q))}
