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
from eqsim.wrappers import ScaleAction, Statistics

from ..blocks import (
    Actor,
    ActorCritic,
    add_steps,
    as_scalar,
    cast_floats,
    check_action_bounds,
    check_divisible,
    check_positive,
    collect,
    flatten_time,
    gae,
    init_statistics,
    Learner,
    linear_schedule,
    log_slope,
    MLP,
    Normal,
    normalize,
    replicate,
    reset_envs,
    Running,
    scale,
    shard_batch,
    Squash,
    squash,
    static,
    Transition,
    update_statistics,
)


class PPOState(eqx.Module):
    """`learner`: of an `ActorCritic`. `statistics`: of observations. `bounds`: of actions.
    `steps`: control steps taken."""

    learner: Learner
    statistics: Statistics | None
    bounds: Float[Array, "nu 2"]
    running: Running
    key: PRNGKeyArray
    steps: Int[Array, ""]


class PPOBatch(eqx.Module):
    """What `PPO.update` learns from, one row per step.

    **Arguments:**

    - `obs`, `action`: normalized observations, and what was drawn.
    - `log_prob`: of the action, by the policy that drew it.
    - `advantage`, `target`: of the action, and for the value.
    """

    obs: Float[Array, "rows nobs"]
    action: Float[Array, "rows nu"]
    log_prob: Float[Array, " rows"]
    advantage: Float[Array, " rows"]
    target: Float[Array, " rows"]


