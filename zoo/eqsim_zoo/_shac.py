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
from eqsim.wrappers import ScaleAction, Statistics

from ._actions import check_bounded, scale
from ._collect import begin, collect, count_steps, rows_of, Running
from ._fields import annealed, check_positive, in_type, real, size
from ._learner import Learner
from ._networks import MLP, target_update
from ._parallel import by_rows, check_shares, whole
from ._policies import Explorer, StochasticPolicy
from ._replay import Transition
from ._returns import td_lambda
from ._statistics import no_statistics, normalize, updated


class SHACState(eqx.Module):
    """`actor`, `critic`: learners of a `StochasticPolicy` and of a value network.
    `target`: the critic, some time ago. `statistics`: of observations. `bounds`: of
    actions. `steps`: control steps taken."""

    actor: Learner
    critic: Learner
    target: MLP
    statistics: Statistics | None
    bounds: Float[Array, "nu 2"]
    running: Running
    key: PRNGKeyArray
    steps: Int[Array, ""]


class SHACBatch(eqx.Module):
    """What `SHAC.update` learns from.

    **Arguments:**

    - `gradient`: of the loss of the policy, by its parameters.
    - `obs`, `target`: normalized observations, and their $\\lambda$-returns.
    """

    gradient: Any
    obs: Float[Array, "rows nobs"]
    target: Float[Array, " rows"]


