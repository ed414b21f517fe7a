"""Implicit Q-learning: expectiles instead of maxima over actions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, cosine_schedule
from ..blocks.networks import Learner, target_update
from ..blocks.replay import lowest_value, td_loss
from .offline_agent import (
    AbstractLevelAgent,
    AbstractOfflineCritic,
    action_distance,
    NetworkMaker,
)


class IQLState(eqx.Module):
    """State of `IQL`: learners of `actor`, `critic` and `value`, `target` network of the
    critic, `statistics` of observations, action range `bounds`, and number of `updates`."""

    actor: Learner
    critic: Learner
    value: Learner
    target: Any
    statistics: dict[str, RunningStatistics] | None
    bounds: Float[Array, "nu 2"]
    updates: Int[Array, ""]
    key: PRNGKeyArray


class IQL(AbstractLevelAgent, AbstractOfflineCritic):
    r"""Implicit Q-learning: values of the best actions in the dataset, by expectile
    regression; values of other actions are never queried.

    $$L_V = \mathrm{mean}\,|\tau - 1(u < 0)|\,u^2, \quad
    u = \min_k \bar Q_k(o, a) - V(o),$$
    $$L_Q = \sum_k \mathrm{mean}\,(r + \gamma_t V(o') - Q_k(o, a))^2, \quad
    L_\pi = -\mathrm{mean}\,\min(e^{\beta A}, c) \log \pi(a|o),$$

    with $A = \min_k \bar Q_k(o, a) - V(o)$, and $\gamma_t$ zero where the task ended.
    Each step updates value, actor, critic and target, in this order, with what the one
    before gave.

    Differences from the paper: deviations of the policy are within smooth bounds; its
    rates: the authors' code anneals that of the actor over the whole run, here
    `anneal_steps` says how long that is (0: never). Rewards are scaled by
    `with_scaled_rewards`, if at all, before.

    **Arguments:** those of `AbstractOfflineCritic` and `AbstractLevelAgent` (with `levels`,
    critics give the values of all actions), and

    - `expectile`: expectile $\tau$ of the value.
    - `temperature`: inverse temperature $\beta$ of the weights.
    - `weight_limit`: largest weight $c$ of a row.
    - `anneal_steps`: updates in which the learning rate of the actor decreases to zero along
        half a cosine; 0 keeps it.

    ??? cite "Reference"
        Kostrikov, Nair, Levine, *Offline reinforcement learning with implicit Q-learning*,
        2022, equations 5 to 7, algorithm 1, appendix B.
    """

    expectile: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.7)
    temperature: Float[Array, ""] = eqx.field(converter=as_scalar, default=3.0)
    weight_limit: Float[Array, ""] = eqx.field(converter=as_scalar, default=100.0)
    anneal_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)

    def begin(self, key: PRNGKeyArray, make: NetworkMaker) -> IQLState:
        key, key_actor, key_critic, key_value = jr.split(key, 4)
        critic, adam = make.critic(key_critic, levels=self.levels), self.optimizer()
        actor = make.actor(key_actor, critic, self.levels)
        value = make.value(key_value, critic)
        return IQLState(
            Learner.create(actor, adam),
            Learner.create(critic, adam),
            Learner.create(value, adam),
            critic,
            make.statistics(),
            make.bounds,
            jnp.zeros((), jnp.int32),
            key,
        )

    def policy(self, state: IQLState) -> Callable[[Any], Any]:
        return self.inputs.policy(state.actor.model, state.critic.model)

    def learn(
        self, state: IQLState, batch: Transition, keys: Key[Array, "2"]
    ) -> tuple[IQLState, dict[str, Array]]:
        """Take one gradient step.

        **Returns:** the new state; losses, the mean values `q` and `v`, the mean
        `advantage`, the share `limited` of weights at their limit, and the mean square
        `action_distance`.
        """
        look = lambda obs: self.inputs.actor_inputs(state.critic.model, obs)
        obs, next_obs, adam = look(batch.obs), look(batch.next_obs), self.optimizer()
        q = lowest_value(state.target, batch.obs, batch.action)

        def value_loss(value):
            v = jax.vmap(value)(obs)
            return jnp.mean(expectile_loss(self.expectile, q - v)), {"v": jnp.mean(v)}

        value, of_value = state.value.apply_loss_fn(value_loss, adam)
        advantage = q - jax.vmap(value.model)(obs)
        actor, of_actor = self._imitate(state, obs, batch.action, advantage)

        target = self.target(batch, jax.vmap(value.model)(next_obs))
        critic, of_critic = state.critic.apply_loss_fn(
            lambda critic: td_loss(critic, batch.obs, batch.action, target), adam
        )
        slow = target_update(critic.model, state.target, self.target_rate)
        new = dataclasses.replace(
            state,
            actor=actor,
            critic=critic,
            value=value,
            target=slow,
            # Saturates beyond any schedule.
            updates=jnp.minimum(state.updates + 1, 2**30),
        )
        return new, {
            "critic_loss": of_critic["loss"],
            "q": of_critic["q"],
            "value_loss": of_value["loss"],
            "v": of_value["v"],
            "advantage": jnp.mean(advantage),
            **of_actor,
        }

    def _imitate(self, state, obs, action, advantage):
        """Take a gradient step of the policy, and return its metrics."""
        weight = jnp.exp(self.temperature * advantage)
        limited = jnp.minimum(weight, self.weight_limit)

        def loss(actor):
            log_prob = lambda obs, action: actor(obs).log_prob(action)
            return -jnp.mean(limited * jax.vmap(log_prob)(obs, action)), {}

        done = state.updates.astype(weight.dtype)
        rate = cosine_schedule(self.learning_rate, done, self.anneal_steps)
        distance = action_distance(state.actor.model, obs, action)
        actor, found = state.actor.apply_loss_fn(loss, optax.adam(rate))
        return actor, {
            "actor_loss": found["loss"],
            "limited": jnp.mean((weight >= self.weight_limit).astype(weight.dtype)),
            "action_distance": distance,
        }


def expectile_loss(
    expectile: Float[Array, ""], off: Float[Array, "*rows"]
) -> Float[Array, "*rows"]:
    r"""Compute the expectile loss $|\tau - 1(u < 0)|\,u^2$, which is minimal at the
    $\tau$-expectile of the target."""
    return jnp.where(off > 0.0, expectile, 1.0 - expectile) * off**2
