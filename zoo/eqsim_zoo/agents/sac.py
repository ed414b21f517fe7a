"""Soft actor-critic.

`SACLearner` holds what is learned, `SAC` its settings, networks and one gradient step
(`update`), in the order of the paper: critic, actor, temperature, target network. The losses
are functions at the end. `AbstractOffPolicy` collects the steps and samples the batches.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, same_precision, static
from ..blocks.networks import Learner, target_update
from ..blocks.observations import normalize, ObservationStatistics
from ..blocks.policies import Explorer, sample_actions, scale_action, StochasticPolicy
from ..blocks.replay import (
    AbstractOffPolicy,
    lowest_value,
    td_loss,
    TD_METRICS,
    td_target,
)


class SACLearner(eqx.Module):
    r"""Learned part of the state of `SAC`: `actor`, `critic` and `temperature`
    ($\log \alpha$), `target` network of the critic, running `statistics` of observations,
    action range `bounds`, and random `key`."""

    actor: Learner
    critic: Learner
    target: Any
    temperature: Learner
    statistics: ObservationStatistics | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray


class SAC(AbstractOffPolicy):
    r"""Soft actor-critic: off-policy learning of a policy that maximizes return plus
    entropy.

    For transitions $(o, a, r, o')$ of the replay, with $a' \sim \pi(o')$ and
    $\hat a \sim \pi(o)$,

    $$y = r + \gamma_t \left(\min_k \bar Q_k(o', a') - \alpha \log \pi(a'|o')\right), \quad
    L_Q = \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2,$$
    $$L_\pi = \mathrm{mean}\left[\alpha \log \pi(\hat a|o) - \min_k Q_k(o, \hat a)\right],
    \quad L_\alpha = -\log \alpha\,\mathrm{mean}\left[\log \pi(\hat a|o) + \bar H\right],$$

    where $\gamma_t$ is zero where the task terminated and $\gamma$ elsewhere, also at a
    time limit, and $\bar Q$ follows $Q$ by
    $\bar\theta \leftarrow (1 - \tau) \bar\theta + \tau \theta$. An update changes critic,
    actor, temperature and target, in this order.

    Differences from the paper: vectorized environments; `reward_scale` besides $\alpha$;
    optional observation normalization, and layer normalization of critics, which permits
    more updates per step.

    **Arguments:** those of `AbstractOffPolicy`, and

    - `temperature_learning_rate`: Adam step size of $\log \alpha$.
    - `target_entropy`: $\bar H$ per actuator.
    - `initial_temperature`: first value of $\alpha$.
    - `learn_temperature`: false keeps $\alpha$ at `initial_temperature`.

    ??? cite "Reference"
        Haarnoja et al., *Soft actor-critic algorithms and applications*, 2018, equations
        5, 7, 18 and algorithm 1.
    """

    learn_temperature: bool = static(True)
    temperature_learning_rate: Float[Array, ""] = eqx.field(
        converter=as_scalar, default=3e-4
    )
    target_entropy: Float[Array, ""] = eqx.field(converter=as_scalar, default=-1.0)
    initial_temperature: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def create(
        self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"], dtype: Any
    ) -> SACLearner:
        key, *keys = jr.split(key, 3)
        nu = bounds.shape[0]
        actor, critic = self.networks(keys, obs, StochasticPolicy, (2 * nu, nu), dtype)
        log_alpha = jnp.log(self.initial_temperature.astype(dtype))
        return SACLearner(
            actor=Learner.create(actor, self.optimizer()),
            critic=Learner.create(critic, self.optimizer()),
            target=critic,
            temperature=Learner.create(log_alpha, self.temperature_optimizer()),
            statistics=None,
            bounds=bounds,
            key=key,
        )

    def temperature_optimizer(self) -> optax.GradientTransformation:
        """Return Adam with `temperature_learning_rate`."""
        return optax.adam(self.temperature_learning_rate)

    def action(
        self, learner: SACLearner, obs: Any, key: PRNGKeyArray | None
    ) -> Float[Array, " nu"]:
        policy = self.inputs.policy(learner.actor.model, learner.critic.model)
        distribution = policy(normalize(learner.statistics, obs))
        if key is None:
            return scale_action(learner.bounds, distribution.mode())
        return scale_action(learner.bounds, distribution.sample_and_log_prob(key)[0])

    def explorer(self, learner: SACLearner, random: Bool[Array, ""]) -> Explorer:
        policy = self.inputs.policy(learner.actor.model, learner.critic.model)
        return Explorer(policy, learner.statistics, random)

    @same_precision
    def update(
        self, learner: SACLearner, batch: Transition
    ) -> tuple[SACLearner, dict[str, Float[Array, "..."]]]:
        """Take one gradient step on a batch.

        **Arguments:**

        - `learner`: the learned part of an `OffPolicyState`.
        - `batch`: transitions with one axis, with actions between -1 and 1.

        **Returns:** the new learner; losses, the mean value `q`, mean and standard deviation
        of its `target`, the `entropy` of the policy, and the `temperature`.
        """
        key, key_next, key_actor = jr.split(learner.key, 3)
        obs = self.seen(learner.statistics, batch.obs, jr.fold_in(key_actor, 1))
        next_obs = self.seen(
            learner.statistics, batch.next_obs, jr.fold_in(key_next, 1)
        )
        alpha = jnp.exp(learner.temperature.model)

        # Critic.
        policy = self.inputs.policy(learner.actor.model, learner.critic.model)
        next_value = soft_value(policy, learner.target, next_obs, alpha, key_next)
        target = td_target(
            self.reward_scale * batch.reward,
            next_value,
            batch.terminated,
            self.discount,
        )
        critic, of_critic = learner.critic.apply_loss_fn(
            lambda critic: td_loss(critic, obs, batch.action, target), self.optimizer()
        )

        # Actor.
        inputs = self.inputs.actor_inputs(critic.model, obs)
        actor, of_actor = learner.actor.apply_loss_fn(
            lambda actor: soft_actor_loss(
                actor, critic.model, obs, inputs, alpha, key_actor
            ),
            self.optimizer(),
        )

        # Temperature.
        entropy = of_actor["entropy"]
        temperature, of_temperature = learner.temperature, {}
        if self.learn_temperature:
            aim = self.target_entropy * batch.action.shape[1]
            temperature, of_temperature = temperature.apply_loss_fn(
                lambda log_alpha: temperature_loss(log_alpha, entropy, aim),
                self.temperature_optimizer(),
            )

        # Target network.
        new = dataclasses.replace(
            learner,
            actor=actor,
            critic=critic,
            target=target_update(critic.model, learner.target, self.target_rate),
            temperature=temperature,
            key=key,
        )
        losses = {"critic": of_critic, "actor": of_actor, "temperature": of_temperature}
        metrics = {f"{k}_loss": x["loss"] for k, x in losses.items() if x}
        metrics |= {name: of_critic[name] for name in TD_METRICS}
        return new, metrics | {"entropy": entropy, "temperature": alpha}


# Losses.


def soft_value(
    policy: Callable[[Any], Any],
    critic: Callable[[Any, Any], Float[Array, " critics"]],
    obs: Any,
    alpha: Float[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, " rows"]:
    r"""Estimate the soft state value $\min_k Q_k(o, a) - \alpha \log \pi(a|o)$ with
    $a \sim \pi(o)$."""
    action, log_prob = sample_actions(policy, obs, key)
    return lowest_value(critic, obs, action) - alpha * log_prob


def soft_actor_loss(
    actor: Callable[[Any], Any],
    critic: Callable[[Any, Any], Float[Array, " critics"]],
    obs: Any,
    actor_inputs: Any,
    alpha: Float[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Compute the loss $\mathrm{mean}\,[\alpha \log \pi(a|o) - \min_k Q_k(o, a)]$ with
    $a \sim \pi(o)$, and the `entropy`.

    **Arguments:**

    - `actor_inputs`: rows that the actor takes; `obs`, unless it shares an encoder.
    """
    action, log_prob = sample_actions(actor, actor_inputs, key)
    q = lowest_value(critic, obs, action)
    return jnp.mean(alpha * log_prob - q), {"entropy": -jnp.mean(log_prob)}


def temperature_loss(
    log_alpha: Float[Array, ""],
    entropy: Float[Array, ""],
    target_entropy: Float[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Compute the loss $\log \alpha\,(H - \bar H)$, which increases $\alpha$ while the
    entropy is below its target."""
    return log_alpha * (entropy - target_entropy), {}
