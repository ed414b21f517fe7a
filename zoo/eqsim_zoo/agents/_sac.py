import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.wrappers import Statistics

from ..blocks import (
    AbstractOffPolicy,
    as_scalar,
    cast_floats,
    Critic,
    critic_step,
    Learner,
    Memory,
    normalize,
    sample_actions,
    scale,
    StochasticPolicy,
    target_update,
    Transition,
)


class SACState(eqx.Module):
    """`actor`, `critic`: learners of a `StochasticPolicy` and a `Critic`. `target`: the
    critic, some time ago. `temperature`: learner of $\\log \\alpha$. `statistics`: of
    observations. `bounds`: of actions."""

    actor: Learner
    critic: Learner
    target: Critic
    temperature: Learner
    statistics: Statistics | None
    bounds: Float[Array, "nu 2"]
    memory: Memory | None
    key: PRNGKeyArray


class SAC(AbstractOffPolicy):
    r"""Soft actor-critic: the best policy among those that stay undecided.

    Of transitions $(o, a, r, o')$ out of a memory, with $a' \sim \pi(o')$ and
    $\hat a \sim \pi(o)$ drawn anew,

    $$y = r + \gamma_t \left(\min_k \bar Q_k(o', a') - \alpha \log \pi(a'|o')\right), \quad
    L_Q = \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2,$$
    $$L_\pi = \mathrm{mean}\left[\alpha \log \pi(\hat a|o) - \min_k Q_k(o, \hat a)\right],
    \quad L_\alpha = -\log \alpha\,\mathrm{mean}\left[\log \pi(\hat a|o) + \bar H\right],$$

    where $\gamma_t$ is zero if the task ended and $\gamma$ else, also at a time limit,
    and $\bar Q$ follows $Q$ by $\bar\theta \leftarrow (1 - \tau) \bar\theta + \tau \theta$.
    Each step updates critic, actor, temperature and target, in this order, with what the
    one before gave.

    Differences from the paper: many environments side by side; rewards are scaled instead
    of $\alpha$ where both would do; observations may be normalized, and critics may have
    layer normalization, which allows more updates per step.

    **Arguments:** those of `AbstractOffPolicy`, and

    - `temperature_learning_rate`: of Adam, for $\log \alpha$.
    - `target_entropy`: $\bar H$ per actuator. `initial_temperature`: $\alpha$.

    ??? cite "Reference"
        Haarnoja et al., *Soft actor-critic algorithms and applications*, 2018, equations
        5, 7, 18 and algorithm 1.
    """

    temperature_learning_rate: Float[Array, ""] = eqx.field(
        converter=as_scalar, default=3e-4
    )
    target_entropy: Float[Array, ""] = eqx.field(converter=as_scalar, default=-1.0)
    initial_temperature: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def begin(
        self, key: PRNGKeyArray, memory: Memory, bounds: Float[Array, "nu 2"]
    ) -> SACState:
        key, key_actor, key_critic = jr.split(key, 3)
        actor = StochasticPolicy(self.create_actor(key_actor, memory, 2))
        critic, adam = self.create_critic(key_critic, memory), self.optimizer()
        return SACState(
            Learner.create(actor, adam),
            Learner.create(critic, adam),
            critic,
            Learner.create(jnp.log(self.initial_temperature), adam),
            self.statistics(memory),
            bounds,
            memory,
            key,
        )

    def explore(self, state: SACState) -> tuple[StochasticPolicy, Float[Array, ""]]:
        return state.actor.model, jnp.zeros_like(self.discount)

    def act(
        self, state: SACState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        distribution = state.actor.model(normalize(state.statistics, obs))
        if key is None:
            return scale(state.bounds, distribution.mode())
        return scale(state.bounds, distribution.sample_and_log_prob(key)[0])

    def update(
        self, state: SACState, batch: Transition
    ) -> tuple[SACState, dict[str, Float[Array, "..."]]]:
        """Learns from a `Transition` with one axis, of rows; actions are between -1
        and 1.

        **Returns:** the new state; losses, the mean value `q`, the `entropy` of the policy,
        and the `temperature`.
        """
        self = cast_floats(self, batch.reward.dtype)
        seen = jax.vmap(lambda obs: normalize(state.statistics, obs))
        obs, next_obs = seen(batch.obs), seen(batch.next_obs)
        key, key_next, key_now = jr.split(state.key, 3)
        alpha = jnp.exp(state.temperature.model)

        action, log_prob = sample_actions(state.actor.model, next_obs, key_next)
        after = jnp.min(jax.vmap(state.target)(next_obs, action), axis=1)
        left = jnp.where(batch.terminated, 0.0, self.discount)
        target = self.reward_scale * batch.reward + left * (after - alpha * log_prob)

        adam = self.optimizer()
        critic, metrics = critic_step(state.critic, obs, batch.action, target, adam)

        def actor_loss(actor):
            action, log_prob = sample_actions(actor, obs, key_now)
            q = jnp.min(jax.vmap(critic.model)(obs, action), axis=1)
            return jnp.mean(alpha * log_prob - q), {"entropy": -jnp.mean(log_prob)}

        actor, of_actor = state.actor.apply_loss_fn(actor_loss, adam)
        aim = self.target_entropy * batch.action.shape[1]
        excess = of_actor["entropy"] - aim
        temperature, _ = state.temperature.apply_loss_fn(
            lambda log_alpha: (log_alpha * excess, {}),
            optax.adam(self.temperature_learning_rate),
        )
        slow = target_update(critic.model, state.target, self.target_rate)
        new = dataclasses.replace(
            state,
            actor=actor,
            critic=critic,
            target=slow,
            temperature=temperature,
            key=key,
        )
        of_actor = {"actor_loss": of_actor["loss"], "entropy": of_actor["entropy"]}
        return new, {**metrics, **of_actor, "temperature": alpha}
