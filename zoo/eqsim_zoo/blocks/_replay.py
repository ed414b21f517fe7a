"""A memory of transitions."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Transition(eqx.Module):
    """What a step was, with any leading axes.

    **Arguments:**

    - `obs`, `action`, `reward`: before the step, of it, for it.
    - `next_obs`: what it led to, before any reset.
    - `terminated`: whether the task ended there: nothing follows.
    - `truncated`: whether the episode was cut off there: what would follow has a value.
    """

    obs: Any
    action: Any
    reward: Float[Array, "..."]
    next_obs: Any
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]

    @property
    def done(self) -> Bool[Array, "..."]:
        """Whether the episode went no further."""
        return self.terminated | self.truncated


class Replay(eqx.Module):
    """The latest rows of any PyTree, in a ring on the device.

    Rows are added in blocks of always the same number, so that none wraps around and
    nothing but the block itself is moved.

    **Arguments:**

    - `rows`: the ring; the first axis of each array is the capacity.
    - `at`: where the next block goes.
    - `size`: how many rows there are.
    - `block`: how many rows are added at once.
    """

    rows: Any
    at: Int[Array, ""]
    size: Int[Array, ""]
    block: int = eqx.field(static=True)

    @staticmethod
    def create(example: Any, capacity: int, block: int = 1) -> "Replay":
        """An empty ring.

        **Arguments:**

        - `example`: one row, whose values do not matter.
        - `capacity`: at least so many rows are kept: a whole number of blocks.
        - `block`: how many rows are added at once.

        **Raises:** `ValueError` if the capacity or the block is not positive.
        """
        if capacity < 1 or block < 1:
            raise ValueError(
                f"A replay of capacity {capacity}, filled by blocks of {block}: both must be "
                "at least 1."
            )
        whole = -(-capacity // block) * block
        empty = lambda x: jnp.zeros((whole, *x.shape), x.dtype)
        # Two arrays, as each can be donated once.
        at, size = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return Replay(jtu.tree_map(empty, example), at, size, block)

    @property
    def capacity(self) -> int:
        """How many rows there can be."""
        return jtu.tree_leaves(self.rows)[0].shape[0]

    def add(self, rows: Any) -> "Replay":
        """With a block of rows in the place of the oldest.

        In place where the old memory is donated; draw from the new one then, as the old
        one would have to be copied.

        **Raises:** `ValueError` if the number of rows is not that of a block.
        """
        number = jtu.tree_leaves(rows)[0].shape[0]
        if number != self.block:
            raise ValueError(
                f"{number} rows are added to a replay with blocks of {self.block}."
            )
        put = lambda ring, new: lax.dynamic_update_slice_in_dim(ring, new, self.at, 0)
        at = (self.at + number) % self.capacity
        size = jnp.minimum(self.size + number, self.capacity)
        return Replay(jtu.tree_map(put, self.rows, rows), at, size, self.block)

    def sample(self, key: PRNGKeyArray, number: int) -> Any:
        """Rows drawn uniformly, with replacement; there must be one at least."""
        index = jr.randint(key, (number,), 0, jnp.maximum(self.size, 1))
        take = lambda x: jnp.take(x, index, axis=0, mode="clip")
        return jtu.tree_map(take, self.rows)
