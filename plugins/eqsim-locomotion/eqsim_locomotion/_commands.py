"""Velocity commands that change during an episode."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ._fields import array


class Commands(eqx.Module):
    """Velocity commands, redrawn at random times.

    Each entry of a command is uniform between `low` and `high`, or zero with a probability
    of its own, so that commands along one axis are as frequent as others; with probability
    `standing`, the whole command is zero. The time between commands is exponentially
    distributed.

    **Arguments:**

    - `low`, `high`: smallest and largest forward and lateral velocity, m/s, and yaw rate,
        rad/s.
    - `zero`: probabilities that an entry is zero.
    - `standing`: probability of a command to stand.
    - `mean_time`: mean time between commands, s.
    """

    low: Float[Array, "3"] = array((-1.0, -0.5, -1.0))
    high: Float[Array, "3"] = array((1.0, 0.5, 1.0))
    zero: Float[Array, "3"] = array((0.1, 0.5, 0.5))
    standing: Float[Array, ""] = array(0.1)
    mean_time: Float[Array, ""] = array(5.0)

    def scaled(self, speed: float | int) -> "Commands":
        """Return these commands with velocities multiplied by `speed`."""
        where = lambda commands: (commands.low, commands.high)
        return eqx.tree_at(where, self, (speed * self.low, speed * self.high))

    def draw(
        self, key: PRNGKeyArray, dt: Float[Array, ""]
    ) -> tuple[Float[Array, "3"], Int[Array, ""]]:
        """Draw a command, and the number of control steps of `dt` that it lasts."""
        # One draw: random numbers are a good part of the cost of a step.
        share = jr.uniform(key, (8,), self.low.dtype)
        value = self.low + (self.high - self.low) * share[:3]
        value = jnp.where(share[5:] < self.zero, 0.0, value)
        time = -self.mean_time * jnp.log1p(-share[4])
        steps = jnp.maximum(jnp.round(time / dt), 1.0).astype(jnp.int32)
        return jnp.where(share[3] < self.standing, 0.0, value), steps
