"""Lists of all environments in one sequence of lanes, for devices other than the CPU.

A list is an array `(capacity, *batch)` of which each environment uses the first `count` rows.
On a CPU each environment walks along its own list. A GPU computes the rows of all
environments together, one in each *lane*: row by row and environment by environment, the
lists are cut into chunks of a fixed number of lanes. A search in a lane takes as many passes
as the slowest one of its chunk, and the work follows the total number of rows that are used.
Nothing is dropped: there are as many chunks as the lists need.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax


MOST_LANES = 1 << 15
"""Largest number of lanes of a chunk; bounds the memory."""
MOST_IN_NEED = 1 << 13
"""Largest number of lanes of a chunk of `where_needed`."""


def lanes_per_chunk(capacity: int, batch: tuple[int, ...]) -> int:
    """Return the number of lanes for lists of a capacity: at least two, so that an axis of
    lanes differs from one that all lanes share."""
    return max(2, min(MOST_LANES, capacity * math.prod(batch)))


class Lanes(NamedTuple):
    """Rows of lists, one in each lane, `(lanes,)`. Lanes that are not used repeat another.

    - `row`: number of the row in the list of its environment.
    - `env`: index of its environment along each axis of the batch.
    - `first`: first lane of the chunk with the same environment.
    - `used`: true if there is a row.
    """

    row: Any
    env: tuple[Any, ...]
    first: Any
    used: Any

    def read(self, x, numbers):
        """Return entries `(1, lanes)` of a table `(m, *batch)` at numbers `(1, lanes)`."""
        if math.prod(x.shape[1:]) == 1:
            place = (numbers,)
            x = x.reshape(x.shape[0])
        else:
            place = (numbers, *(e[None] for e in self._places(x.shape[1:])))
        return x.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def read_tree(self, tree, numbers):
        """Return entries of all tables of a tree."""
        return jtu.tree_map(lambda x: self.read(x, numbers), tree)

    def of(self, x):
        """Return what an array `(..., *batch)` holds for each lane, `(..., lanes)`; an axis
        of one stands for all lanes if all environments share it."""
        start = x.ndim - len(self.env)
        if math.prod(x.shape[start:]) == 1:
            return x.reshape(*x.shape[:start], 1)
        place = (slice(None),) * start + self._places(x.shape[start:])
        return x.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def _places(self, batch) -> tuple:
        return tuple(
            e if n > 1 else 0 * e for e, n in zip(self.env, batch, strict=True)
        )

    def add(self, total, x, numbers=None):
        """Add values `(..., lanes)` of used lanes to an array `(..., *batch)`; or with
        numbers, to these rows of an array `(m, *batch)`. Values `(..., 1)` are added to
        what all environments share."""
        if numbers is None and x.shape[-1] == 1:
            return total + x.reshape(total.shape)
        used = self.used.reshape(*(1 for _ in x.shape[1:]), -1)
        x = jnp.where(used, x, jnp.zeros_like(x))
        if numbers is not None:
            place = (numbers, *(e[None] for e in self.env))
            return total.at[place].add(x, mode="promise_in_bounds")
        if not self.env:
            return total + jnp.sum(x, axis=-1)
        start = total.ndim - len(self.env)
        place = (slice(None),) * start + self.env
        return total.at[place].add(x, mode="promise_in_bounds")

    def places(self, count, flags) -> tuple[Any, Any]:
        """Return the places `(n, lanes)` at which flagged values are appended to lists that
        hold `count` rows, and the new counts. Places of other values are negative."""
        number = jnp.sum(flags, axis=0, dtype=jnp.int32)
        before = jnp.cumsum(number, dtype=jnp.int32) - number
        begin = self.of(count[None]) + (before - before[self.first])[None]
        place = begin + jnp.cumsum(flags, axis=0, dtype=jnp.int32) - 1
        number = jnp.where(self.used, number, 0)
        if not self.env:
            return jnp.where(flags, place, -1), count + jnp.sum(number, dtype=jnp.int32)
        return jnp.where(flags, place, -1), count.at[self.env].add(number)

    def write(self, x, places, values):
        """Write values `(n, lanes)` to places of lists; negative places are left out."""
        places = jnp.where(places < 0, x.shape[0], places)
        values = jnp.broadcast_to(values, places.shape)
        rows = x.at[(places, *(e[None] for e in self.env))]
        return rows.set(values, mode="drop", wrap_negative_indices=False)


def for_lanes(count, size: int, visit: Callable, start: Any) -> Any:
    """Fold `visit(carry, lanes)` over the rows of all lists, in chunks of `size` lanes.

    **Arguments:**

    - `count`: number of rows of each environment, `(*batch)`.
    """
    own = count.reshape(-1)
    ends = jnp.cumsum(own, dtype=jnp.int32)
    begins, total = ends - own, ends[-1]
    lane = jnp.arange(size, dtype=jnp.int32)

    def body(carry):
        k, kept = carry
        place = k + lane
        used = place < total
        place = jnp.minimum(place, total - 1)
        number = jnp.searchsorted(ends, place, side="right", method="scan_unrolled")
        number = jnp.minimum(number.astype(jnp.int32), own.size - 1)
        env = _indices(number, count.shape)
        begin = begins[number]
        first = jnp.maximum(begin - k, 0)
        lanes = Lanes(place - begin, env, first, used)
        return k + size, visit(kept, lanes)

    going = lambda carry: carry[0] < total
    return lax.while_loop(going, body, (jnp.zeros((), jnp.int32), start))[1]


def _indices(number, shape: tuple[int, ...]) -> tuple:
    """Return the index along each axis of an entry of an array."""
    found = []
    for size in reversed(shape):
        found.append(number % size)
        number = number // size
    return tuple(reversed(found))


def where_needed(
    when, fn: Callable, arguments: Any, shared: Any, otherwise: Any
) -> Any:
    """Return `fn(arguments, shared, when)` in the lanes where `when` holds, and `otherwise`
    elsewhere: the lanes in need are moved together, in chunks. Derivatives are computed in
    all lanes.

    **Arguments:**

    - `when`: `(1, lanes)`.
    - `fn`: function that reads no other arrays.
    - `arguments`: tree of arrays `(..., lanes)` or `(..., 1)`.
    - `shared`: tree of arrays that all lanes share.
    - `otherwise`: tree of arrays `(n, lanes)`, like the results.
    """

    @jax.custom_jvp
    def run(when, arguments, shared, otherwise):
        return _moved_together(when, fn, arguments, shared, otherwise)

    @run.defjvp
    def _(primals, tangents):
        def whole(when, arguments, shared, otherwise):
            choose = lambda x, y: jnp.where(when, x, y)
            return jtu.tree_map(choose, fn(arguments, shared, when), otherwise)

        return jax.jvp(whole, primals, tangents)

    return run(when, arguments, shared, otherwise)


def _moved_together(when, fn: Callable, arguments: Any, shared: Any, otherwise: Any):
    size = when.shape[-1]
    chunk = min(size, MOST_IN_NEED)
    (numbers,) = jnp.nonzero(when[0], size=size, fill_value=size)
    numbers = jnp.pad(numbers.astype(jnp.int32), (0, chunk), constant_values=size)
    total = jnp.sum(when, dtype=jnp.int32)
    take = lambda x, at: x if x.shape[-1] == 1 else x[..., at]

    def body(carry):
        k, kept = carry
        place = lax.dynamic_slice_in_dim(numbers, k, chunk)
        at = jnp.minimum(place, size - 1)
        own = jtu.tree_map(lambda x: take(x, at), arguments)
        found = fn(own, shared, (place < size)[None])
        put = lambda x, y: x.at[:, place].set(y, mode="drop")
        return k + chunk, jtu.tree_map(put, kept, found)

    going = lambda carry: carry[0] < total
    return lax.while_loop(going, body, (jnp.zeros((), jnp.int32), otherwise))[1]
