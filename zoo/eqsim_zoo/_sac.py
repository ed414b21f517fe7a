from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import Statistics

from ._actions import scale
from ._fields import in_type, real, size
from ._learner import Learner
from ._networks import Critic, MLP, target_update
from ._off_policy import check_off_policy, iterate, Memory, remember
from ._policies import StochasticPolicy
from ._replay import Transition
from ._statistics import no_statistics, normalize


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


class SAC(AbstractOnlineAgent):
    r"""Soft actor-critic: the best policy among those that stay undecided.

    Of transitions $(o, a, r, o')$ out of a memory, with $a' \sim \pi(o')$ and
    $\hat a \sim \pi(o)$ drawn anew,

    $$y = r + \gamma_t \left(\min_k \bar Q_k(o', a') - \alpha \log \pi(a'|o')\right), \quad
    L_Q = \tfrac{1}{2} \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2,$$
    $$L_\pi = \mathrm{mean}\left[\alpha \log \pi(\hat a|o) - \min_k Q_k(o, \hat a)\right],
    \quad L_\alpha = -\log \alpha\,\mathrm{mean}\left[\log \pi(\hat a|o) + \bar H\right],$$

    where $\gamma_t$ is zero if the task ended and $\gamma$ else, also at a time limit,
    and $\bar Q$ follows $Q$ by $\bar\theta \leftarrow (1 - \tau) \bar\theta + \tau \theta$.
    Each step updates critic, actor, temperature and target, in this order, with what the
    one before gave.

    Differences from the paper: many environments side by side; rewards are scaled instead
    of $\alpha$ where both would do; observations may be normalized, and critics may have
    layer normalization, which allows more updates per step.

    **Arguments:**

    - `num_envs`, `unroll_length`: environments, and steps of each per iteration.
    - `num_updates`, `batch_size`: updates per iteration, and transitions for each.
    - `capacity`: transitions that are remembered. `random_steps`: that are taken at random
        before anything is learned.
    - `actor_hidden`, `critic_hidden`, `num_critics`, `layer_norm`: of the networks.
    - `normalize_observations`: whether observations are normalized.
    - `learning_rate`, `temperature_learning_rate`: of Adam.
    - `discount`, `target_rate`: $\gamma$ and $\tau$.
    - `target_entropy`: $\bar H$ per actuator. `initial_temperature`: $\alpha$.
    - `reward_scale`: rewards are multiplied by it.

    ??? cite "Reference"
        Haarnoja et al., *Soft actor-critic algorithms and applications*, 2018, equations
        5, 7, 18 and algorithm 1.
    """

    num_envs: int = size(16)
    unroll_length: int = size(4)
    num_updates: int = size(16)
    batch_size: int = size(256)
    capacity: int = size(2**18)
    actor_hidden: tuple[int, ...] = size((256, 256))
    critic_hidden: tuple[int, ...] = size((256, 256))
    num_critics: int = size(2)
    layer_norm: bool = size(False)
    normalize_observations: bool = size(False)
    random_steps: Float[Array, ""] = real(2000.0)
    learning_rate: Float[Array, ""] = real(3e-4)
    temperature_learning_rate: Float[Array, ""] = real(3e-4)
    discount: Float[Array, ""] = real(0.99)
    target_rate: Float[Array, ""] = real(0.005)
    target_entropy: Float[Array, ""] = real(-1.0)
    initial_temperature: Float[Array, ""] = real(1.0)
    reward_scale: Float[Array, ""] = real(1.0)

    def __check_init__(self):
        check_off_policy(self)

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> SACState:
        key, key_actor, key_critic, key_envs = jr.split(key, 4)
        memory = remember(self, env, key_envs)
        obs, nu = memory.running.obs[0], env.sys.nu
        self, dtype = in_type(self, obs.dtype), obs.dtype
        sizes = (obs.shape[0], *self.actor_hidden, 2 * nu)
        actor = StochasticPolicy(
            MLP.create(key_actor, sizes, last_scale=0.01, dtype=dtype)
        )
        critic = Critic.create(
            key_critic,
            obs.shape[0],
            nu,
            self.critic_hidden,
            number=self.num_critics,
            layer_norm=self.layer_norm,
            dtype=dtype,
        )
        return SACState(
            Learner.create(actor, self._optimizer()),
            Learner.create(critic, self._optimizer()),
            critic,
            Learner.create(jnp.log(self.initial_temperature), self._optimizer()),
            no_statistics(obs) if self.normalize_observations else None,
            env.action_range,
            memory,
            key,
        )

    def act(
        self, state: SACState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        distribution = state.actor.model(normalize(state.statistics, obs))
        if key is None:
            return scale(state.bounds, distribution.mode())
        return scale(state.bounds, distribution.sample_and_log_prob(key)[0])

    def iterate(
        self, state: SACState, env: AbstractEnv
    ) -> tuple[SACState, dict[str, Float[Array, "..."]]]:
        self = in_type(self, state.bounds.dtype)
        policy, none = state.actor.model, jnp.zeros_like(self.discount)
        return iterate(self, state, env, policy, none)

    def update(
        self, state: SACState, batch: Transition
    ) -> tuple[SACState, dict[str, Float[Array, "..."]]]:
        """Learns from a `Transition` with one axis, of rows; actions are between -1
        and 1.

        **Returns:** the new state; losses, the mean value `q`, the `entropy` of the policy,
        and the `temperature`.
        """
        self = in_type(self, batch.reward.dtype)
        seen = jax.vmap(lambda obs: normalize(state.statistics, obs))
        obs, next_obs = seen(batch.obs), seen(batch.next_obs)
        key, key_next, key_now = jr.split(state.key, 3)
        alpha = jnp.exp(state.temperature.model)

        action, log_prob = _draw(state.actor.model, next_obs, key_next)
        after = jnp.min(jax.vmap(state.target)(next_obs, action), axis=1)
        left = jnp.where(batch.terminated, 0.0, self.discount)
        target = self.reward_scale * batch.reward + left * (after - alpha * log_prob)

        def critic_loss(critic):
            q = jax.vmap(critic)(obs, batch.action)
            off = jnp.mean((q - target[:, None]) ** 2, axis=0)
            return 0.5 * jnp.sum(off), {"q": jnp.mean(q)}

        optimizer = self._optimizer()
        critic, of_critic = state.critic.apply_loss_fn(critic_loss, optimizer)

        def actor_loss(actor):
            action, log_prob = _draw(actor, obs, key_now)
            q = jnp.min(jax.vmap(critic.model)(obs, action), axis=1)
            return jnp.mean(alpha * log_prob - q), {"entropy": -jnp.mean(log_prob)}

        actor, of_actor = state.actor.apply_loss_fn(actor_loss, optimizer)
        aim = self.target_entropy * batch.action.shape[1]
        excess = of_actor["entropy"] - aim
        temperature, _ = state.temperature.apply_loss_fn(
            lambda log_alpha: (log_alpha * excess, {}),
            optax.adam(self.temperature_learning_rate),
        )
        slow = target_update(critic.model, state.target, self.target_rate)
        place = lambda s: (s.actor, s.critic, s.target, s.temperature, s.key)
        new = eqx.tree_at(place, state, (actor, critic, slow, temperature, key))
        return new, {
            "critic_loss": of_critic["loss"],
            "actor_loss": of_actor["loss"],
            "q": of_critic["q"],
            "entropy": of_actor["entropy"],
            "temperature": alpha,
        }

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


def _draw(actor: StochasticPolicy, obs, key):
    """Actions, and the logarithms of their densities."""
    keys = jr.split(key, obs.shape[0])
    return jax.vmap(lambda obs, key: actor(obs).sample_and_log_prob(key))(obs, keys)
