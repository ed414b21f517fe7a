"""Analytic policy gradient, and the derivative of returns through the physics.

`GradientEnvs` are the environments, `rollout_gradient` differentiates a loss of a window of steps,
and `APG` is the agent that follows this gradient. `SHAC` uses the first two as well.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import RunningStatistics, ScaleAction

from ..blocks.collecting import (
    add_steps,
    collect,
    flatten_time,
    reset_envs,
    Running,
    Transition,
)
from ..blocks.hyperparameters import (
    as_scalar,
    check_counts,
    check_positive,
    check_ranges,
    same_precision,
    static,
)
from ..blocks.networks import Learner, MLP
from ..blocks.observations import (
    acts_on_batches,
    init_statistics,
    normalize,
    update_statistics,
)
from ..blocks.parallel import check_divisible
from ..blocks.policies import (
    add_noise,
    check_action_bounds,
    DeterministicPolicy,
    Explorer,
    scale_action,
)


class GradientEnvs(eqx.Module):
    """Environments on their way.

    **Arguments:**

    - `running`: the environments. `bounds`: action range.
    - `statistics`: statistics of observations; None if they are not normalized.
    - `steps`: control steps taken.
    """

    running: Running
    statistics: RunningStatistics | None
    bounds: Float[Array, "nu 2"]
    steps: Int[Array, ""]

    def seen(self, obs: Float[Array, " nobs"]) -> Float[Array, " nobs"]:
        """Return a normalized observation."""
        return normalize(self.statistics, obs)


def start_gradient_envs(
    agent: Any, env: AbstractEnv, key: PRNGKeyArray, *, unlimited: bool = False
) -> GradientEnvs:
    """Reset the environments of an agent that differentiates the simulation.

    **Arguments:**

    - `unlimited`: true if the agent also acts where actions have no bounds.

    **Raises:** `ValueError` if the agent can not act there, or actions have one bound.
    """
    check_action_bounds(agent, env, unlimited=unlimited)
    _check_half_bounded(agent, env)
    check_divisible(agent, "num_envs")
    running = reset_envs(agent, env, key, agent.num_envs)
    obs = running.obs[0]
    statistics = init_statistics(obs) if agent.normalize_observations else None
    return GradientEnvs(
        running, statistics, jnp.array(env.action_range), jnp.zeros((), jnp.int32)
    )


def _check_half_bounded(agent: Any, env: AbstractEnv) -> None:
    """Raise `ValueError` for actions with one bound, where they are clipped: beyond it,
    rewards have no derivative. Skipped for traced ranges."""
    with jax.ensure_compile_time_eval():
        bounds = env.action_range
    if isinstance(bounds, Tracer) or bounds.ndim > 2:
        return
    bounds = np.asarray(bounds)
    for k in np.flatnonzero(np.isfinite(bounds).sum(axis=1) == 1):
        raise ValueError(
            f"`{type(agent).__name__}` differentiates rewards by actions, which needs ranges "
            f"with two bounds or none, but that of actuator "
            f"{env.sys.actuators.ctrl_names[k]!r} is {bounds[k].tolist()}. Give it both "
            "bounds or none in the model (`ctrlrange`), or use `PPO` without `levels`."
        )


def rollout_gradient(
    agent: Any,
    state: GradientEnvs,
    env: AbstractEnv,
    policy: Any,
    key: PRNGKeyArray,
    explore: Callable[[Any], Callable[[Any, PRNGKeyArray], Float[Array, " nu"]]],
    loss_fn: Callable[[Transition], tuple[Float[Array, ""], Any]],
) -> tuple[GradientEnvs, Any, Transition, Any, dict[str, Array]]:
    """Act for `agent.horizon` steps, and differentiate a loss of the trajectory with
    respect to the policy. The initial states are constants.

    **Arguments:**

    - `env`: the environment, with a wrapper of its actions such as `ScaleAction`.
    - `explore`: function of the policy that returns what acts, `(obs, key) -> action`.
    - `loss_fn`: function of transitions with axes (environment, time) that returns
        `(loss, more)`.

    **Returns:** the environments after it, with what was seen in the statistics; the
    derivative; transitions and `more`; what to report, with `loss`.
    """

    def loss(policy):
        running, steps, report = collect(
            env,
            explore(policy),
            state.running,
            key,
            agent.horizon,
            agent.checkpoint_every or None,
        )
        lost, more = loss_fn(steps)
        return lost, (running, steps, more, report)

    value_and_grad = eqx.filter_value_and_grad(loss, has_aux=True)
    (lost, (running, steps, more, report)), gradient = value_and_grad(policy)
    statistics = update_statistics(state.statistics, flatten_time(steps).obs)
    count = add_steps(report, state.steps)
    new = GradientEnvs(running, statistics, state.bounds, count)
    return new, gradient, steps, more, {**report, "loss": lost}


class APGState(eqx.Module):
    """State of `APG`: `learner` of a `DeterministicPolicy`, and environments `world`."""

    learner: Learner
    world: GradientEnvs
    key: PRNGKeyArray


class APG(AbstractOnlineAgent):
    r"""Analytic policy gradient: the derivative of the discounted rewards of the next $h$
    steps with respect to the parameters of the policy, through the physics.

    $$J = \frac{1}{h}\,\mathrm{mean} \sum_{t < h} \gamma^{t - t_0} r(s_t, \pi_\theta(o_t)), \qquad
    s_{t+1} = f(s_t, \pi_\theta(o_t)),$$

    where $t_0$ is the first step of the window, or of the episode if that began within the
    window. Environments continue where they were; earlier steps are constants, and rewards
    after $h$ steps are ignored. Derivatives over long horizons grow without bound
    where motion is unstable; `SHAC` replaces them by a critic.

    **Arguments:**

    - `num_envs`: number of environments.
    - `horizon`: steps $h$ that are differentiated.
    - `checkpoint_every`: steps between stored states, to save memory, see `eqsim.rollout`;
        0 stores all.
    - `hidden`: hidden layer sizes of the network.
    - `layer_norm`: true if the network has layer normalization.
    - `normalize_observations`: true to normalize observations.
    - `learning_rate`: Adam step size; Adam's averages are short ($\beta$ = 0.7, 0.95).
    - `discount`: discount $\gamma$.
    - `max_grad_norm`: global norm to which gradients are clipped.
    - `noise`: standard deviation of the noise on actions.

    ??? cite "Reference"
        Freeman et al., *Brax: a differentiable physics engine for large scale rigid body
        simulation*, 2021, section 4.2. Wiedemann et al., *Training efficient controllers
        via analytic policy gradient*, 2023.
    """

    num_envs: int = static(64)
    horizon: int = static(16)
    checkpoint_every: int = static(0)
    hidden: tuple[int, ...] = static((64, 64))
    layer_norm: bool = static(True)
    normalize_observations: bool = static(True)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-3)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    max_grad_norm: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)

    def __check_init__(self):
        check_positive(self, "num_envs", "horizon", "hidden")
        check_counts(self, "checkpoint_every")
        check_ranges(self)

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> APGState:
        key, key_policy, key_envs = jr.split(key, 3)
        world = start_gradient_envs(self, env, key_envs)
        obs = world.running.obs[0]
        network = MLP.create(
            key_policy,
            (obs.shape[0], *self.hidden, env.sys.nu),
            jnp.tanh,
            last_scale=0.01,
            layer_norm=self.layer_norm,
            dtype=obs.dtype,
        )
        optimizer = self._optimizer()
        learner = Learner.create(DeterministicPolicy(network), optimizer)
        return APGState(learner, world, key)

    @acts_on_batches
    def act(
        self, state: APGState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        action = state.learner.model(state.world.seen(obs))
        if key is not None:
            action = add_noise(action, self.noise, key)
        return scale_action(state.world.bounds, action)

    @same_precision
    def iterate(
        self, state: APGState, env: AbstractEnv
    ) -> tuple[APGState, dict[str, Float[Array, "..."]]]:
        key, key_act = jr.split(state.key)

        def loss(steps):
            weight = self.discount ** steps_since_reset(steps.done).astype(
                steps.reward.dtype
            )
            return -jnp.mean(
                jnp.sum(steps.reward * weight, axis=1)
            ) / self.horizon, None

        statistics, never = state.world.statistics, jnp.zeros((), bool)
        world, gradient, _, _, report = rollout_gradient(
            self,
            state.world,
            ScaleAction(env),
            state.learner.model,
            key_act,
            lambda policy: Explorer(policy, statistics, never, self.noise),
            loss,
        )
        state, metrics = self.update(APGState(state.learner, world, key), gradient)
        return state, report | metrics

    @same_precision
    def update(
        self, state: APGState, batch: Any
    ) -> tuple[APGState, dict[str, Float[Array, "..."]]]:
        """Take a gradient step.

        **Arguments:**

        - `batch`: the derivative of a loss by `state.learner.model`, as
            `eqx.filter_grad` gives it; nothing is changed if it is not finite.

        **Returns:** the new state, and `grad_norm`, the length of the gradient.
        """
        learner, norm = state.learner.apply_gradients(
            batch, self._optimizer(), max_grad_norm=self.max_grad_norm
        )
        return eqx.tree_at(lambda s: s.learner, state, learner), {"grad_norm": norm}

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, b1=0.7, b2=0.95)


def steps_since_reset(done: Bool[Array, "envs times"]) -> Int[Array, "envs times"]:
    """Count the steps since the start of the window, or of an episode within it."""
    time = jnp.broadcast_to(jnp.arange(done.shape[1], dtype=jnp.int32), done.shape)
    begins = jnp.pad(done[:, :-1], ((0, 0), (1, 0)))
    return time - lax.cummax(jnp.where(begins, time, 0), axis=1)
