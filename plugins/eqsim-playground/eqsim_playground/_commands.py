"""Velocity commands of a joystick."""

import abc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._task import number


class AbstractCommands(eqx.Module):
    """Velocity commands, redrawn during an episode: forward and lateral velocity, m/s,
    and yaw rate, rad/s."""

    @abc.abstractmethod
    def first(self, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Draw the first command of an episode."""

    @abc.abstractmethod
    def new(self, key: PRNGKeyArray, command: Float[Array, "3"]) -> Float[Array, "3"]:
        """Draw the command after a given one."""

    @abc.abstractmethod
    def steps(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> Int[Array, ""]:
        """Draw the number of control steps until the next command."""


class Commands(AbstractCommands):
    r"""Velocity commands of the Go1, redrawn at random times.

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


class UniformCommands(AbstractCommands):
    """Velocity commands of humanoids, redrawn after a fixed time.

    Each entry is uniform between `low` and `high`; with probability `standing`, the whole
    command is zero.

    **Arguments:**

    - `low`, `high`: smallest and largest forward and lateral velocity, m/s, and yaw rate,
        rad/s.
    - `standing`: probability of a command to stand.
    - `time`: time between commands, s.
    """

    low: Float[Array, "3"] = number((-1.0, -0.5, -1.0))
    high: Float[Array, "3"] = number((1.0, 0.5, 1.0))
    standing: Float[Array, ""] = number(0.1)
    # Playground draws a command after more than 500 control steps of 0.02 s.
    time: Float[Array, ""] = number(10.02)

    def first(self, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Draw a command."""
        share = jr.uniform(key, (4,), self.low.dtype)
        drawn = self.low + (self.high - self.low) * share[:3]
        return jnp.where(share[3] < self.standing, 0.0, drawn)

    def new(self, key: PRNGKeyArray, command: Float[Array, "3"]) -> Float[Array, "3"]:
        """Draw a command, which does not depend on the last one."""
        del command
        return self.first(key)

    def steps(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> Int[Array, ""]:
        """Return the number of control steps until the next command."""
        del key
        return jnp.round(self.time / dt).astype(jnp.int32)


def is_moving(
    command: Float[Array, " n"], threshold: Float[Array, ""] | float
) -> Bool[Array, ""]:
    """Test if a command is longer than a threshold."""
    return jnp.sum(command**2) > threshold**2
