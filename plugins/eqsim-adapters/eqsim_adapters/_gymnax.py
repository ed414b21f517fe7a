"""Adapters for gymnax."""

import dataclasses
import functools as ft
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray

from eqsim import AbstractEnv, Timestep
from eqsim.bridges import check_count, check_no_auto_reset, typed_key
from eqsim.envs import observation_array
from eqsim.wrappers import next_episode

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


class Box:
    """Arrays between two bounds; replaces `gymnax.environments.spaces.Box` if gymnax is
    not installed."""

    def __init__(self, low: Any, high: Any, shape: tuple[int, ...], dtype: Any):
        self.low, self.high, self.shape, self.dtype = low, high, shape, dtype

    def sample(self, key: PRNGKeyArray) -> Array:
        """Draw a random element."""
        bounds = {"minval": self.low, "maxval": self.high}
        return jr.uniform(key, self.shape, self.dtype, **bounds)

    def contains(self, x: Any) -> Array:
        """Test if an array is between the bounds."""
        return jnp.all((x >= self.low) & (x <= self.high))


class GymnaxParams(eqx.Module):
    """Parameters of an environment, as array leaves that can be batched and
    differentiated.

    **Arguments:**

    - `env`: array leaves of the environment of eqsim.
    - `max_steps_in_episode`: time limit, in control steps.
    """

    env: Any
    max_steps_in_episode: Int[Array, ""]


class GymnaxState(eqx.Module):
    """State of `GymnaxEnv`. `time`: number of control steps in this episode."""

    inner: Any
    time: Int[Array, ""]


def to_gymnax(
    env: AbstractEnv,
    api: Literal["1.0", "legacy"] = "1.0",
    *,
    max_steps_in_episode: int = 1000,
) -> "GymnaxEnv":
    """Convert an environment of eqsim for purejaxrl, rejax and other code written for
    gymnax.

    **Arguments:**

    - `env`: environment without auto-reset; its own time limit is respected.
    - `api`: interface of `step`. `"1.0"`: returns `(obs, state, reward, terminated,
        truncated, info)`, as in gymnax since version 1. `"legacy"`: returns `(obs,
        state, reward, done, info)`, as in earlier versions, which purejaxrl and rejax
        0.1 expect.
    - `max_steps_in_episode`: time limit, which is one of the parameters.

    **Raises:** `ValueError` if `env` resets itself, or if `api` or the limit is
    invalid.
    """
    return GymnaxEnv(env, api, max_steps_in_episode)


class GymnaxEnv:
    """An environment of eqsim for gymnax, see `to_gymnax`.

    It is hashed by identity, because JAX requires static arguments to be hashable; all
    arrays are in `default_params`. `step` starts the next episode when one has ended;
    `info["final_observation"]` is then the last observation of the episode.
    """

    def __init__(self, env: AbstractEnv, api: str, max_steps_in_episode: int):
        check_no_auto_reset(env, "gymnax")
        if api not in ("1.0", "legacy"):
            raise ValueError(f"`api` must be '1.0' or 'legacy', got {api!r}.")
        check_count("max_steps_in_episode", max_steps_in_episode)
        arrays, self._static = eqx.partition(env, eqx.is_array)
        limit = jnp.asarray(max_steps_in_episode, jnp.int32)
        self._params, self._legacy = GymnaxParams(arrays, limit), api == "legacy"
        self._type = type(env).__name__

    @property
    def name(self) -> str:
        """Class name of the environment."""
        return self._type

    @property
    def default_params(self) -> GymnaxParams:
        """Parameters of the given environment."""
        return self._params

    @property
    def num_actions(self) -> int:
        """Length of an action."""
        return self._env(None).sys.nu

    def action_space(self, params: GymnaxParams | None = None) -> Any:
        """Return a `Box`, that of gymnax if it is installed."""
        low, high = jnp.moveaxis(self._env(params).action_range, -1, 0)
        return _box_type()(low, high, low.shape, low.dtype)

    def observation_space(self, params: GymnaxParams | None = None) -> Any:
        """Return an unbounded `Box`, that of gymnax if it is installed."""
        obs = observation_array(self._env(params), "`observation_space`")
        shape, dtype = obs.shape, obs.dtype
        if jnp.issubdtype(dtype, jnp.floating):
            return _box_type()(-jnp.inf, jnp.inf, shape, dtype)
        info = jnp.iinfo(dtype)
        return _box_type()(int(info.min), int(info.max), shape, dtype)

    @ft.partial(jax.jit, static_argnums=0)
    def reset(
        self, key: PRNGKeyArray, params: GymnaxParams | None = None
    ) -> tuple[Array, GymnaxState]:
        """Return the first observation and the state."""
        return self._begin(key, params)

    @ft.partial(jax.jit, static_argnums=0)
    def step(
        self,
        key: PRNGKeyArray,
        state: GymnaxState,
        action: Array,
        params: GymnaxParams | None = None,
    ) -> tuple:
        """Take one control step; if an episode has ended, start the next one, drawn
        with `key`."""
        new, timestep, truncated = self._step(state, action, params)
        done = timestep.terminated | truncated
        go_on = lambda: (timestep.obs, new)
        obs, new = lax.cond(done, lambda: self._begin(key, params, new.inner), go_on)
        terms = {f"reward_{name}": value for name, value in timestep.terms.items()}
        info = terms | {
            "terminated": timestep.terminated,
            "truncated": truncated,
            "final_observation": timestep.obs,
        }
        ends = (done,) if self._legacy else (timestep.terminated, truncated)
        return obs, new, timestep.reward, *ends, info

    def _env(self, params: GymnaxParams | None) -> AbstractEnv:
        arrays = (self._params if params is None else params).env
        return eqx.combine(arrays, self._static)

    def _begin(self, key, params, last=None) -> tuple[Array, GymnaxState]:
        env, key = self._env(params), typed_key(key)
        begun = env.reset(key) if last is None else next_episode(env, key, last)
        inner, timestep = begun
        return timestep.obs, GymnaxState(inner, jnp.zeros((), jnp.int32))

    def _step(self, state, action, params) -> tuple[GymnaxState, Timestep, Array]:
        env = self._env(params)
        action = jnp.asarray(action).astype(env.action_range.dtype)
        inner, timestep = env.step(state.inner, action)
        time = state.time + 1
        limit = (self._params if params is None else params).max_steps_in_episode
        over = (time >= limit) & ~timestep.terminated
        return GymnaxState(inner, time), timestep, timestep.truncated | over


def _box_type() -> type:
    # rejax tests if a space is one of gymnax's.
    try:
        from gymnax.environments.spaces import Box as GymnaxBox
    except ImportError:
        return Box
    return GymnaxBox
