"""Velocity commands of a joystick."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ._task import number


class Commands(eqx.Module):
    r"""Velocity commands, redrawn at random times.

    The first command is uniform in [`-amplitude`, `amplitude`]. Each entry of a later
    command keeps its value with probability `1 - change`; otherwise it is uniform in
    the same range with probability `keep`, and zero else. The time between commands is
    exponentially distributed.

    **Arguments:**

    - `amplitude`: largest forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `keep`: probability that a new entry is not zero.
    - `change`: probability that an entry changes.
    - `mean_time`: mean time between commands, s.
    """

    amplitude: Float[Array, "3"] = number((1.5, 0.8, 1.2))
    keep: Float[Array, "3"] = number((0.9, 0.25, 0.5))
    change: Float[Array, ""] = number(0.5)
    mean_time: Float[Array, ""] = number(5.0)

    def first(self, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Draw the first command of an episode."""
        amplitude = self.amplitude
        return amplitude * jr.uniform(key, (3,), amplitude.dtype, -1.0, 1.0)

    def new(self, key: PRNGKeyArray, command: Float[Array, "3"]) -> Float[Array, "3"]:
        """Draw the command after a given one."""
        key_value, key_keep, key_change = jr.split(key, 3)
        kept = jr.bernoulli(key_keep, self.keep)
        drawn = jnp.where(kept, self.first(key_value), 0.0)
        return jnp.where(jr.bernoulli(key_change, self.change, (3,)), drawn, command)

    def steps(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> Int[Array, ""]:
        """Draw the number of control steps until the next command."""
        time = self.mean_time * jr.exponential(key, (), self.mean_time.dtype)
        return jnp.round(time / dt).astype(jnp.int32)
