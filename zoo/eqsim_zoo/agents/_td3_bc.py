import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim.wrappers import Statistics

from ..blocks import (
    as_scalar,
    cast_floats,
    check_positive,
    critic_step,
    Learner,
    select_action,
    static,
    target_update,
    Transition,
)
from ..vision import EncodedNetwork
from ._offline import AbstractOfflineAgent, action_distance, eyes, Start, Through


class TD3BCState(eqx.Module):
    """`actor`, `critic`: learners. `targets`: both, some time ago. `updates`: their number
    since the policy was last updated. `statistics`: of observations. `bounds`: of
    actions."""

    actor: Learner
    critic: Learner
    targets: tuple[EncodedNetwork, EncodedNetwork]
    statistics: dict[str, Statistics] | None
    bounds: Float[Array, "nu 2"]
    updates: Int[Array, ""]
    key: PRNGKeyArray


class TD3BC(AbstractOfflineAgent):
    r"""TD3 that stays near what was recorded.

    $$y = r + \gamma_t \min_k \bar Q_k(o', \mathrm{clip}(\bar\pi(o') + \epsilon)), \quad
    L_Q = \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2,$$
    $$L_\pi = \mathrm{mean}\left[-\lambda\,Q_1(o, \pi(o)) + |\pi(o) - a|^2 / n_u\right],
    \quad \lambda = \alpha / \mathrm{mean}\,|Q_1(o, \pi(o))|,$$

    with $\epsilon$ normal and clipped, $\gamma_t$ zero where the task ended, and
    $\lambda$ a constant in derivatives. Observations are normalized.

    **Arguments:** those of `AbstractOfflineAgent`, and

    - `discount`, `target_rate`, `reward_scale`: as of `IQL`.
    - `alpha`: how much values count beside what was recorded.
    - `policy_delay`: updates of the critics for one of the policy and the targets.
    - `target_noise`, `noise_clip`: of the actions of the target.

    ??? cite "Reference"
        Fujimoto, Gu, *A minimalist approach to offline reinforcement learning*, 2021,
        equations 3 and 5, table 3.
    """

    normalize_observations: bool = static(True)
    policy_delay: int = static(2)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    target_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.005)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    alpha: Float[Array, ""] = eqx.field(converter=as_scalar, default=2.5)
    target_noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    noise_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)

    def __check_init__(self):
        check_positive(self, "policy_delay")

    def begin(self, key: PRNGKeyArray, start: Start) -> TD3BCState:
        key, key_actor, key_critic = jr.split(key, 3)
        critic, adam = start.critic(key_critic), self.optimizer()
        actor = start.actor(key_actor, shared=critic.senses)
        return TD3BCState(
            Learner.create(actor, adam),
            Learner.create(critic, adam),
            (actor, critic),
            start.statistics(),
            start.bounds,
            jnp.zeros((), jnp.int32),
            key,
        )

    def policy(self, state: TD3BCState) -> Callable[[Any], Any]:
        actor = Through(eyes(self, state.critic.model), state.actor.model)
        return lambda obs: select_action(actor(obs), None)

    def update(
        self, state: TD3BCState, batch: Transition
    ) -> tuple[TD3BCState, dict[str, Float[Array, "..."]]]:
        """Learns from a `Transition` with one axis, of rows; actions are between -1
        and 1.

        **Returns:** the new state; losses, the mean value `q`, and the mean square
        `action_distance`. Where the policy is not updated its loss is what it was.
        """
        self = cast_floats(self, batch.reward.dtype)
        key, key_look, key_noise = jr.split(state.key, 3)
        batch = self.seen(state, batch, key_look)
        slow_actor, slow_critic = state.targets
        best = lambda actor, obs: select_action(actor(obs), None)
        slow_best = Through(eyes(self, slow_critic), slow_actor)

        normal = jr.normal(key_noise, batch.action.shape, batch.action.dtype)
        noise = jnp.clip(self.target_noise * normal, -self.noise_clip, self.noise_clip)
        action = jax.vmap(lambda obs: best(slow_best, obs))(batch.next_obs)
        action = jnp.clip(action + noise, -1.0, 1.0)
        after = jnp.min(jax.vmap(slow_critic)(batch.next_obs, action), axis=1)
        left = jnp.where(batch.terminated, 0.0, self.discount)
        target = self.reward_scale * batch.reward + left * after
        adam = self.optimizer()
        critic, metrics = critic_step(
            state.critic, batch.obs, batch.action, target, adam
        )
        look = jax.vmap(eyes(self, critic.model))
        obs = look(batch.obs)

        def actor_loss(actor):
            action = jax.vmap(lambda obs: best(actor, obs))(obs)
            q = jax.vmap(critic.model)(batch.obs, action)[:, 0]
            weight = lax.stop_gradient(
                self.alpha / jnp.maximum(jnp.mean(jnp.abs(q)), 1e-6)
            )
            return jnp.mean((action - batch.action) ** 2) - weight * jnp.mean(q), {}

        def improve():
            actor, found = state.actor.apply_loss_fn(actor_loss, adam)
            pair = actor.model, critic.model
            targets = target_update(pair, state.targets, self.target_rate)
            return actor, targets, found["loss"]

        def wait():
            return state.actor, state.targets, actor_loss(state.actor.model)[0]

        due = state.updates == 0
        actor, targets, loss = lax.cond(due, improve, wait)
        new = dataclasses.replace(
            state,
            actor=actor,
            critic=critic,
            targets=targets,
            updates=(state.updates + 1) % self.policy_delay,
            key=key,
        )
        distance = action_distance(state.actor.model, obs, batch.action)
        return new, {**metrics, "actor_loss": loss, "action_distance": distance}
