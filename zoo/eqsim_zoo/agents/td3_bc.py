"""TD3 with a behavior cloning term."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, check_positive, static
from ..blocks.networks import Learner, target_update
from ..blocks.replay import lowest_value, td_loss
from .offline_agent import AbstractOfflineCritic, action_distance, NetworkMaker
from .td3 import deterministic_actor_loss, smoothed_actions


class TD3BCState(eqx.Module):
    """State of `TD3BC`: learners of `actor` and `critic`, their `targets`, number of
    `updates` since the policy was last updated, `statistics` of observations, and action
    range `bounds`."""

    actor: Learner
    critic: Learner
    targets: tuple[Any, Any]
    statistics: dict[str, RunningStatistics] | None
    bounds: Float[Array, "nu 2"]
    updates: Int[Array, ""]
    key: PRNGKeyArray


class TD3BC(AbstractOfflineCritic):
    r"""TD3 with a behavior cloning term, which keeps actions near those of the dataset.

    $$y = r + \gamma_t \min_k \bar Q_k(o', \mathrm{clip}(\bar\pi(o') + \epsilon)), \quad
    L_Q = \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2,$$
    $$L_\pi = \mathrm{mean}\left[-\lambda\,Q_1(o, \pi(o)) + |\pi(o) - a|^2 / n_u\right],
    \quad \lambda = \alpha / \mathrm{mean}\,|Q_1(o, \pi(o))|,$$

    with $\epsilon$ normal and clipped, $\gamma_t$ zero where the task ended, and
    $\lambda$ a constant in derivatives. Observations are normalized.

    **Arguments:** those of `AbstractOfflineCritic`, and

    - `alpha`: weight of values relative to imitation.
    - `policy_delay`: critic updates per update of policy and targets.
    - `target_noise`: standard deviation of the noise on target actions.
    - `noise_clip`: clip range of that noise.

    ??? cite "Reference"
        Fujimoto, Gu, *A minimalist approach to offline reinforcement learning*, 2021,
        equations 3 and 5, table 3.
    """

    normalize_observations: bool = static(True)
    policy_delay: int = static(2)
    alpha: Float[Array, ""] = eqx.field(converter=as_scalar, default=2.5)
    target_noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    noise_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)

    def __check_init__(self):
        check_positive(self, "policy_delay")

    def begin(self, key: PRNGKeyArray, make: NetworkMaker) -> TD3BCState:
        key, key_actor, key_critic = jr.split(key, 3)
        critic, adam = make.critic(key_critic), self.optimizer()
        actor = make.deterministic(key_actor, critic)
        return TD3BCState(
            Learner.create(actor, adam),
            Learner.create(critic, adam),
            (actor, critic),
            make.statistics(),
            make.bounds,
            jnp.zeros((), jnp.int32),
            key,
        )

    def policy(self, state: TD3BCState) -> Callable[[Any], Any]:
        return self.inputs.policy(state.actor.model, state.critic.model)

    def learn(
        self, state: TD3BCState, batch: Transition, keys: Key[Array, "2"]
    ) -> tuple[TD3BCState, dict[str, Array]]:
        """Take one gradient step.

        **Returns:** the new state; losses, the mean value `q`, and the mean square
        `action_distance`. Between updates of the policy its loss is evaluated only.
        """
        target_actor, target_critic = state.targets
        adam = self.optimizer()

        next_action = smoothed_actions(
            self.inputs.policy(target_actor, target_critic),
            batch.next_obs,
            self.target_noise,
            self.noise_clip,
            keys[0],
        )
        next_value = lowest_value(target_critic, batch.next_obs, next_action)
        target = self.target(batch, next_value)
        critic, of_critic = state.critic.apply_loss_fn(
            lambda critic: td_loss(critic, batch.obs, batch.action, target), adam
        )

        features = self.inputs.actor_inputs(critic.model, batch.obs)

        def actor_loss(actor):
            q_loss, found = deterministic_actor_loss(
                actor, critic.model, batch.obs, features
            )
            return cloned(q_loss, found, batch.action, self.alpha), {}

        def improve():
            actor, found = state.actor.apply_loss_fn(actor_loss, adam)
            pair = actor.model, critic.model
            targets = target_update(pair, state.targets, self.target_rate)
            return actor, targets, found["loss"]

        def wait():
            return state.actor, state.targets, actor_loss(state.actor.model)[0]

        due = state.updates == 0
        actor, targets, loss = lax.cond(due, improve, wait)
        count = (state.updates + 1) % self.policy_delay
        learned = {"actor": actor, "critic": critic, "targets": targets}
        new = dataclasses.replace(state, **learned, updates=count)
        distance = action_distance(state.actor.model, features, batch.action)
        metrics = {"critic_loss": of_critic["loss"], "q": of_critic["q"]}
        return new, metrics | {"actor_loss": loss, "action_distance": distance}


def cloned(
    q_loss: Float[Array, ""],
    found: dict[str, Array],
    action: Float[Array, "rows nu"],
    alpha: Float[Array, ""],
) -> Float[Array, ""]:
    r"""Compute $\alpha$ times the loss of TD3, normalized by $\mathrm{mean}\,|Q_1|$,
    plus the mean squared distance from actions of the dataset.

    **Arguments:**

    - `q_loss`, `found`: result of `deterministic_actor_loss`.
    """
    size = lax.stop_gradient(jnp.maximum(found["abs_q"], 1e-6))
    return jnp.mean((found["action"] - action) ** 2) + alpha / size * q_loss
