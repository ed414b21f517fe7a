"""The derivative of what a policy earns, through the physics."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.wrappers import RunningStatistics, ScaleAction

from ._actions import check_action_bounds
from ._collect import add_steps, collect, flatten_time, reset_envs, Running
from ._parallel import check_divisible
from ._policies import Explorer
from ._replay import Transition
from ._statistics import init_statistics, normalize, update_statistics


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
    agent: Any, env: AbstractEnv, key: PRNGKeyArray
) -> GradientEnvs:
    """Reset the environments of an agent that differentiates the simulation.

    **Raises:** `ValueError` if the agent can not act there.
    """
    check_action_bounds(agent, env)
    check_divisible(agent, "num_envs")
    running = reset_envs(agent, env, key, agent.num_envs)
    obs = running.obs[0]
    statistics = init_statistics(obs) if agent.normalize_observations else None
    return GradientEnvs(
        running, statistics, jnp.array(env.action_range), jnp.zeros((), jnp.int32)
    )


def rollout_gradient(
    agent: Any,
    state: GradientEnvs,
    env: AbstractEnv,
    policy: Any,
    key: PRNGKeyArray,
    loss_fn: Callable[[Transition], tuple[Float[Array, ""], Any]],
    noise: Float[Array, ""],
) -> tuple[GradientEnvs, Any, Transition, Any, dict[str, Array]]:
    """Act for `agent.horizon` steps, and differentiate a loss of the trajectory with
    respect to the policy. The initial states are constants.

    **Arguments:**

    - `policy`: see `Explorer`.
    - `loss_fn`: function of transitions with axes (environment, time) that returns
        `(loss, more)`.
    - `noise`: standard deviation of the noise of a deterministic policy.

    **Returns:** the environments after it, with what was seen in the statistics; the
    derivative; transitions and `more`; what to report, with `loss`.
    """
    never = jnp.zeros((), bool)

    def loss(policy):
        explorer = Explorer(policy, state.statistics, noise, never)
        running, steps, report = collect(
            ScaleAction(env),
            explorer,
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
