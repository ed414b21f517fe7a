"""Conversion between actions of policies and of environments."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from eqsim import AbstractEnv
from eqsim.spatial import clamp
from eqsim.wrappers import AbstractConversion, check_scalable


class Squash(AbstractConversion):
    r"""Wrapper that squashes any numbers $u$: $\tanh(u)$ scaled to the action range where
    that is finite, and clipped where it is not.

    A rollout records $u$, whose density under a normal policy is known.
    """

    env: AbstractEnv

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        bound = jnp.asarray([-jnp.inf, jnp.inf], self.env.action_range.dtype)
        return jnp.broadcast_to(bound[None], (self.sys.nu, 2))

    def convert(self, action: Float[Array, " nu"]) -> Float[Array, " nu"]:
        return squash(self.env.action_range, action)


def squash(bounds: Float[Array, "nu 2"], u: Float[Array, " nu"]) -> Float[Array, " nu"]:
    """Squash numbers to the action range, see `Squash`."""
    low, high = bounds.astype(u.dtype).T
    both = jnp.isfinite(low) & jnp.isfinite(high)
    scaled = _scaled(
        jnp.where(both, low, -1.0), jnp.where(both, high, 1.0), jnp.tanh(u)
    )
    return jnp.where(both, scaled, clamp(u, low, high))


def scale(
    bounds: Float[Array, "nu 2"], action: Float[Array, " nu"]
) -> Float[Array, " nu"]:
    """Scale an action between -1 and 1 to the action range, which must be finite."""
    low, high = bounds.astype(action.dtype).T
    return _scaled(low, high, action)


def unscale(
    bounds: Float[Array, "nu 2"], action: Float[Array, "*rows nu"]
) -> Float[Array, "*rows nu"]:
    """Invert `scale`, for one action or several."""
    low, high = bounds.astype(action.dtype).T
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    broadcast = lambda x: jnp.broadcast_to(x, action.shape)
    return jnp.clip((action - broadcast(middle)) / broadcast(half), -1.0, 1.0)


def _scaled(low, high, action):
    return low + 0.5 * (action + 1.0) * (high - low)


def check_action_bounds(
    agent: eqx.Module, env: AbstractEnv, *, unlimited: bool = False
) -> None:
    """Raise `ValueError` unless an agent can scale its actions to the action range, see
    `check_scalable`.

    **Arguments:**

    - `unlimited`: True to accept infinite bounds, as `Squash` does.
    """
    name, bounds = type(agent).__name__, env.action_range
    hint = (
        ", or use an agent that supports unbounded actions, such as `PPO` without "
        "`levels`"
    )
    check_scalable(name, env, "" if unlimited else hint, unlimited=unlimited)
    if unlimited or not isinstance(bounds, Tracer):
        return
    bounds = _without_numbers(env)
    if isinstance(bounds, Tracer):
        return
    for k in np.flatnonzero(~np.all(np.isfinite(bounds), axis=1)):
        raise ValueError(
            f"`{name}` scales actions, which needs a finite range of positive width, but "
            f"actuator {env.sys.actuators.ctrl_names[k]!r} has no limits. Limit it in the "
            f"model (`ctrlrange`){hint}."
        )


def _without_numbers(env: AbstractEnv) -> Float[Array, "nu 2"]:
    """Return the action range with zeros for the numbers of the environment, whose
    values are unknown inside a transformation. Missing limits are still infinite."""
    with jax.ensure_compile_time_eval():
        zero = lambda x: jnp.zeros(x.shape, x.dtype) if eqx.is_inexact_array(x) else x
        return jtu.tree_map(zero, env).action_range
