"""Policies to record: `(obs, key) -> action`, in the units of the robot."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractAgent


class RandomPolicy(eqx.Module):
    """Actions that are uniform between bounds, whatever is seen.

    **Arguments:**

    - `bounds`: of actions, such as `env.action_range`.
    """

    bounds: Float[Array, "nu 2"]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        low, high = self.bounds.T
        return jr.uniform(key, low.shape, low.dtype, low, high)


class DrawnPolicy(eqx.Module):
    """Acts as an agent does while it learns: actions are drawn.

    **Arguments:**

    - `agent`, `state`: an agent and what it has learned.
    """

    agent: AbstractAgent
    state: Any

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        return self.agent.act(self.state, obs, key=key)


class NoisyPolicy(eqx.Module):
    """Adds normal noise to actions, and keeps them between bounds.

    **Arguments:**

    - `policy`: what acts.
    - `bounds`: of actions.
    - `noise`: standard deviation, where half the distance between the bounds is 1; zero
        keeps actions between bounds, and does nothing else.
    """

    policy: Callable[[Any, PRNGKeyArray], Float[Array, " nu"]]
    bounds: Float[Array, "nu 2"]
    noise: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        key, key_noise = jr.split(key)
        action = self.policy(obs, key)
        low, high = self.bounds.astype(action.dtype).T
        normal = jr.normal(key_noise, action.shape, action.dtype)
        deviation = self.noise.astype(action.dtype) * 0.5 * (high - low)
        return jnp.clip(action + deviation * normal, low, high)
