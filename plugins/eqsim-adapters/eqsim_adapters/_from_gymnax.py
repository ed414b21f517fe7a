import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ._foreign import AbstractLibrary, Foreign, foreign, Found


def from_gymnax(env: Any, params: Any = None, *, dt: float = 1.0) -> Foreign:
    """Convert an environment of gymnax to an environment of eqsim; see `Foreign` for
    its limits.

    The time limit of gymnax sets `truncated`, both in its interface since version 1 and
    in the earlier one.

    **Arguments:**

    - `env`: environment whose action space is a `Box` of vectors.
    - `params`: parameters; by default `env.default_params`. Arrays are array leaves of
        `env.params`; Python numbers are constants.
    - `dt`: duration of a step, which gymnax does not define, s.

    **Raises:** `ValueError` if actions are discrete or not vectors, or `dt` is not
    positive.
    """
    params = env.default_params if params is None else params
    space = env.action_space(params)
    if len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"Actions of {env.name} must be vectors of floating-point numbers, got "
            f"{type(space).__name__} of shape {space.shape}."
        )
    if not dt > 0:
        raise ValueError(f"`dt` must be positive, got {dt}.")
    bounds = [np.broadcast_to(x, space.shape) for x in (space.low, space.high)]
    modern = any("is_truncated" in vars(base) for base in type(env).__mro__)
    return foreign(_Gymnax("gymnax", env, modern), params, np.stack(bounds, -1), dt)


@dataclasses.dataclass(frozen=True)
class _Gymnax(AbstractLibrary):
    """Interface of gymnax. `modern`: true if `step_env` distinguishes termination from
    truncation."""

    name: str
    env: Any
    modern: bool

    def reset(self, params: Any, key: Any) -> Found:
        obs, state = self.env.reset_env(key, params)
        return Found(state, obs, 0.0, np.zeros((), bool), np.zeros((), bool))

    def step(self, params: Any, inner: Any, action: Any, key: Any) -> Found:
        obs, state, reward, ended, _ = self.env.step_env(key, inner, action, params)
        if self.modern:
            truncated = self.env.is_truncated(state, params)
            return Found(state, obs, reward, ended, truncated)
        truncated = state.time >= params.max_steps_in_episode
        terminated = jnp.asarray(ended, bool) & ~truncated
        return Found(state, obs, reward, terminated, truncated)
