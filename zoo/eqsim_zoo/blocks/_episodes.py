"""Which episode a transition was part of, and what return that had."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ._replay import Transition


class Episodes(eqx.Module):
    """Returns of the latest episodes, in a ring per environment.

    **Arguments:**

    - `returns`: of the episode in each place; the least number there is while it lasts.
    - `current`: the place of the running episode in the ring of its environment.
    """

    returns: Float[Array, "places envs"]
    current: Int[Array, " envs"]

    @staticmethod
    def create(num_envs: int, steps: int, dtype) -> "Episodes":
        """Before the first episode.

        **Arguments:**

        - `num_envs`: environments.
        - `steps`: of each environment, for which episodes are to be known.
        """
        # One more than there can be episodes, for the one that begins.
        empty = jnp.full((steps + 2, num_envs), _unknown(dtype), dtype)
        return Episodes(empty, jnp.zeros(num_envs, jnp.int32))

    def after(
        self, steps: Transition, so_far: Float[Array, " envs"]
    ) -> tuple["Episodes", Int[Array, "envs times"]]:
        """With some steps more.

        **Arguments:**

        - `steps`: with axes (environment, time).
        - `so_far`: sums of the rewards of the running episodes before these steps.

        **Returns:** the new value, and where in `returns`, flattened, the return of each
        step's episode stands or will stand.
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
        """The returns of episodes by their places; minus infinity of those that last."""
        found = self.returns.ravel()[where]
        return jnp.where(found == _unknown(found.dtype), -jnp.inf, found)


def _unknown(dtype):
    """A return that no episode has, and which is finite, as states of agents are."""
    return jnp.finfo(dtype).min
