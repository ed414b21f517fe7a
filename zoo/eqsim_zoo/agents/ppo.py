"""Proximal policy optimization.

`AbstractProximalAgent` has the settings that `RecurrentPPO` shares; `PPO` collects steps
(`iterate`), computes advantages (`evaluate`), and takes gradient steps on minibatches
(`update`) on the loss `ppo_loss`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import reflection_of, RunningStatistics, ScaleAction

from ..blocks.collecting import (
    add_steps,
    collect,
    flatten_time,
    minibatches,
    reset_envs,
    Running,
    Transition,
)
from ..blocks.hyperparameters import (
    adapted_pace,
    as_scalar,
    check_num_levels,
    check_positive,
    check_ranges,
    linear_schedule,
    same_precision,
    static,
)
from ..blocks.networks import (
    AbstractInputs,
    Activation,
    check_on_policy,
    Learner,
    mean_metrics,
    Vectors,
)
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
    bounded_entries,
    check_action_bounds,
    scale_action,
    Squash,
    squash_action,
)
from ..blocks.returns import gae, in_value_units, ppo_loss, value_units


class AbstractProximalAgent(AbstractOnlineAgent):
    r"""Settings of proximal policy optimization.

    **Arguments:**

    - `inputs`: inputs of the networks: `blocks.Vectors`, or `vision.Images` for images.
    - `num_epochs`: passes over each batch.
    - `num_minibatches`: minibatches per pass.
    - `activation`: nonlinearity of the hidden layers.
    - `normalize_observations`: true to normalize observations.
    - `learning_rate`: Adam step size.
    - `adam_epsilon`: Adam's constant $\epsilon$.
    - `anneal_steps`: steps over which the learning rate and `target_kl` decrease linearly to
        zero, below $2^{31}$; 0: constant.
    - `discount`: discount $\gamma$.
    - `gae_decay`: decay $\lambda$ of the advantages.
    - `clip`: clip range $\epsilon$ of the probability ratio.
    - `value_clip`: clip range of the change of values from $V_{old}$; 0: no clipping.
    - `value_cost`: weight $c_V$ of the value loss.
    - `entropy_cost`: weight $c_H$ of the entropy.
    - `reward_scale`: factor that multiplies rewards.
    - `max_grad_norm`: global norm to which gradients are clipped.
    - `target_kl`: divergence from the old policy that the learning rate is adapted to, see
        `adapted_pace`; 0: the learning rate is not adapted.
    - `normalize_values`: true to learn values in units of the running standard deviation of
        returns, about their running mean.
    - `initial_log_std`: logarithm of the initial standard deviation of actions.
    """

    inputs: AbstractInputs = Vectors()
    num_epochs: int = static(4)
    num_minibatches: int = static(8)
    activation: Activation = static(Activation.SWISH)
    normalize_observations: bool = static(True)
    normalize_values: bool = static(False)
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
    target_kl: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    initial_log_std: Float[Array, ""] = eqx.field(converter=as_scalar, default=-0.5)

    def __check_init__(self):
        check_ranges(self)
        check_on_policy(type(self).__name__, self.inputs)

    def optimizer(
        self, steps: Float[Array, ""], pace: Float[Array, ""]
    ) -> optax.GradientTransformation:
        """Return Adam with the learning rate after a number of control steps.

        **Arguments:**

        - `pace`: factor of the learning rate, see `adapted_pace`.
        """
        rate = linear_schedule(self.learning_rate, steps, self.anneal_steps)
        return optax.adam(pace * rate, eps=self.adam_epsilon)

    def descend(
        self,
        learner: Learner,
        steps: Float[Array, ""],
        pace: Float[Array, ""],
        loss: Callable[[Any, Any], Any],
        pieces: Any,
    ) -> tuple[Learner, Float[Array, ""], dict[str, Array]]:
        """Take one gradient step for each of `pieces`, along the first axis, on
        `loss(networks, piece)`, with the metric `kl`; and adapt the learning rate.

        `target_kl` follows the same schedule; otherwise `pace` would counteract the annealed
        learning rate.

        **Returns:** the learner, the new `pace`, and mean metrics with `pace`.
        """

        target = linear_schedule(self.target_kl, steps, self.anneal_steps)

        def step(carry, piece):
            learner, pace = carry
            learner, metrics = learner.apply_loss_fn(
                lambda networks: loss(networks, piece),
                self.optimizer(steps, pace),
                max_grad_norm=self.max_grad_norm,
            )
            return (learner, adapted_pace(pace, metrics["kl"], target)), metrics

        (learner, pace), metrics = lax.scan(step, (learner, pace), pieces)
        return learner, pace, mean_metrics(metrics) | {"pace": pace}


class PPOState(eqx.Module):
    """State of `PPO`: `learner` of an `ActorCritic`, running `statistics` of observations,
    running `returns` statistics, action range `bounds`, environments, factor `pace` of the
    learning rate, and number of control `steps`."""

    learner: Learner
    statistics: ObservationStatistics | None
    returns: RunningStatistics | None
    bounds: Float[Array, "nu 2"]
    running: Running
    key: PRNGKeyArray
    pace: Float[Array, ""]
    steps: Int[Array, ""]


class PPOBatch(eqx.Module):
    """Batch of `PPO.update`, one row per step: normalized `obs`, `action` before squashing,
    `log_prob` of the policy that drew it, `advantage`, and `value` before the update."""

    obs: Any
    action: Float[Array, "rows nu"]
    log_prob: Float[Array, " rows"]
    advantage: Float[Array, " rows"]
    value: Float[Array, " rows"]


class PPO(AbstractProximalAgent):
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

    **Arguments:** those of `AbstractProximalAgent`, and

    - `num_envs`: number of environments.
    - `unroll_length`: steps of each environment per iteration.
    - `policy_hidden`, `value_hidden`: hidden layer sizes of the network.
    - `levels`: number of discrete values per actuator; 0 for continuous actions.
    - `symmetric`: true for a policy and a value that are symmetric under the `reflection`
        of the task, see `blocks.networks.SymmetricNetwork`.

    ??? cite "Reference"
        Schulman et al., *Proximal policy optimization algorithms*, 2017, equation 9.
    """

    num_envs: int = static(256)
    unroll_length: int = static(16)
    policy_hidden: tuple[int, ...] = static((64, 64))
    value_hidden: tuple[int, ...] = static((64, 64))
    levels: int = static(0)
    symmetric: bool = static(False)

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
        if self.symmetric and (self.levels or not isinstance(self.inputs, Vectors)):
            other = "`levels`" if self.levels else f"`{type(self.inputs).__name__}`"
            raise ValueError(
                "`PPO.symmetric` is for continuous actions and observations that are "
                f"vectors, and does not go with {other}. Leave one of them out."
            )

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> PPOState:
        check_action_bounds(self, env, unlimited=not self.levels)
        check_divisible(self, "num_envs")
        key, *keys, key_envs = jr.split(key, 4)
        running = reset_envs(self, env, key_envs, self.num_envs, self.inputs)
        obs = jtu.tree_map(lambda x: x[0], running.obs)
        reflection = reflection_of(env) if self.symmetric else None
        if reflection is not None:
            reflection.reflect_obs(obs)  # Raises an error if it does not fit.
        networks = ActorCritic.create(
            self.inputs,
            keys,
            obs,
            env.sys.nu,
            (self.policy_hidden, self.value_hidden),
            self.activation,
            self.initial_log_std,
            self.levels,
            reflection,
        )
        return PPOState(
            Learner.create(networks, self.optimizer(*jnp.zeros_like(running.last))),
            init_statistics(obs) if self.normalize_observations else None,
            init_statistics(running.last[:1]) if self.normalize_values else None,
            # A copy, as the state may be donated and the system not.
            jnp.array(env.action_range),
            running,
            key,
            jnp.ones_like(running.last[0]),
            jnp.zeros((), jnp.int32),
        )

    @acts_on_batches
    def act(
        self, state: PPOState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        drawn = Actor(state.learner.model, state.statistics)(obs, key)
        return (scale_action if self.levels else squash_action)(state.bounds, drawn)

    @same_precision
    def iterate(
        self, state: PPOState, env: AbstractEnv
    ) -> tuple[PPOState, dict[str, Float[Array, "..."]]]:
        """Collect `unroll_length` steps, and learn from them."""
        key, key_act, key_learn = jr.split(state.key, 3)

        # Collect.
        policy = Actor(state.learner.model, state.statistics)
        taken = ScaleAction(env) if self.levels else Squash(env)
        running, steps, report = collect(
            taken, policy, state.running, key_act, self.unroll_length
        )

        # Advantages, by the old networks and statistics.
        batch = self.evaluate(state, steps)
        obs = policy.networks.with_reflections(flatten_time(steps).obs)
        statistics = update_statistics(state.statistics, obs)
        batch, returns = in_value_units(batch, state.returns)

        # Learn.
        state = dataclasses.replace(
            state,
            statistics=statistics,
            returns=returns,
            running=running,
            key=key_learn,
        )
        state, metrics = self.update(state, batch)
        count = add_steps(report, state.steps)
        return dataclasses.replace(state, key=key, steps=count), report | metrics

    def evaluate(self, state: PPOState, steps: Transition) -> PPOBatch:
        """Compute the batch of collected steps: log-densities, values and advantages.

        **Arguments:**

        - `steps`: transitions with axes (environment, time).
        """
        networks = state.learner.model
        each = lambda fn: jax.vmap(jax.vmap(fn))
        seen = each(lambda obs: normalize(state.statistics, obs))
        mean, std = value_units(state.returns)
        value_of = each(lambda obs: mean + std * networks.value(obs)[0])
        obs, value = seen(steps.obs), value_of(seen(steps.obs))
        advantage = jax.vmap(gae, in_axes=(0, 0, 0, 0, 0, None, None))(
            steps.reward * self.reward_scale,
            value,
            value_of(seen(steps.next_obs)),
            steps.terminated,
            steps.done,
            self.discount,
            self.gae_decay,
        )
        density = lambda obs, u: networks.distribution(obs).log_prob(u)
        log_prob = each(density)(obs, networks.drawn(steps.action))
        rows = flatten_time((obs, steps.action, log_prob, advantage, value))
        return PPOBatch(*rows)

    @same_precision
    def update(
        self, state: PPOState, batch: PPOBatch
    ) -> tuple[PPOState, dict[str, Float[Array, "..."]]]:
        """Take `num_epochs` passes through a batch, in minibatches of equal size: rows that
        are left over differ between passes.

        **Returns:** the new state; means of the losses, of `entropy`, and of `kl`, an
        estimate of the divergence from the old policy; `pace`, see `adapted_pace`.

        **Raises:** `ValueError` if there are fewer rows than minibatches.
        """
        rows = batch.advantage.shape[0]
        if rows < self.num_minibatches:
            raise ValueError(
                "A batch must have at least one row for each of `PPO.num_minibatches` "
                f"= {self.num_minibatches} minibatches, got {rows} rows."
            )
        key, key_epochs = jr.split(state.key)
        bounded = bounded_entries(state.bounds)

        def loss(networks, piece):
            index, key = piece
            few = shard_batch(jtu.tree_map(lambda x: x[index], batch))
            keys = jr.split(key, index.shape[0])
            each = lambda obs, action, key: networks.evaluate(obs, action, bounded, key)
            found = jax.vmap(each)(few.obs, few.action, keys)
            return ppo_loss(self, few, *found)

        sizes = self.num_epochs, self.num_minibatches
        steps = state.steps.astype(batch.advantage.dtype)
        pieces = minibatches(key_epochs, rows, *sizes)
        found = self.descend(state.learner, steps, state.pace, loss, pieces)
        learner, pace, metrics = found
        learner = replicate(learner)
        new = dataclasses.replace(state, learner=learner, key=key, pace=pace)
        return new, metrics
