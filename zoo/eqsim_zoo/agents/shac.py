"""Short-horizon actor-critic: gradients through the physics, and a critic after them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent

from ..blocks.collecting import flatten_time, Transition
from ..blocks.hyperparameters import (
    as_scalar,
    check_counts,
    check_positive,
    check_ranges,
    linear_schedule,
    same_precision,
    static,
)
from ..blocks.networks import Learner, mean_metrics, MLP, target_update
from ..blocks.observations import acts_on_batches
from ..blocks.parallel import replicate, shard_batch
from ..blocks.policies import (
    bounded_entries,
    Explorer,
    Squash,
    squash_action,
    squash_log_slope,
    StochasticPolicy,
)
from ..blocks.returns import td_lambda
from .apg import GradientEnvs, rollout_gradient, start_gradient_envs


class SHACState(eqx.Module):
    """State of `SHAC`: learners of `actor` (a `StochasticPolicy`) and `critic`, `target`
    network of the critic, and environments `world`."""

    actor: Learner
    critic: Learner
    target: MLP
    world: GradientEnvs
    key: PRNGKeyArray


class SHACBatch(eqx.Module):
    """Batch for `SHAC.update`.

    **Arguments:**

    - `gradient`: gradient of the policy loss by its parameters.
    - `obs`, `target`: normalized observations, and their $\\lambda$-returns.
    """

    gradient: Any
    obs: Float[Array, "rows nobs"]
    target: Float[Array, " rows"]


class SHAC(AbstractOnlineAgent):
    r"""Short-horizon actor-critic: the derivative, through the physics, of the rewards of
    the next $h$ steps and of the critic's value of the state after them.

    $$L_\pi = -\frac{1}{h}\,\mathrm{mean}\left[\sum_{t < h} w_t \left(r_t + e_t\,\gamma\,
    \bar V(o'_t)\right)\right] - c_H\,\mathrm{mean}\,H(\pi(o_t)), \qquad
    L_V = \mathrm{mean}\,(V(o_t) - G_t)^2,$$

    where $w_t$ is $\gamma$ to the power of the steps since the window or the episode began,
    $e_t$ is 1 at the end of the window and at time limits, and 0 else, also where the task
    ended, and $G_t$ are $\lambda$-returns with $\bar V$, which follows the critic:
    $\bar\theta \leftarrow \alpha \bar\theta + (1 - \alpha)\,\theta$.

    Actions are Gaussian; where the range is finite, they are squashed by tanh. A range
    with one bound is refused: beyond it, rewards do not depend on the action.

    Differences from the paper: the deviation of the policy depends on the observation, and
    the loss has an entropy term. Without it the deviation can vanish, and the return
    collapse.

    **Arguments:**

    - `num_envs`: number of environments.
    - `horizon`: steps $h$ that are differentiated.
    - `checkpoint_every`: steps between stored states, to save memory, see `eqsim.rollout`;
        0 stores all.
    - `num_epochs`: passes over each batch for the critic.
    - `num_minibatches`: minibatches per pass.
    - `actor_hidden`, `critic_hidden`: hidden layer sizes of the network.
    - `normalize_observations`: true to normalize observations.
    - `actor_learning_rate`, `critic_learning_rate`: Adam step size; Adam's averages are
        short ($\beta$ = 0.7, 0.95).
    - `anneal_steps`: control steps over which learning rates decrease to zero; 0: constant.
    - `discount`: discount $\gamma$.
    - `td_decay`: decay $\lambda$ of the returns that the critic learns.
    - `target_decay`: share $\alpha$ of the old target in an update of the target critic.
    - `entropy_cost`: weight $c_H$ of the entropy of the policy; 0 in the paper.
    - `max_grad_norm`: global norm to which gradients are clipped.
    - `reward_scale`: factor that multiplies rewards.

    ??? cite "Reference"
        Xu et al., *Accelerated policy learning with parallel differentiable simulation*,
        2022, equations 5 to 8 and table 3; Xing, Luk, Oh, *Stabilizing reinforcement
        learning in differentiable multiphysics simulation*, 2024, on entropy.
    """

    num_envs: int = static(64)
    horizon: int = static(32)
    checkpoint_every: int = static(0)
    num_epochs: int = static(16)
    num_minibatches: int = static(4)
    actor_hidden: tuple[int, ...] = static((128, 64, 32))
    critic_hidden: tuple[int, ...] = static((64, 64))
    normalize_observations: bool = static(True)
    actor_learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=2e-3)
    critic_learning_rate: Float[Array, ""] = eqx.field(
        converter=as_scalar, default=2e-3
    )
    anneal_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    td_decay: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.95)
    target_decay: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    entropy_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    max_grad_norm: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def __check_init__(self):
        sizes = "num_envs", "horizon", "num_epochs", "num_minibatches"
        check_positive(self, *sizes, "actor_hidden", "critic_hidden")
        check_counts(self, "checkpoint_every")
        check_ranges(self)
        rows = self.num_envs * self.horizon
        if rows % self.num_minibatches:
            raise ValueError(
                f"`SHAC.num_minibatches` must divide the {rows} rows of a batch "
                f"(`num_envs` times `horizon`), got {self.num_minibatches}."
            )

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> SHACState:
        key, key_actor, key_critic, key_envs = jr.split(key, 4)
        world = start_gradient_envs(self, env, key_envs, unlimited=True)
        obs = world.running.obs[0]
        create = lambda key, hidden, outputs, last: MLP.create(
            key,
            (obs.shape[0], *hidden, outputs),
            jax.nn.elu,
            last_scale=last,
            layer_norm=True,
            dtype=obs.dtype,
        )
        network = create(key_actor, self.actor_hidden, 2 * env.sys.nu, 0.01)
        critic = create(key_critic, self.critic_hidden, 1, 1.0)
        adam = optax.adam(0.0, b1=0.7, b2=0.95)
        return SHACState(
            Learner.create(StochasticPolicy(network), adam),
            Learner.create(critic, adam),
            critic,
            world,
            key,
        )

    @acts_on_batches
    def act(
        self, state: SHACState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        normal = state.actor.model.normal(state.world.seen(obs))
        action = normal.mean if key is None else normal.sample(key)
        return squash_action(state.world.bounds, action)

    @same_precision
    def iterate(
        self, state: SHACState, env: AbstractEnv
    ) -> tuple[SHACState, dict[str, Float[Array, "..."]]]:
        world, target, never = state.world, state.target, jnp.zeros((), bool)
        key, key_act = jr.split(state.key)
        worth = jax.vmap(jax.vmap(lambda obs: target(world.seen(obs))[0]))

        def loss(steps):
            next_value = worth(steps.next_obs)
            return self._actor_loss(steps, next_value), next_value

        after, gradient, steps, next_value, report = rollout_gradient(
            self,
            world,
            Squash(env),
            state.actor.model,
            key_act,
            lambda policy: Explorer(policy.normal, world.statistics, never),
            loss,
        )
        targets = jax.vmap(td_lambda, in_axes=(0, 0, 0, 0, None, None))(
            steps.reward * self.reward_scale,
            next_value,
            steps.terminated,
            steps.done,
            self.discount,
            self.td_decay,
        )
        obs = jax.vmap(world.seen)(flatten_time(steps).obs)
        batch = SHACBatch(gradient, obs, targets.reshape(-1))
        state = dataclasses.replace(state, world=after, key=key)
        state, metrics = self.update(state, batch)
        return state, report | metrics

    @same_precision
    def update(
        self, state: SHACState, batch: SHACBatch
    ) -> tuple[SHACState, dict[str, Float[Array, "..."]]]:
        """Take one gradient step of the policy and several of the critic, with a
        `SHACBatch`.

        **Returns:** the new state; `grad_norm`, the norm of the policy's gradient, its
        `entropy`, and the mean `critic_loss`.
        """
        steps = state.world.steps.astype(batch.target.dtype)
        adam = lambda rate: optax.adam(
            linear_schedule(rate, steps, self.anneal_steps), b1=0.7, b2=0.95
        )
        key, key_entropy, key_epochs = jr.split(state.key, 3)
        (_, entropy), of_entropy = eqx.filter_value_and_grad(
            self._entropy_loss, has_aux=True
        )(state.actor.model, state.world.bounds, batch.obs, key_entropy)
        gradient = jtu.tree_map(jnp.add, batch.gradient, of_entropy)
        actor, norm = state.actor.apply_gradients(
            gradient,
            adam(self.actor_learning_rate),
            max_grad_norm=self.max_grad_norm,
        )
        rows, data = batch.target.shape[0], (batch.obs, batch.target)

        def minibatch(critic, index):
            obs, target = shard_batch(jtu.tree_map(lambda x: x[index], data))

            def loss(critic):
                off = jax.vmap(critic)(obs)[:, 0] - target
                return jnp.mean(off**2), {}

            return critic.apply_loss_fn(
                loss, adam(self.critic_learning_rate), max_grad_norm=self.max_grad_norm
            )

        def epoch(critic, key):
            order = jr.permutation(key, rows).reshape(self.num_minibatches, -1)
            return lax.scan(minibatch, critic, order)

        keys = jr.split(key_epochs, self.num_epochs)
        critic, of_critic = lax.scan(epoch, state.critic, keys)
        slow = target_update(critic.model, state.target, 1.0 - self.target_decay)
        new = dataclasses.replace(
            state, actor=actor, critic=replicate(critic), target=slow, key=key
        )
        found = mean_metrics(of_critic, axes=2)
        skipped = (~jnp.isfinite(norm)).astype(norm.dtype)
        metrics = {"grad_norm": norm, "critic_loss": found["loss"]}
        metrics |= {"updates": found["updates"] + 1.0, "entropy": entropy}
        return new, metrics | {"nonfinite": found["nonfinite"] + skipped}

    def _actor_loss(self, steps: Transition, next_value) -> Float[Array, ""]:
        length = steps.reward.shape[1]
        last = jnp.arange(length) == length - 1
        ends = (steps.done | last[None]) & ~steps.terminated
        value = jnp.where(ends, self.discount * next_value, 0.0)
        gain = self.reward_scale * steps.reward + value

        def step(weight, done):
            later = jnp.where(done, jnp.ones_like(weight), weight * self.discount)
            return later, weight

        first = jnp.ones_like(gain[:, 0])
        _, weight = lax.scan(step, first, steps.done.T)
        return -jnp.mean(jnp.sum(gain * weight.T, axis=1)) / length

    def _entropy_loss(
        self,
        policy: StochasticPolicy,
        bounds: Float[Array, "nu 2"],
        obs: Float[Array, "rows nobs"],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the weighted loss, and the entropy."""
        bounded = bounded_entries(bounds)

        def log_prob(obs, key):
            normal = policy.normal(obs)
            drawn = normal.sample(key)
            return normal.log_prob(drawn) - squash_log_slope(bounded, drawn)

        keys = jr.split(key, obs.shape[0])
        entropy = -jnp.mean(jax.vmap(log_prob)(obs, keys))
        return -self.entropy_cost * entropy, entropy