class SHAC(AbstractOnlineAgent):
    r"""Short-horizon actor-critic: the derivative of the rewards of the next $h$ steps
    through the physics, and of the value that a critic sees in where they lead.

    $$L_\pi = -\frac{1}{h}\,\mathrm{mean}\left[\sum_{t < h} w_t \left(r_t + e_t\,\gamma\,
    \bar V(o'_t)\right)\right], \qquad
    L_V = \mathrm{mean}\,(V(o_t) - G_t)^2,$$

    where $w_t$ is $\gamma$ to the power of the steps since the window or the episode began,
    $e_t$ is 1 at the end of the window and at time limits, and 0 else, also where the task
    ended, and $G_t$ are $\lambda$-returns with $\bar V$, which follows the critic:
    $\bar\theta \leftarrow \alpha \bar\theta + (1 - \alpha)\,\theta$.

    Differences from the paper: the deviation of the policy depends on the observation.

    **Arguments:**

    - `num_envs`, `horizon`: environments, and $h$.
    - `checkpoint_every`: saves memory, see `eqsim.rollout`; 0 keeps all.
    - `num_epochs`, `num_minibatches`: passes of the critic through a batch, and pieces of
        each.
    - `actor_hidden`, `critic_hidden`: of the networks.
    - `normalize_observations`: whether observations are normalized.
    - `actor_learning_rate`, `critic_learning_rate`: of Adam, whose averages are short
        ($\beta$ = 0.7 and 0.95). `anneal_steps`: control steps in which they go to zero; 0
        if they stay.
    - `discount`, `td_decay`: $\gamma$ and $\lambda$. `target_decay`: $\alpha$.
    - `max_grad_norm`: length of a gradient, at most.
    - `reward_scale`: rewards are multiplied by it.

    ??? cite "Reference"
        Xu et al., *Accelerated policy learning with parallel differentiable simulation*,
        2022, equations 5 to 8 and table 3.
    """

    num_envs: int = size(64)
    horizon: int = size(32)
    checkpoint_every: int = size(0)
    num_epochs: int = size(16)
    num_minibatches: int = size(4)
    actor_hidden: tuple[int, ...] = size((128, 64, 32))
    critic_hidden: tuple[int, ...] = size((64, 64))
    normalize_observations: bool = size(True)
    actor_learning_rate: Float[Array, ""] = real(2e-3)
    critic_learning_rate: Float[Array, ""] = real(2e-3)
    anneal_steps: Float[Array, ""] = real(0.0)
    discount: Float[Array, ""] = real(0.99)
    td_decay: Float[Array, ""] = real(0.95)
    target_decay: Float[Array, ""] = real(0.2)
    max_grad_norm: Float[Array, ""] = real(1.0)
    reward_scale: Float[Array, ""] = real(1.0)

    def __check_init__(self):
        check_positive(self, "num_envs", "horizon", "num_epochs", "num_minibatches")
        rows = self.num_envs * self.horizon
        if rows % self.num_minibatches:
            raise ValueError(
                f"`SHAC.num_minibatches` is {self.num_minibatches}: a divisor of the {rows} "
                "rows of a batch (`num_envs` times `horizon`) is expected."
            )

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> SHACState:
        check_bounded(self, env)
        check_shares(self, "num_envs")
        key, key_actor, key_critic, key_envs = jr.split(key, 4)
        running = begin(self, env, key_envs, self.num_envs)
        obs = running.obs[0]
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
            no_statistics(obs) if self.normalize_observations else None,
            env.action_range,
            running,
            key,
            jnp.zeros((), jnp.int32),
        )

    def act(
        self, state: SHACState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        distribution = state.actor.model(normalize(state.statistics, obs))
        if key is None:
            return scale(state.bounds, distribution.mode())
        return scale(state.bounds, distribution.sample_and_log_prob(key)[0])

    def iterate(
        self, state: SHACState, env: AbstractEnv
    ) -> tuple[SHACState, dict[str, Float[Array, "..."]]]:
        self = in_type(self, state.bounds.dtype)
        key, key_act = jr.split(state.key)
        seen = lambda obs: jax.vmap(jax.vmap(lambda x: normalize(state.statistics, x)))(
            obs
        )
        worth = lambda obs: jax.vmap(jax.vmap(state.target))(obs)[..., 0]
        calm = jnp.zeros_like(self.discount), jnp.zeros((), bool)

        def loss(actor):
            running, steps, report = collect(
                ScaleAction(env),
                Explorer(actor, state.statistics, *calm),
                state.running,
                key_act,
                self.horizon,
                self.checkpoint_every or None,
            )
            next_value = worth(seen(steps.next_obs))
            lost = self._actor_loss(steps, next_value)
            return lost, (running, steps, next_value, report)

        value_and_grad = eqx.filter_value_and_grad(loss, has_aux=True)
        (lost, kept), grads = value_and_grad(state.actor.model)
        running, steps, next_value, report = kept
        targets = jax.vmap(td_lambda, in_axes=(0, 0, 0, 0, None, None))(
            steps.reward * self.reward_scale,
            next_value,
            steps.terminated,
            steps.done,
            self.discount,
            self.td_decay,
        )
        obs = seen(steps.obs)
        batch = SHACBatch(grads, obs.reshape(-1, obs.shape[-1]), targets.reshape(-1))
        statistics = state.statistics
        if statistics is not None:
            statistics = updated(statistics, rows_of(steps).obs)
        place = lambda s: (s.statistics, s.running, s.key, s.steps)
        new = statistics, running, key, count_steps(report, state.steps)
        state = eqx.tree_at(place, state, new, is_leaf=lambda x: x is None)
        state, metrics = self.update(state, batch)
        return state, report | metrics | {"actor_loss": lost}

    def update(
        self, state: SHACState, batch: SHACBatch
    ) -> tuple[SHACState, dict[str, Float[Array, "..."]]]:
        """A step of the policy, and several of the critic, with a `SHACBatch`.

        **Returns:** the new state; `grad_norm`, the length of the policy's gradient, and the
        mean `critic_loss`.
        """
        self = in_type(self, batch.target.dtype)
        steps = state.steps.astype(batch.target.dtype)
        adam = lambda rate: optax.adam(
            annealed(rate, steps, self.anneal_steps), b1=0.7, b2=0.95
        )
        actor, norm = state.actor.apply_gradients(
            batch.gradient,
            adam(self.actor_learning_rate),
            max_grad_norm=self.max_grad_norm,
        )
        rows, data = batch.target.shape[0], (batch.obs, batch.target)

        def minibatch(critic, index):
            obs, target = by_rows(jtu.tree_map(lambda x: x[index], data))

            def loss(critic):
                off = jax.vmap(critic)(obs)[:, 0] - target
                return jnp.mean(off**2), {}

            return critic.apply_loss_fn(
                loss, adam(self.critic_learning_rate), max_grad_norm=self.max_grad_norm
            )

        def epoch(critic, key):
            order = jr.permutation(key, rows).reshape(self.num_minibatches, -1)
            return lax.scan(minibatch, critic, order)

        key, key_epochs = jr.split(state.key)
        keys = jr.split(key_epochs, self.num_epochs)
        critic, of_critic = lax.scan(epoch, state.critic, keys)
        slow = target_update(critic.model, state.target, 1.0 - self.target_decay)
        place = lambda s: (s.actor, s.critic, s.target, s.key)
        new = eqx.tree_at(place, state, (actor, whole(critic), slow, key))
        return new, {"grad_norm": norm, "critic_loss": jnp.mean(of_critic["loss"])}

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
