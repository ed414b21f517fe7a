"""Settings that `PPO` and `RecurrentPPO` share."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import ScaleAction

from ..blocks.collecting import add_steps, collect, flatten_time, reset_envs, Running
from ..blocks.hyperparameters import (
    as_scalar,
    cast_floats,
    check_num_levels,
    check_positive,
    check_ranges,
    linear_schedule,
    static,
)
from ..blocks.networks import Activation, Learner, mean_metrics
from ..blocks.observations import (
    acts_on_batches,
    init_statistics,
    normalize,
    ObservationStatistics,
    update_statistics,
)
from ..blocks.parallel import check_divisible, replicate, shard_batch
from ..blocks.policies import (
    Actor,
    ActorCritic,
    check_action_bounds,
    scale,
    Squash,
    squash,
)
from ..blocks.replay import clipped_policy_loss, clipped_value_loss, Transition
from ..blocks.returns import gae
from ..vision.encoding import AbstractEncodingAgent


class AbstractProximalAgent(AbstractOnlineAgent):
    r"""Settings of proximal policy optimization.

    **Arguments:**

    - `num_epochs`: passes over each batch.
    - `num_minibatches`: minibatches per pass.
    - `activation`: nonlinearity of the hidden layers.
    - `normalize_observations`: true to normalize observations.
    - `learning_rate`: Adam step size.
    - `adam_epsilon`: Adam's constant $\epsilon$.
    - `anneal_steps`: steps over which the learning rate decreases linearly to zero, below
        $2^{31}$; 0: constant.
    - `discount`: discount $\gamma$.
    - `gae_decay`: decay $\lambda$ of the advantages.
    - `clip`: clip range $\epsilon$ of the probability ratio.
    - `value_clip`: clip range of the change of values from $V_{old}$; 0: no clipping.
    - `value_cost`: weight $c_V$ of the value loss.
    - `entropy_cost`: weight $c_H$ of the entropy.
    - `reward_scale`: factor that multiplies rewards.
    - `max_grad_norm`: global norm to which gradients are clipped.
    - `initial_log_std`: logarithm of the initial standard deviation of actions.
    """

    num_epochs: int = static(4)
    num_minibatches: int = static(8)
    activation: Activation = static(Activation.SWISH)
    normalize_observations: bool = static(True)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    adam_epsilon: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-8)
    anneal_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    gae_decay: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.95)
    clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    value_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    value_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    entropy_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-3)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    max_grad_norm: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    initial_log_std: Float[Array, ""] = eqx.field(converter=as_scalar, default=-0.5)

    def __check_init__(self):
        check_ranges(self)

    def _optimizer(self, steps: Float[Array, ""]) -> optax.GradientTransformation:
        """Return Adam with the learning rate after a number of control steps."""
        rate = linear_schedule(self.learning_rate, steps, self.anneal_steps)
        return optax.adam(rate, eps=self.adam_epsilon)


class PPOState(eqx.Module):
    """State of `PPO`: `learner` of an `ActorCritic`, running `statistics` of observations,
    action range `bounds`, environments, and number of control `steps`."""

    learner: Learner
    statistics: ObservationStatistics | None
    bounds: Float[Array, "nu 2"]
    running: Running
    key: PRNGKeyArray
    steps: Int[Array, ""]


class PPOBatch(eqx.Module):
    """Batch of `PPO.update`, one row per step: normalized `obs`, `action` before squashing,
    `log_prob` of the policy that drew it, `advantage` and `target` of the value."""

    obs: Any
    action: Float[Array, "rows nu"]
    log_prob: Float[Array, " rows"]
    advantage: Float[Array, " rows"]
    target: Float[Array, " rows"]


class PPO(AbstractProximalAgent, AbstractEncodingAgent):
    r"""Proximal policy optimization: several gradient steps on each batch, with a
    probability ratio that is clipped.

    With the ratio $\rho_t = \pi(a_t|o_t) / \pi_{old}(a_t|o_t)$ and advantages $A_t$ by
    generalized advantage estimation, minibatches of a batch minimize

    $$L = \mathrm{mean}\left[-\min\left(\rho_t A_t,\;
    \mathrm{clip}(\rho_t, 1 - \epsilon, 1 + \epsilon) A_t\right)
    + \tfrac{c_V}{2} (V(o_t) - A_t - V_{old}(o_t))^2 - c_H H(\pi(o_t))\right].$$

    Differences from the paper: actions are $\tanh$ of normal numbers with a deviation
    that does not depend on the observation, scaled to the action range (Andrychowicz et
    al., *What matters for on-policy deep actor-critic methods?*, 2021, C59 to C67);
    observations are normalized by running statistics, advantages within each minibatch;
    gradients are clipped by global norm; truncated episodes are bootstrapped. With `levels`
    actions are categorical (Tang, Agrawal, *Discretizing continuous action space for
    on-policy optimization*, 2020).

    **Arguments:** those of `AbstractEncodingAgent` and `AbstractProximalAgent`, and

    - `num_envs`: number of environments.
    - `unroll_length`: steps of each environment per iteration.
    - `policy_hidden`, `value_hidden`: hidden layer sizes of the network.
    - `levels`: number of discrete values per actuator; 0 for continuous actions.

    ??? cite "Reference"
        Schulman et al., *Proximal policy optimization algorithms*, 2017, equation 9.
    """

    num_envs: int = static(256)
    unroll_length: int = static(16)
    policy_hidden: tuple[int, ...] = static((64, 64))
    value_hidden: tuple[int, ...] = static((64, 64))
    levels: int = static(0)

    def __check_init__(self):
        sizes = "num_envs", "unroll_length", "num_epochs", "num_minibatches"
        check_positive(self, *sizes, "policy_hidden", "value_hidden")
        rows = self.num_envs * self.unroll_length
        if rows % self.num_minibatches:
            raise ValueError(
                f"`PPO.num_minibatches` must divide the {rows} rows of a batch "
                f"(`num_envs` times `unroll_length`), got {self.num_minibatches}."
            )
        check_num_levels(self)

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> PPOState:
        check_action_bounds(self, env, unlimited=not self.levels)
        check_divisible(self, "num_envs")
        key, *keys, key_envs = jr.split(key, 4)
        running = reset_envs(self, env, key_envs, self.num_envs)
        obs, dtype = jtu.tree_map(lambda x: x[0], running.obs), running.last.dtype
        self = cast_floats(self, dtype)
        hidden, log_std = (self.policy_hidden, self.value_hidden), self.initial_log_std
        sizes = env.sys.nu, hidden, self.activation
        networks = ActorCritic.create(self, keys, obs, *sizes, log_std, self.levels)
        return PPOState(
            Learner.create(networks, self._optimizer(jnp.zeros((), dtype))),
            init_statistics(obs) if self.normalize_observations else None,
            # A copy, as the state may be donated and the system not.
            jnp.array(env.action_range),
            running,
            key,
            jnp.zeros((), jnp.int32),
        )

    @acts_on_batches
    def act(
        self, state: PPOState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        drawn = Actor(state.learner.model, state.statistics)(obs, key)
        return (scale if self.levels else squash)(state.bounds, drawn)

    def iterate(
        self, state: PPOState, env: AbstractEnv
    ) -> tuple[PPOState, dict[str, Float[Array, "..."]]]:
        """Collect `unroll_length` steps, and learn from them."""
        self = cast_floats(self, state.running.last.dtype)
        key, key_act, key_learn = jr.split(state.key, 3)

        # Collect.
        policy = Actor(state.learner.model, state.statistics)
        taken = ScaleAction(env) if self.levels else Squash(env)
        running, steps, report = collect(
            taken, policy, state.running, key_act, self.unroll_length
        )

        # Advantages, by the old networks and statistics.
        batch = self._batch(state, steps)
        statistics = update_statistics(state.statistics, flatten_time(steps).obs)

        # Learn.
        state = dataclasses.replace(
            state, statistics=statistics, running=running, key=key_learn
        )
        state, metrics = self.update(state, batch)
        count = add_steps(report, state.steps)
        return dataclasses.replace(state, key=key, steps=count), report | metrics

    def update(
        self, state: PPOState, batch: PPOBatch
    ) -> tuple[PPOState, dict[str, Float[Array, "..."]]]:
        """Take `num_epochs` passes through a batch, in minibatches of equal size: rows that
        are left over differ between passes.

        **Returns:** the new state; means of the losses, of `entropy`, and of `kl`, an
        estimate of the divergence from the old policy.

        **Raises:** `ValueError` if there are fewer rows than minibatches.
        """
        rows, dtype = batch.advantage.shape[0], batch.advantage.dtype
        self = cast_floats(self, dtype)
        optimizer = self._optimizer(state.steps.astype(dtype))
        piece = rows // self.num_minibatches
        if not piece:
            raise ValueError(
                "A batch must have at least one row for each of `PPO.num_minibatches` "
                f"= {self.num_minibatches} minibatches, got {rows} rows."
            )
        bounded = jnp.all(jnp.isfinite(state.bounds), axis=1)

        def minibatch(learner, x):
            index, key = x
            few = shard_batch(jtu.tree_map(lambda x: x[index], batch))
            return learner.apply_loss_fn(
                lambda networks: self._loss(networks, few, bounded, key),
                optimizer,
                max_grad_norm=self.max_grad_norm,
            )

        def epoch(learner, key):
            key_order, key = jr.split(key)
            order = jr.permutation(key_order, rows)[: piece * self.num_minibatches]
            pieces = order.reshape(self.num_minibatches, piece)
            keys = jr.split(key, self.num_minibatches)
            return lax.scan(minibatch, learner, (pieces, keys))

        key, key_epochs = jr.split(state.key)
        keys = jr.split(key_epochs, self.num_epochs)
        learner, metrics = lax.scan(epoch, state.learner, keys)
        new = dataclasses.replace(state, learner=replicate(learner), key=key)
        return new, mean_metrics(metrics, axes=2)

    def _batch(self, state: PPOState, steps: Transition) -> PPOBatch:
        networks, statistics = state.learner.model, state.statistics
        each = lambda fn: jax.vmap(jax.vmap(fn))
        seen = each(lambda obs: normalize(statistics, obs))
        value_of = each(lambda obs: networks.value(obs)[0])
        obs, next_obs = seen(steps.obs), seen(steps.next_obs)
        value, next_value = value_of(obs), value_of(next_obs)
        advantages = jax.vmap(gae, in_axes=(0, 0, 0, 0, 0, None, None))(
            steps.reward * self.reward_scale,
            value,
            next_value,
            steps.terminated,
            steps.done,
            self.discount,
            self.gae_decay,
        )
        density = lambda obs, u: networks.distribution(obs).log_prob(u)
        log_prob = each(density)(obs, networks.drawn(steps.action))
        target = advantages + value
        batch = obs, steps.action, log_prob, advantages, target
        return PPOBatch(*flatten_time(batch))

    def _loss(
        self,
        networks: ActorCritic,
        batch: PPOBatch,
        bounded: Bool[Array, " nu"],
        key: PRNGKeyArray,
    ):
        keys = jr.split(key, batch.advantage.shape[0])
        each = lambda obs, action, key: networks.evaluate(obs, action, bounded, key)
        log_prob, entropy, value = jax.vmap(each)(batch.obs, batch.action, keys)
        advantage = batch.advantage - jnp.mean(batch.advantage)
        advantage = advantage / (jnp.std(batch.advantage) + 1e-8)
        policy_loss, kl = clipped_policy_loss(
            log_prob, batch.log_prob, advantage, self.clip
        )
        old_value = batch.target - batch.advantage
        value_loss = clipped_value_loss(value, old_value, batch.target, self.value_clip)
        entropy = jnp.mean(entropy)
        loss = policy_loss + self.value_cost * value_loss - self.entropy_cost * entropy
        return loss, {"value_loss": value_loss, "entropy": entropy, "kl": kl}
