""""""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv

from ..blocks.hyperparameters import as_scalar, cast_floats, static
from ..blocks.networks import Learner, target_update
from ..blocks.observations import (
    acts_on_batches,
    init_statistics,
    normalize,
    ObservationStatistics,
    update_statistics,
)
from ..blocks.policies import Explorer, sample_actions, scale, StochasticPolicy
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


class SACState(eqx.Module):
    r"""State of `SAC`: learners of `actor`, `critic` and `temperature` ($\log \alpha$),
    `target` network of the critic, running `statistics` of observations, action range
    `bounds`, and `memory`, which is None during updates."""

    actor: Learner
    critic: Learner
    target: Any
    temperature: Learner
    statistics: ObservationStatistics | None
    bounds: Float[Array, "nu 2"]
    memory: Memory | None
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

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> SACState:
        key, key_envs = jr.split(key)
        running, example = init_running(self, env, key_envs)
        state = self.create(
            key, example.obs, jnp.array(env.action_range), example.reward.dtype
        )
        normalized = self.normalize_observations
        return dataclasses.replace(
            state,
            statistics=init_statistics(example.obs) if normalized else None,
            memory=init_memory(self, running, example),
        )

    def create(
        self,
        key: PRNGKeyArray,
        obs: Any,
        bounds: Float[Array, "nu 2"],
        dtype: Any = None,
    ) -> SACState:
        """Create networks for observations like `obs`, without statistics and memory.

        **Arguments:**

        - `dtype`: type of the networks; by default that of `bounds`.
        """
        dtype, nu = dtype or bounds.dtype, bounds.shape[0]
        self = cast_floats(self, dtype)
        key, *keys = jr.split(key, 3)
        sizes = 2 * nu, nu
        actor, critic = self.networks(keys, obs, StochasticPolicy, sizes, dtype)
        adam = self.optimizer()
        return SACState(
            actor=Learner.create(actor, adam),
            critic=Learner.create(critic, adam),
            target=critic,
            temperature=Learner.create(jnp.log(self.initial_temperature), adam),
            statistics=None,
            bounds=bounds,
            memory=None,
            key=key,
        )

    @acts_on_batches
    def act(
        self, state: SACState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        policy = self.policy(state.actor.model, state.critic.model)
        distribution = policy(normalize(state.statistics, obs))
        if key is None:
            return scale(state.bounds, distribution.mode())
        return scale(state.bounds, distribution.sample_and_log_prob(key)[0])

    def iterate(
        self, state: SACState, env: AbstractEnv
    ) -> tuple[SACState, dict[str, Float[Array, "..."]]]:
        """Collect `unroll_length` steps, add them to the replay, and learn from
        `num_updates` batches of it."""
        self = cast_floats(self, state.bounds.dtype)
        key, key_act, key_learn = jr.split(state.key, 3)
        memory, statistics = state.memory, state.statistics
        assert memory is not None

        # Collect, and add to the replay.
        uniform = explores_uniformly(self, memory)
        policy = self.policy(state.actor.model, state.critic.model)
        explorer = Explorer(policy, statistics, jnp.zeros_like(self.discount), uniform)
        memory, rows, report = collect_to_replay(self, env, explorer, memory, key_act)
        statistics = update_statistics(statistics, rows.obs)

        # Learn.
        state = dataclasses.replace(state, statistics=statistics, memory=None, key=key)
        state, metrics = scan_updates(self, self.update, state, memory, key_learn)
        return dataclasses.replace(state, memory=memory), report | metrics

    def update(
        self, state: SACState, batch: Transition
    ) -> tuple[SACState, dict[str, Float[Array, "..."]]]:
        """Take one gradient step on transitions with one axis, with actions between -1 and
        1.

        **Returns:** the new state; losses, the mean value `q`, mean and standard deviation
        of its `target`, the `entropy` of the policy, and the `temperature`.
        """
        self = cast_floats(self, batch.reward.dtype)
        key, key_next, key_actor = jr.split(state.key, 3)
        obs = self.seen(state.statistics, batch.obs, jr.fold_in(key_actor, 1))
        next_obs = self.seen(state.statistics, batch.next_obs, jr.fold_in(key_next, 1))
        alpha, adam = jnp.exp(state.temperature.model), self.optimizer()

        # Critic.
        policy = self.policy(state.actor.model, state.critic.model)
        next_value = soft_value(policy, state.target, next_obs, alpha, key_next)
        target = td_target(
            self.reward_scale * batch.reward,
            next_value,
            batch.terminated,
            self.discount,
        )
        critic, of_critic = state.critic.apply_loss_fn(
            lambda critic: td_loss(critic, obs, batch.action, target), adam
        )

        # Actor.
        features = self.features(critic.model, obs)
        actor, of_actor = state.actor.apply_loss_fn(
            lambda actor: soft_actor_loss(
                actor, critic.model, obs, alpha, key_actor, features
            ),
            adam,
        )

        # Temperature.
        entropy = of_actor["entropy"]
        temperature, of_temperature = state.temperature, {}
        if self.learn_temperature:
            aim = self.target_entropy * batch.action.shape[1]
            temperature, of_temperature = temperature.apply_loss_fn(
                lambda log_alpha: temperature_loss(log_alpha, entropy, aim),
                optax.adam(self.temperature_learning_rate),
            )

        # Target network.
        new = dataclasses.replace(
            state,
            actor=actor,
            critic=critic,
            target=target_update(critic.model, state.target, self.target_rate),
            temperature=temperature,
            key=key,
        )
        losses = {"critic": of_critic, "actor": of_actor, "temperature": of_temperature}
        metrics = {f"{k}_loss": x["loss"] for k, x in losses.items() if x}
        metrics |= {name: of_critic[name] for name in TD_METRICS}
        return new, metrics | {"entropy": entropy, "temperature": alpha}


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
    alpha: Float[Array, ""],
    key: PRNGKeyArray,
    features: Any = None,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Compute the loss $\mathrm{mean}\,[\alpha \log \pi(a|o) - \min_k Q_k(o, a)]$ with
    $a \sim \pi(o)$, and the `entropy`.

    **Arguments:**

    - `features`: input of the actor; `obs` if None.
    """
    seen = obs if features is None else features
    action, log_prob = sample_actions(actor, seen, key)
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
