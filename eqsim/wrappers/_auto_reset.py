import enum
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._errors import check_key
from ..envs import AbstractEnv, check_action, ResetOptions, Timestep
from ._wrapper import AbstractStateful, Lifetime, refuse_run


class ResetMode(enum.Enum):
    """Time at which `AutoReset` starts the next episode: in the step that ends an
    episode, or in the following step, whose action is ignored."""

    SAME_STEP = enum.auto()
    NEXT_STEP = enum.auto()


class AutoResetState(eqx.Module):
    """State of `AutoReset`. `key`: key for the next resets. `over`: true if the next
    step is a reset."""

    inner: Any
    key: PRNGKeyArray
    over: Bool[Array, ""]


class AutoReset(AbstractStateful):
    """Auto-reset: starts a new episode, with a new key, when an episode has ended.

    `timestep.final_obs` is the observation after the action, before any reset. Use it
    instead of `obs` as the next observation of a transition. Reward, terms,
    `terminated`, `truncated` and `descriptor` also belong to the action.

    **Arguments:**

    - `env`: environment, including all wrappers whose state belongs to one episode.
    - `mode`: with `ResetMode.SAME_STEP`, `obs` already belongs to the new episode. With
        `ResetMode.NEXT_STEP`, `obs` belongs to the old episode; the next step ignores
        its action, resets, and returns `first=True` and zero reward.

    In a batch, every environment computes a full reset in every step, and keeps it only
    if its episode has ended. If resets are expensive, `pool_resets` computes them in
    advance. Options of `reset` apply only to the first episode.

    **Raises:** `ValueError` if `env` contains a wrapper whose state must not be reset
    with the episode.
    """

    env: AbstractEnv
    mode: ResetMode = eqx.field(static=True, default=ResetMode.SAME_STEP)

    def __check_init__(self):
        refuse_run(self)

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.RUN

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[AutoResetState, Timestep]:
        check_key(key)
        key_reset, key = jr.split(key)
        inner, timestep = self.env.reset(key_reset, options)
        return AutoResetState(inner, key, jnp.zeros((), bool)), _final(timestep)

    def step(
        self, state: AutoResetState, action: Float[Array, " nu"]
    ) -> tuple[AutoResetState, Timestep]:
        check_action(self, action)
        key_reset, key = jr.split(state.key)
        step = lambda: self.env.step(state.inner, action)
        fresh = lambda: self.env.reset(key_reset)
        no = jnp.zeros((), bool)
        if self.mode is ResetMode.NEXT_STEP:
            inner, timestep = lax.cond(state.over, fresh, step)
            over = timestep.done & ~timestep.first
            return AutoResetState(inner, key, over), _final(timestep)
        inner, timestep = step()
        new, obs = lax.cond(
            timestep.done,
            lambda: _pair(*fresh()),
            lambda: (inner, timestep.obs),
        )
        timestep = eqx.tree_at(lambda t: t.obs, _final(timestep), obs)
        return AutoResetState(new, key, no), timestep


def _pair(state, timestep: Timestep):
    return state, timestep.obs


def _final(timestep: Timestep) -> Timestep:
    where = lambda t: t.final_obs
    return eqx.tree_at(where, timestep, timestep.obs, is_leaf=lambda x: x is None)
