from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._errors import check_count
from ..envs import AbstractEnv, check_action, ResetOptions, Timestep
from ._wrapper import AbstractStateful, Lifetime


class TimeLimitState(eqx.Module):
    """State of `TimeLimit`. `count`: number of steps in this episode."""

    inner: Any
    count: Int[Array, ""]


def _as_count(n: Any) -> Any:
    """Convert an integer to an array; arrays of integers are returned unchanged."""
    if not isinstance(n, jax.Array | np.ndarray):
        check_count("TimeLimit.length", n)
        return jnp.asarray(n, jnp.int32)
    if not jnp.issubdtype(n.dtype, jnp.integer):
        raise ValueError(
            f"`TimeLimit.length` must be an integer of at least 1, got {n}."
        )
    return n


class TimeLimit(AbstractStateful):
    """Time limit: sets `truncated` after `length` steps of an episode.

    **Arguments:**

    - `env`: the environment.
    - `length`: number of control steps; an array leaf, so it can be batched and changed
        without recompiling.

    **Raises:** `ValueError` if the length is not positive, or `env` resets itself.
    """

    env: AbstractEnv
    length: Int[Array, ""] = eqx.field(converter=_as_count)

    def __check_init__(self):
        if not isinstance(self.length, Tracer) and not np.all(
            np.asarray(self.length) >= 1
        ):
            raise ValueError(
                f"`TimeLimit.length` must be at least 1, got {self.length}."
            )

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[TimeLimitState, Timestep]:
        inner, timestep = self.env.reset(key, options)
        return TimeLimitState(inner, jnp.zeros((), jnp.int32)), timestep

    def step(
        self, state: TimeLimitState, action: Float[Array, " nu"]
    ) -> tuple[TimeLimitState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        count = state.count + 1
        over = (count >= self.length) & ~timestep.terminated
        truncated = timestep.truncated | over
        timestep = eqx.tree_at(lambda t: t.truncated, timestep, truncated)
        return TimeLimitState(inner, count), timestep
