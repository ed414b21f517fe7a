"""Policies to record: functions `(obs, key) -> action` or controllers with memory, with
actions in the units of the robot."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractController, State


Policy = Callable[[Any, PRNGKeyArray], Float[Array, " nu"]] | AbstractController


class RandomPolicy(eqx.Module):
    """Policy with uniformly distributed actions, independent of the observation.

    **Arguments:**

    - `bounds`: lower and upper bounds of actions, such as `env.action_range`.
    """

    bounds: Float[Array, "nu 2"]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        low, high = self.bounds.T
        return jr.uniform(key, low.shape, low.dtype, low, high)


def noisy_policy(
    policy: Policy, bounds: Float[Array, "nu 2"], noise: Float[Array, ""] | float
) -> Policy:
    """Add normal noise to the actions of a policy, clipped to bounds.

    **Arguments:**

    - `policy`: function or controller.
    - `bounds`: bounds of actions.
    - `noise`: standard deviation, where half the distance between the bounds is 1; 0
        only clips actions.
    """
    return _changed(policy, _Noise(bounds, noise))


def clipped_policy(policy: Policy, bounds: Float[Array, "nu 2"]) -> Policy:
    """Clip the actions of a policy to bounds."""
    return _changed(policy, _Clip(bounds))


class _Noise(eqx.Module):
    """Normal noise on actions between bounds."""

    bounds: Float[Array, "nu 2"]
    noise: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(
        self, action: Float[Array, " nu"], key: PRNGKeyArray
    ) -> Float[Array, " nu"]:
        low, high = self.bounds.T
        normal = jr.normal(key, action.shape, action.dtype)
        deviation = self.noise.astype(action.dtype) * 0.5 * (high - low)
        return jnp.clip(action + deviation * normal, low, high)


class _Clip(eqx.Module):
    """Bounds of actions."""

    bounds: Float[Array, "nu 2"]

    def __call__(
        self, action: Float[Array, " nu"], key: PRNGKeyArray
    ) -> Float[Array, " nu"]:
        low, high = self.bounds.astype(action.dtype).T
        return jnp.clip(action, low, high)


def _changed(policy: Policy, change: Callable[[Any, Any], Array]) -> Policy:
    if isinstance(policy, AbstractController):
        return _ChangedController(policy, change)
    return _ChangedPolicy(policy, change)


class _ChangedPolicy(eqx.Module):
    """Policy whose actions are changed by a function of action and key."""

    policy: Callable[[Any, PRNGKeyArray], Float[Array, " nu"]]
    change: Callable[[Any, Any], Array]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        return self.change(self.policy(obs, key), jr.fold_in(key, 1))


class _ChangedController(AbstractController):
    """Controller whose actions are changed by a function of action and key."""

    controller: AbstractController
    change: Callable[[Any, Any], Array]

    def init(self, state: State, key: PRNGKeyArray) -> Any:
        return self.controller.init(state, key)

    def act(
        self, memory: Any, state: State, obs: Any, key: PRNGKeyArray
    ) -> tuple[Any, Float[Array, " nu"]]:
        memory, action = self.controller.act(memory, state, obs, key)
        return memory, self.change(action, jr.fold_in(key, 1))