class PPO(AbstractOnlineAgent):
    r"""Proximal policy optimization: several steps on what the last policy did, none of
    which may change the probability of an action by much.

    With the ratio $\rho_t = \pi(a_t|o_t) / \pi_{old}(a_t|o_t)$ and advantages $A_t$ by
    generalized advantage estimation, a batch is passed several times, in minibatches, to
    lessen

    $$L = \mathrm{mean}\left[-\min\left(\rho_t A_t,\;
    \mathrm{clip}(\rho_t, 1 - \epsilon, 1 + \epsilon) A_t\right)
    + \tfrac{c_V}{2} (V(o_t) - A_t - V_{old}(o_t))^2 - c_H H(\pi(o_t))\right].$$

    Differences from the paper: actions are $\tanh$ of normal numbers, scaled to the range
    of the actuators, whose deviation does not depend on what is observed (Andrychowicz et
    al., *What matters for on-policy deep actor-critic methods?*, 2021, choices C59 to
    C67); observations are normalized by running statistics, advantages within each
    minibatch; gradients are shortened to a length. Where an episode is cut off by a time
    limit the value of what follows is in the advantage. With `levels`, each actuator takes
    one of so many values, each with a probability of its own (Tang, Agrawal,
    *Discretizing continuous action space for on-policy optimization*, 2020).

    **Arguments:**

    - `num_envs`, `unroll_length`: environments, and steps of each per iteration.
    - `num_epochs`, `num_minibatches`: passes through a batch, and pieces of each.
    - `policy_hidden`, `value_hidden`: sizes of the hidden layers.
    - `levels`: values of each actuator; 0 for all between its bounds.
    - `normalize_observations`: whether observations are normalized.
    - `learning_rate`: of Adam. `anneal_steps`: control steps in which it goes to zero; 0 if
        it stays.
    - `discount`, `gae_decay`: $\gamma$ and $\lambda$ of the advantages.
    - `clip`, `value_cost`, `entropy_cost`: $\epsilon$, $c_V$, $c_H$.
    - `reward_scale`: rewards are multiplied by it.
    - `max_grad_norm`: length of a gradient, at most.
    - `initial_log_std`: logarithm of the deviation of the first actions.

    ??? cite "Reference"
        Schulman et al., *Proximal policy optimization algorithms*, 2017, equation 9.
    """

    num_envs: int = static(256)
    unroll_length: int = static(16)
    num_epochs: int = static(4)
    num_minibatches: int = static(8)
    policy_hidden: tuple[int, ...] = static((64, 64))
    value_hidden: tuple[int, ...] = static((64, 64))
    levels: int = static(0)
    normalize_observations: bool = static(True)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    anneal_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    gae_decay: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.95)
    clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    value_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    entropy_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-3)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    max_grad_norm: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    initial_log_std: Float[Array, ""] = eqx.field(converter=as_scalar, default=-0.5)

    def __check_init__(self):
        check_positive(
            self, "num_envs", "unroll_length", "num_epochs", "num_minibatches"
        )
        rows = self.num_envs * self.unroll_length
        if rows % self.num_minibatches:
            raise ValueError(
                f"`PPO.num_minibatches` is {self.num_minibatches}: a divisor of the {rows} "
                "rows of a batch (`num_envs` times `unroll_length`) is expected."
            )
        if self.levels == 1 or self.levels < 0:
            raise ValueError(
                f"`PPO.levels` is {self.levels}: at least 2 levels of an action are "
                "expected, or 0 for all numbers between its bounds."
            )

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> PPOState:
        if self.levels:
            check_action_bounds(self, env)
        check_divisible(self, "num_envs")
        key, key_policy, key_value, key_envs = jr.split(key, 4)
        running = reset_envs(self, env, key_envs, self.num_envs)
        obs, nu = running.obs[0], env.sys.nu
        self = cast_floats(self, obs.dtype)
        outputs = nu * self.levels if self.levels else nu
        create = lambda key, hidden, outputs, scale: MLP.create(
            key,
            (obs.shape[0], *hidden, outputs),
            jax.nn.swish,
            last_scale=scale,
            dtype=obs.dtype,
        )
        log_std = jnp.zeros(0 if self.levels else nu, obs.dtype) + self.initial_log_std
        networks = ActorCritic(
            create(key_policy, self.policy_hidden, outputs, 0.01),
            log_std,
            create(key_value, self.value_hidden, 1, 1.0),
            self.levels,
        )
        learner = Learner.create(networks, self._optimizer(jnp.zeros((), obs.dtype)))
        statistics = init_statistics(obs) if self.normalize_observations else None
        steps = jnp.zeros((), jnp.int32)
        # A copy, as the state may be donated and the robot not.
        bounds = jnp.array(env.action_range)
        return PPOState(learner, statistics, bounds, running, key, steps)

    def act(
        self, state: PPOState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        drawn = Actor(state.learner.model, state.statistics)(obs, key)
        return (scale if self.levels else squash)(state.bounds, drawn)

    def iterate(
        self, state: PPOState, env: AbstractEnv
    ) -> tuple[PPOState, dict[str, Float[Array, "..."]]]:
        self = cast_floats(self, state.running.obs.dtype)
        key, key_act, key_learn = jr.split(state.key, 3)
        policy = Actor(state.learner.model, state.statistics)
        taken = ScaleAction(env) if self.levels else Squash(env)
        running, steps, report = collect(
            taken, policy, state.running, key_act, self.unroll_length
        )
        batch = self._batch(state, steps)
        statistics = state.statistics
        if statistics is not None:
            statistics = update_statistics(statistics, flatten_time(steps).obs)
        state = PPOState(
            state.learner, statistics, state.bounds, running, key_learn, state.steps
        )
        state, metrics = self.update(state, batch)
        last = key, add_steps(report, state.steps)
        return eqx.tree_at(lambda s: (s.key, s.steps), state, last), report | metrics

    def update(
        self, state: PPOState, batch: PPOBatch
    ) -> tuple[PPOState, dict[str, Float[Array, "..."]]]:
        """Passes several times through a `PPOBatch`.

        **Returns:** the new state; means over all steps of the losses, of `entropy`, and
        of `kl`, the mean of $\\rho_t - 1 - \\log \\rho_t$, an estimate of the divergence
        from the old policy.

        **Raises:** `ValueError` if there are fewer rows than minibatches; rows that they
        can not share evenly are left out, others in each pass.
        """
        self = cast_floats(self, batch.obs.dtype)
        optimizer = self._optimizer(state.steps.astype(batch.obs.dtype))
        rows = batch.advantage.shape[0]
        piece = rows // self.num_minibatches
        if not piece:
            raise ValueError(
                f"A batch of {rows} rows for `PPO.num_minibatches` = "
                f"{self.num_minibatches}: at least one row for each is expected."
            )
        squashed = jnp.all(jnp.isfinite(state.bounds), axis=1)

        def minibatch(learner, x):
            index, key = x
            few = shard_batch(jtu.tree_map(lambda x: x[index], batch))
            loss = lambda networks: self._loss(networks, few, squashed, key)
            return learner.apply_loss_fn(
                loss, optimizer, max_grad_norm=self.max_grad_norm
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
        new = eqx.tree_at(
            lambda s: (s.learner, s.key), state, (replicate(learner), key)
        )
        return new, jtu.tree_map(jnp.mean, metrics)

    def _batch(self, state: PPOState, steps: Transition) -> PPOBatch:
        """What the policy did, with advantages."""
        networks, statistics = state.learner.model, state.statistics
        seen = lambda obs: jax.vmap(jax.vmap(lambda x: normalize(statistics, x)))(obs)
        obs, next_obs = seen(steps.obs), seen(steps.next_obs)
        value_of = jax.vmap(jax.vmap(lambda x: networks.value(x)[0]))
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
        log_prob = jax.vmap(
            jax.vmap(lambda obs, u: networks.distribution(obs).log_prob(u))
        )(obs, networks.drawn(steps.action))
        flat = lambda x: x.reshape(-1, *x.shape[2:])
        whole_batch = (obs, steps.action, log_prob, advantages, advantages + value)
        return PPOBatch(*(flat(x) for x in whole_batch))

    def _loss(
        self,
        networks: ActorCritic,
        batch: PPOBatch,
        squashed: Bool[Array, " nu"],
        key: PRNGKeyArray,
    ):
        def each(obs, action, key):
            distribution = networks.distribution(obs)
            entropy = distribution.entropy()
            if isinstance(distribution, Normal):
                # Of the squashed action, by a draw.
                slope = log_slope(distribution.sample(key))
                entropy = entropy + jnp.sum(jnp.where(squashed, slope, 0.0))
            return distribution.log_prob(action), entropy, networks.value(obs)[0]

        keys = jr.split(key, batch.advantage.shape[0])
        drawn = networks.drawn(batch.action)
        log_prob, entropy, value = jax.vmap(each)(batch.obs, drawn, keys)
        change = log_prob - batch.log_prob
        ratio = jnp.exp(change)
        advantage = batch.advantage - jnp.mean(batch.advantage)
        advantage = advantage / (jnp.std(batch.advantage) + 1e-8)
        clipped = jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip)
        gain = jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
        off = 0.5 * jnp.mean((value - batch.target) ** 2)
        entropy = jnp.mean(entropy)
        loss = -gain + self.value_cost * off - self.entropy_cost * entropy
        kl = jnp.mean(ratio - 1.0 - change)
        return loss, {"value_loss": off, "entropy": entropy, "kl": kl}

    def _optimizer(self, steps) -> optax.GradientTransformation:
        return optax.adam(linear_schedule(self.learning_rate, steps, self.anneal_steps))
