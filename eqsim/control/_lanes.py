r"""Batches of problems on a fixed number of lanes.

A batch in one loop runs until its last problem has ended. Here each iteration advances the
problems on the lanes; where one has ended, its result is stored, and the next problem of
the batch takes the lane.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax


class Loop(NamedTuple):
    """An iteration of one problem.

    - `first(data)`: first state of the iteration, from the data of the problem.
    - `step(data, state)`: next state.
    - `pending(state)`: true while the problem has not ended.
    - `result(state)`: its result.
    """

    first: Callable[[Any], Any]
    step: Callable[[Any, Any], Any]
    pending: Callable[[Any], Any]
    result: Callable[[Any], Any]


def run(loop: Loop, data: Any, lanes: int | None) -> Any:
    """Iterate until a problem has ended.

    **Arguments:**

    - `data`: data of the problem; its arrays get batch axes under `jax.vmap`.
    - `lanes`: largest number of problems that a batch under `jax.vmap` iterates at the same
        time; None for all.

    **Returns:** the result, independent of `lanes`.
    """
    if lanes is None:
        return _one(loop, data)
    arrays, static = eqx.partition(data, eqx.is_array)

    @jax.custom_batching.custom_vmap
    def ended(arrays):
        return _one(loop, eqx.combine(arrays, static))

    @ended.def_vmap
    def _(size, batched, arrays):
        (batched,) = batched if isinstance(batched, tuple | list) else (batched,)
        axes = jax.tree.map(lambda has: 0 if has else None, batched)
        over = _Batch(loop, arrays, static, axes, size)
        found = over.whole() if size <= lanes else over.on_lanes(lanes)
        return found, jax.tree.map(lambda _: True, found)

    return ended(arrays)


def _one(loop: Loop, data: Any) -> Any:
    step = lambda state: loop.step(data, state)
    return loop.result(lax.while_loop(loop.pending, step, loop.first(data)))


class _Lanes(NamedTuple):
    """Problems in progress.

    - `index`: number of the problem on each lane; that of problems where a lane is empty.
    - `arrays`: their data. `state`: their states.
    - `following`: number of the next problem.
    - `found`: results of all problems.
    """

    index: Any
    arrays: Any
    state: Any
    following: Any
    found: Any


class _Batch(NamedTuple):
    """A batch of problems.

    - `arrays`, `static`: data of all problems. `axes`: batch axis of each array; None for
        those that are common to all problems.
    - `size`: number of problems.
    """

    loop: Loop
    arrays: Any
    static: Any
    axes: Any
    size: int

    def whole(self) -> Any:
        """Iterate all problems in one loop."""
        one = lambda arrays: _one(self.loop, eqx.combine(arrays, self.static))
        return jax.vmap(one, (self.axes,))(self.arrays)

    def on_lanes(self, lanes: int) -> Any:
        """Iterate as many problems as there are lanes."""
        index = jnp.arange(lanes, dtype=jnp.int32)
        arrays = self._at(index)
        state = self._first(arrays)
        kinds = jax.eval_shape(jax.vmap(self.loop.result), state)
        empty = lambda x: jnp.zeros((self.size, *x.shape[1:]), x.dtype)
        following = jnp.asarray(lanes, jnp.int32)
        found = jax.tree.map(empty, kinds)
        begin = _Lanes(index, arrays, state, following, found)
        occupied = lambda now: jnp.any(now.index < self.size)
        return lax.while_loop(occupied, self._advance, begin).found

    def _advance(self, now: _Lanes) -> _Lanes:
        """Take a step on each lane, and give lanes to other problems."""
        step = lambda arrays, state: self.loop.step(self._data(arrays), state)
        new = jax.vmap(step, (self.axes, 0))(now.arrays, now.state)
        new = _where(jax.vmap(self.loop.pending)(now.state), new, now.state)
        now = now._replace(state=new)
        ended = ~jax.vmap(self.loop.pending)(new) & (now.index < self.size)
        return lax.cond(jnp.any(ended), lambda: self._renewed(now, ended), lambda: now)

    def _renewed(self, now: _Lanes, ended) -> _Lanes:
        """Store the results of the problems that have ended, and start others."""
        result = jax.vmap(self.loop.result)(now.state)
        place = jnp.where(ended, now.index, self.size)
        store = lambda all_, own: all_.at[place].set(own, mode="drop")
        found = jax.tree.map(store, now.found, result)
        index = now.following + jnp.cumsum(ended, dtype=jnp.int32) - 1
        index = jnp.where(ended, jnp.minimum(index, self.size), now.index)
        starts = ended & (index < self.size)
        arrays = self._at(jnp.minimum(index, self.size - 1))
        state = _where(starts, self._first(arrays), now.state)
        following = now.following + jnp.sum(ended, dtype=jnp.int32)
        return _Lanes(index, arrays, state, following, found)

    def _first(self, arrays: Any) -> Any:
        first = lambda arrays: self.loop.first(self._data(arrays))
        return jax.vmap(first, (self.axes,))(arrays)

    def _data(self, arrays: Any) -> Any:
        return eqx.combine(arrays, self.static)

    def _at(self, index) -> Any:
        """Return the data of some problems."""
        pick = lambda axis, x: x if axis is None else x[index]
        none = lambda x: x is None
        return jax.tree.map(pick, self.axes, self.arrays, is_leaf=none)


def _where(condition, one: Any, other: Any) -> Any:
    """Choose by lane."""

    def choose(x, y):
        wide = condition.reshape(-1, *(1 for _ in x.shape[1:]))
        return jnp.where(wide, x, y)

    return jax.tree.map(choose, one, other)
