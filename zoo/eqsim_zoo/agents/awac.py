"""Advantage-weighted actor-critic: imitation, weighted by advantages."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PRNGKeyArray

from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, check_positive, static
from ..blocks.networks import Learner, target_update
from ..blocks.replay import lowest_value, td_loss
from .offline_agent import (
    AbstractLevelAgent,
    AbstractOfflineCritic,
    action_distance,
    NetworkMaker,
    select_action,
)


class AWACState(eqx.Module):
    """State of `AWAC`: learners of `actor` and `critic`, `target` network of the critic,
    `statistics` of observations, and action range `bounds`."""

    actor: Learner
    critic: Learner
    target: Any
    statistics: dict[str, RunningStatistics] | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray


class AWAC(AbstractLevelAgent, AbstractOfflineCritic):
    r"""Advantage-weighted actor-critic: imitation of the dataset, in which actions with
    larger advantages have larger weights.

    $$y = r + \gamma_t \min_k \bar Q_k(o', a'), \quad a' \sim \pi(o'), \quad
    L_Q = \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2,$$
    $$L_\pi = -\mathrm{mean}\,\min(e^{A / \lambda}, c) \log \pi(a|o), \quad
    A = \min_k Q_k(o, a) - \mathrm{mean}_i \min_k Q_k(o, a_i), \quad a_i \sim \pi(o),$$

    where $\gamma_t$ is zero where the task ended.

    Differences from the paper: its code divides weights by their sum in a batch; here they
    are limited, as in `IQL`.

    **Arguments:** those of `AbstractLevelAgent` and `AbstractOfflineCritic`, and

    - `weight_limit`: largest weight of a row.
    - `temperature`: temperature $\lambda$ of the weights.
    - `num_actions`: number of actions $a_i$ per row.

    ??? cite "Reference"
        Nair, Gupta, Dalal, Levine, *AWAC: accelerating online reinforcement learning with
        offline datasets*, 2020, equation 13, algorithm 1.
    """

    num_actions: int = static(1)
    temperature: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    weight_limit: Float[Array, ""] = eqx.field(converter=as_scalar, default=100.0)

    def __check_init__(self):
        check_positive(self, "num_actions")

    def begin(self, key: PRNGKeyArray, make: NetworkMaker) -> AWACState:
        key, key_actor, key_critic = jr.split(key, 3)
        critic, adam = make.critic(key_critic, levels=self.levels), self.optimizer()
        actor = make.actor(key_actor, critic, self.levels)
        return AWACState(
            Learner.create(actor, adam),
            Learner.create(critic, adam),
            critic,
            make.statistics(),
            make.bounds,
            key,
        )

    def policy(self, state: AWACState) -> Callable[[Any], Any]:
        return self.inputs.policy(state.actor.model, state.critic.model)

    def learn(
        self, state: AWACState, batch: Transition, keys: Key[Array, "2"]
    ) -> tuple[AWACState, dict[str, Array]]:
        """Take one gradient step.

        **Returns:** the new state; losses, the mean value `q`, the mean `advantage`, and
        the mean square `action_distance`.
        """
        actor, adam = self.policy(state), self.optimizer()

        action = _drawn(actor, batch.next_obs, keys[0])
        target = self.target(batch, lowest_value(state.target, batch.next_obs, action))
        critic, of_critic = state.critic.apply_loss_fn(
            lambda critic: td_loss(critic, batch.obs, batch.action, target), adam
        )

        value = lambda action: lowest_value(critic.model, batch.obs, action)
        own_value = lambda key: value(_drawn(actor, batch.obs, key))
        own = jax.vmap(own_value)(jr.split(keys[1], self.num_actions))
        advantage = value(batch.action) - jnp.mean(own, axis=0)
        weight = jnp.minimum(jnp.exp(advantage / self.temperature), self.weight_limit)
        obs = self.inputs.actor_inputs(critic.model, batch.obs)

        def actor_loss(actor):
            log_prob = lambda obs, action: actor(obs).log_prob(action)
            return -jnp.mean(weight * jax.vmap(log_prob)(obs, batch.action)), {}

        distance = action_distance(state.actor.model, obs, batch.action)
        learner, of_actor = state.actor.apply_loss_fn(actor_loss, adam)
        slow = target_update(critic.model, state.target, self.target_rate)
        new = dataclasses.replace(state, actor=learner, critic=critic, target=slow)
        return new, {
            "critic_loss": of_critic["loss"],
            "q": of_critic["q"],
            "actor_loss": of_actor["loss"],
            "advantage": jnp.mean(advantage),
            "action_distance": distance,
        }


def _drawn(actor: Callable[[Any], Any], obs: Any, key: PRNGKeyArray) -> Array:
    """Sample an action for each row."""
    rows = jax.tree_util.tree_leaves(obs)[0].shape[0]
    draw = lambda obs, key: select_action(actor(obs), key)
    return jax.vmap(draw)(obs, jr.split(key, rows))
