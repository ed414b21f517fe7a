"""The dm_env environment of `to_dm_env`, imported only there, because it needs
dm_env."""

from typing import Any

import dm_env
import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from dm_env import specs

import eqsim
from eqsim import AbstractEnv
from eqsim.bridges import carries_over, check_no_auto_reset
from eqsim.envs import observation_array
from eqsim.wrappers import next_episode


class DmEnv(dm_env.Environment):
    """An environment of eqsim for dm_env, see `to_dm_env`."""

    def __init__(self, env: AbstractEnv, max_steps: int | None, seed: int):
        check_no_auto_reset(env, "dm_env")
        self.eqsim_env = env if max_steps is None else eqsim.TimeLimit(env, max_steps)
        self._key, self._state, self._over = jr.key(seed), None, True
        self._obs = observation_array(env, "`to_dm_env`")
        self._reward = eqx.filter_eval_shape(env.reset, self._key)[1].reward

    def reset(self) -> dm_env.TimeStep:
        """Start an episode."""
        self._key, key = jr.split(self._key)
        last = self._state if carries_over(self.eqsim_env) else None
        self._state, timestep = _reset(self.eqsim_env, key, last)
        self._over = False
        return dm_env.restart(np.array(timestep.obs))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Take one control step, or start an episode if the last one is over.

        **Raises:** `ValueError` if the action has the wrong shape or is not finite.
        """
        if self._over:
            return self.reset()
        spec = self.action_spec()
        action = np.asarray(action, spec.dtype)
        if action.shape != spec.shape or not np.all(np.isfinite(action)):
            raise ValueError(
                f"`action` must have finite values and shape {spec.shape}, got "
                f"{action}."
            )
        self._state, timestep = _step(self.eqsim_env, self._state, action)
        timestep = jax.device_get(timestep)
        args = np.array(timestep.reward)[()], np.array(timestep.obs)
        self._over = bool(timestep.terminated | timestep.truncated)
        if timestep.terminated:
            return dm_env.termination(*args)
        return dm_env.truncation(*args) if self._over else dm_env.transition(*args)

    def observation_spec(self) -> specs.Array:  # type: ignore[override]
        """Return the shape and type of observations."""
        return specs.Array(self._obs.shape, self._obs.dtype, "observation")

    def action_spec(self) -> specs.BoundedArray:  # type: ignore[override]
        """Return the shape, type and bounds of actions."""
        low, high = np.moveaxis(np.asarray(self.eqsim_env.action_range), -1, 0)
        return _Actions(low.shape, low.dtype, low, high, "action")

    def reward_spec(self) -> specs.Array:
        """Return the type of rewards."""
        return specs.Array((), self._reward.dtype, "reward")


class _Actions(specs.BoundedArray):
    """Bounds of actions, of which some may be infinite."""

    def generate_value(self) -> np.ndarray:
        """Return the action closest to zero, since the lower bound may be infinite."""
        return np.clip(np.zeros(self.shape, self.dtype), self.minimum, self.maximum)


_reset = eqx.filter_jit(
    lambda env, key, last: (
        env.reset(key) if last is None else next_episode(env, key, last)
    )
)
_step = eqx.filter_jit(lambda env, state, action: env.step(state, action))
