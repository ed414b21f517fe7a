"""The Brax environment of `to_brax`, imported only there, because it needs Brax."""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from brax.envs.base import Env, State

from eqsim import AbstractEnv, System, Timestep
from eqsim.bridges import carries_over, check_no_auto_reset, typed_key


class BraxEnv(Env):
    """An environment of eqsim for Brax, see `to_brax`."""

    def __init__(self, env: AbstractEnv):
        check_no_auto_reset(env, "Brax")
        if carries_over(env):
            raise ValueError(
                "Brax starts every episode in the same state, so the curriculum of "
                f"`{type(env).__name__}` would stay at its first level. Leave it out, or "
                "train with `eqsim_zoo`."
            )
        self.eqsim_env = env

    @property
    def sys(self) -> System:
        """The robot. Brax's domain randomization replaces it temporarily."""
        return self.eqsim_env.sys

    @sys.setter
    def sys(self, sys: System) -> None:
        self.eqsim_env = eqx.tree_at(lambda env: env.sys, self.eqsim_env, sys)

    @property
    def dt(self) -> jax.Array:
        """Duration of a control step, s."""
        return self.eqsim_env.dt

    @property
    def observation_size(self) -> Any:
        """Length of an observation; the shapes of the parts of a dictionary."""
        obs = eqx.filter_eval_shape(self.eqsim_env.reset, jr.key(0))[1].obs
        if isinstance(obs, dict):
            return {name: part.shape for name, part in obs.items()}
        return obs.shape[-1]

    @property
    def action_size(self) -> int:
        """Length of an action."""
        return self.eqsim_env.sys.nu

    @property
    def backend(self) -> str:
        """Name of the physics backend: eqsim."""
        return "eqsim"

    def reset(self, rng: jax.Array) -> State:
        """Draw an initial state; `rng` is a typed or a legacy key."""
        inner, timestep = self.eqsim_env.reset(typed_key(rng))
        return self._state(inner, timestep, {}, {})

    def step(self, state: State, action: jax.Array) -> State:
        """Take one control step; `info`, and metrics of wrappers, are kept."""
        action = action.astype(self.eqsim_env.action_range.dtype)
        inner, timestep = self.eqsim_env.step(state.pipeline_state, action)
        return self._state(inner, timestep, state.metrics, state.info)

    def _state(
        self,
        inner: Any,
        timestep: Timestep,
        metrics: dict[str, Any],
        info: dict[str, Any],
    ) -> State:
        # Wrappers of Brax write into both dictionaries, and expect their entries to be
        # kept.
        reward = timestep.reward
        done, metrics = timestep.done.astype(reward.dtype), metrics | timestep.terms
        return State(inner, timestep.obs, reward, done, metrics, dict(info))
