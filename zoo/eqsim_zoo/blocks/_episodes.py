"""Returns of the episodes that transitions belong to."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ._replay import Transition


class Episodes(eqx.Module):
    """Returns of the latest episodes, in one ring buffer per environment.

    **Arguments:**

    - `returns`: return of each episode; the lowest finite number while it is running.
    - `current`: index of the running episode of each environment.
    """

    returns: Float[Array, "places envs"]
    current: Int[Array, " envs"]

    @staticmethod
    def create(num_envs: int, steps: int, dtype) -> "Episodes":
        """Create empty buffers.

        **Arguments:**

        - `num_envs`: number of environments.
        - `steps`: number of steps per environment whose episodes are kept.
        """
        # One more than there can be episodes, for the one that begins.
        empty = jnp.full((steps + 2, num_envs), _unknown(dtype), dtype)
        return Episodes(empty, jnp.zeros(num_envs, jnp.int32))

    def after(
        self, steps: Transition, so_far: Float[Array, " envs"]
    ) -> tuple["Episodes", Int[Array, "envs times"]]:
        """Add steps.

        **Arguments:**

        - `steps`: with axes (environment, time).
        - `so_far`: sums of the rewards of the running episodes before these steps.

        **Returns:** the new buffers, and for each step the index of its episode in
        `returns`, flattened.
        """
        places, envs = self.returns.shape
        env = jnp.arange(envs, dtype=jnp.int32)

        def step(carry, now):
            returns, current, total = carry
            reward, done = now
            total, after = total + reward, (current + 1) % places
            ended = jnp.where(done, total, returns[current, env])
            returns = returns.at[current, env].set(ended)
            fresh = jnp.where(done, _unknown(returns.dtype), returns[after, env])
            returns = returns.at[after, env].set(fresh)
            new = jnp.where(done, after, current), jnp.where(done, 0.0, total)
            return (returns, *new), current * envs + env

        start = self.returns, self.current, so_far
        (returns, current, _), where = lax.scan(
            step, start, (steps.reward.T, steps.done.T)
        )
        return Episodes(returns, current), where.T

    def return_of(self, where: Int[Array, "*rows"]) -> Float[Array, "*rows"]:
        """Return the returns of episodes by index; minus infinity while they are running."""
        found = self.returns.ravel()[where]
        return jnp.where(found == _unknown(found.dtype), -jnp.inf, found)


def _unknown(dtype):
    """Return a finite number that is not the return of any episode."""
    return jnp.finfo(dtype).min
