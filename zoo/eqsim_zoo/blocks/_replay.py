"""Transitions and the replay buffer."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim.bridges import check_count


class Transition(eqx.Module):
    """Transitions, with any leading axes.

    **Arguments:**

    - `obs`, `action`, `reward`: observation before the step, action and reward.
    - `next_obs`: observation after the step, before any reset.
    - `terminated`: true if the task ended, so that nothing is bootstrapped.
    - `truncated`: true if the episode was cut off, so that the value is bootstrapped.
    """

    obs: Any
    action: Any
    reward: Float[Array, "..."]
    next_obs: Any
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]

    @property
    def done(self) -> Bool[Array, "..."]:
        """True at the last step of an episode."""
        return self.terminated | self.truncated


class Replay(eqx.Module):
    """Ring buffer of rows of any PyTree, on the device.

    Rows are added in blocks of a fixed size, so that no block wraps around.

    **Arguments:**

    - `rows`: the buffer; the first axis of each array is the capacity.
    - `at`: index of the next block.
    - `size`: number of rows.
    - `block`: number of rows added in one call.
    """

    rows: Any
    at: Int[Array, ""]
    size: Int[Array, ""]
    block: int = eqx.field(static=True)

    @staticmethod
    def create(example: Any, capacity: int, block: int = 1) -> "Replay":
        """Create an empty buffer.

        **Arguments:**

        - `example`: one row, whose values do not matter.
        - `capacity`: least number of rows, rounded up to a multiple of `block`.
        - `block`: number of rows added in one call.

        **Raises:** `ValueError` if the capacity or the block is not positive.
        """
        check_count("capacity", capacity)
        check_count("block", block)
        whole = -(-capacity // block) * block
        empty = lambda x: jnp.zeros((whole, *x.shape), x.dtype)
        # Two arrays, as each can be donated once.
        at, size = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return Replay(jtu.tree_map(empty, example), at, size, block)

    @property
    def capacity(self) -> int:
        """Largest number of rows."""
        return jtu.tree_leaves(self.rows)[0].shape[0]

    def add(self, rows: Any) -> "Replay":
        """Replace the oldest block by new rows.

        In place if the old buffer is donated; sample from the new one then, as the old one
        would be copied.

        **Raises:** `ValueError` if the number of rows is not that of a block.
        """
        number = jtu.tree_leaves(rows)[0].shape[0]
        if number != self.block:
            raise ValueError(
                f"Rows are added to this replay buffer in blocks of {self.block}, got "
                f"{number} rows."
            )
        put = lambda ring, new: lax.dynamic_update_slice_in_dim(ring, new, self.at, 0)
        at = (self.at + number) % self.capacity
        size = jnp.minimum(self.size + number, self.capacity)
        return Replay(jtu.tree_map(put, self.rows, rows), at, size, self.block)

    def sample(self, key: PRNGKeyArray, number: int) -> Any:
        """Sample rows uniformly with replacement; the buffer must not be empty."""
        index = jr.randint(key, (number,), 0, jnp.maximum(self.size, 1))
        take = lambda x: jnp.take(x, index, axis=0, mode="clip")
        return jtu.tree_map(take, self.rows)
