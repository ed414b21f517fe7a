"""Adapters for Brax and MuJoCo Playground, whose environments have the same
interface."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from eqsim import AbstractEnv, System

from ._foreign import AbstractLibrary, Foreign, foreign, Found


def to_brax(env: AbstractEnv) -> Any:
    """Convert an environment of eqsim to a `brax.envs.Env`, for instance for
    `brax.training`.

    The pipeline state is the state of `env`, and metrics are the reward terms. Brax
    cannot distinguish truncation by the environment, so use Brax's own time limit
    (`episode_length`) and auto-reset.

    Brax's domain randomization is supported: `randomization_fn` takes `env.sys` and
    returns a batch of robots and their axes.

    **Raises:** `ImportError` if Brax is not installed; `ValueError` if `env` resets
    itself, or has a curriculum, as Brax repeats the first state of each environment.
    """
    try:
        from ._brax_env import BraxEnv
    except ImportError as error:
        raise ImportError(
            "`to_brax` needs Brax. Run `pip install 'eqsim-adapters[brax]'`."
        ) from error
    return BraxEnv(env)


def from_brax(
    env: Any,
    *,
    obs: str | None = None,
    sys: System | None = None,
    dt: float | None = None,
) -> Foreign:
    """Convert a `brax.envs.Env` to an environment of eqsim; see `Foreign` for its
    limits.

    Actions are in [-1, 1], as in Brax. If `env` has Brax's time limit,
    `info["truncation"]` becomes `truncated`; `eqsim.TimeLimit` can be used instead.

    **Arguments:**

    - `env`: environment without wrappers that batch or reset it.
    - `obs`: key of the observation, if observations are a dictionary.
    - `sys`: description of its robot, with `sys.dt` equal to `env.dt`. Coordinates and
        velocities are then `pipeline_state.q` and `pipeline_state.qd`.
    - `dt`: duration of a control step, s; by default `env.dt`, which environments
        without physics do not have.

    **Raises:** `ValueError` if `env` is batched or resets itself, `obs` is not a key of
    the observations, or `sys` does not fit.
    """
    library = _Brax("Brax", env, obs, "pipeline_state", "q", "qd")
    return _made(library, env, sys, float(env.dt) if dt is None else dt)


def from_playground(
    env: Any, *, obs: str | None = None, sys: System | None = None
) -> Foreign:
    """Convert an `MjxEnv` of MuJoCo Playground to an environment of eqsim; see
    `Foreign` for its limits.

    **Arguments, raises:** as for `from_brax`; with `sys`, coordinates and velocities
    are `data.qpos` and `data.qvel`. `obs` is `"state"` for most dictionaries.
    """
    library = _Brax("Playground", env, obs, "data", "qpos", "qvel")
    return _made(library, env, sys, float(env.dt))


def _made(library: "_Brax", env: Any, sys: System | None, dt: float) -> Foreign:
    library.check()
    bounds = np.tile([-1.0, 1.0], (env.action_size, 1))
    return foreign(library, None, bounds, dt, sys)


@dataclasses.dataclass(frozen=True)
class _Brax(AbstractLibrary):
    """Interface of Brax. `data`, `q`, `qd`: attributes of a state that contain the
    robot."""

    name: str
    env: Any
    obs: str | None
    data: str
    q: str
    qd: str

    def reset(self, params: Any, key: Any) -> Found:
        return self._found(self.env.reset(jr.key_data(key)))

    def step(self, params: Any, inner: Any, action: Any, key: Any) -> Found:
        return self._found(self.env.step(inner, action))

    def coordinates(self, inner: Any) -> tuple[Any, Any]:
        data = vars(inner)[self.data]
        # Not `vars`: some pipelines of Brax have fields, others properties.
        return getattr(data, self.q), getattr(data, self.qd)

    def check(self) -> None:
        """Raise `ValueError` if an environment cannot be converted."""
        state = jax.eval_shape(self.env.reset, jax.random.PRNGKey(0))
        for name in state.info:
            if name.endswith("first_obs"):
                raise ValueError(
                    "The environment must not reset itself, but this environment of "
                    f"{self.name} does. Pass it without that wrapper, and wrap it in "
                    "`eqsim.AutoReset`."
                )
        known = sorted(state.obs) if isinstance(state.obs, Mapping) else None
        if known is None and self.obs is not None:
            raise ValueError(
                "`obs` must be left out, because observations are an array, got "
                f"{self.obs!r}."
            )
        if known is not None and self.obs not in known:
            raise ValueError(
                f"`obs` must be one of {', '.join(known)}, because observations are a "
                f"dictionary, got {self.obs!r}."
            )

    def _found(self, state: Any) -> Found:
        obs = state.obs if self.obs is None else state.obs[self.obs]
        truncated = jnp.asarray(state.info.get("truncation", 0.0), float) > 0
        terminated = (jnp.asarray(state.done, float) > 0) & ~truncated
        return Found(state, obs, state.reward, terminated, truncated)
