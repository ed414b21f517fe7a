"""Arrays of the model: their converter, and static gathers and sums over leading axes."""

import functools as ft
from typing import Any

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.core import Tracer


def as_array(value: Any) -> Any:
    """Convert numbers, lists and NumPy arrays to arrays of the default precision.

    Everything else is returned unchanged: traced values, and placeholders of tree
    transformations.
    """
    if isinstance(value, list | tuple | float | int | np.ndarray | np.generic):
        dtype = jnp.result_type(float)
        if not isinstance(value, list | tuple):
            # JAX would compile a conversion for each shape.
            value = np.array(value, dtype)
        return jnp.asarray(value, dtype=dtype)
    return value


def cast_array(value: Any, dtype: Any) -> Any:
    """Return an array in another precision. Concrete ones compile nothing."""
    if isinstance(value, Tracer):
        return value.astype(dtype)
    return jnp.asarray(np.array(value, dtype), dtype=dtype)


def stacked(*values: Any) -> Any:
    """Stack arrays along a new first axis. Concrete ones compile nothing."""
    if any(isinstance(value, Tracer) for value in values):
        return jnp.stack(values)
    return jnp.asarray(np.stack([*map(np.asarray, values)]), dtype=values[0].dtype)


def take(tree, index):
    """Return `x[index]` for every array `x`, with a static index."""
    index = np.array([*index], int)
    return jtu.tree_map(lambda x: _rows(x, index), tree)


def take_or_zero(tree, index):
    """Return `x[index]` for every array `x`; zeros where the index is -1."""
    index = np.array([*index], int)
    return jtu.tree_map(lambda x: _rows_or_zero(x, index), tree)


def put(tree, index, size: int):
    """Return arrays of leading size `size` with the entries of `tree` at the distinct
    positions `index`, and zeros elsewhere."""
    return take_or_zero(tree, _rows_per_target(tuple(index), size)[:, 0])


def accumulate(tree, index, size: int):
    """Return arrays of leading size `size`: the sums of the rows of `tree` that have the
    same entry in `index`. Rows with the entry -1 are dropped."""
    rows = _rows_per_target(tuple(index), size)
    if rows.shape[1] == 1:
        return take_or_zero(tree, rows[:, 0])

    def one(x):
        summands = _rows_or_zero(x, rows.ravel())
        return jnp.sum(summands.reshape(*rows.shape, *x.shape[1:]), axis=1)

    return jtu.tree_map(one, tree)


@ft.lru_cache(maxsize=4096)
def _rows_per_target(index: tuple[int, ...], size: int) -> np.ndarray:
    """List, for each target, the rows of its sum; padded with -1."""
    rows: list[list[int]] = [[] for _ in range(size)]
    for k, target in enumerate(index):
        if target >= 0:
            rows[target].append(k)
    most = max([1, *map(len, rows)])
    padded = [own + [-1] * (most - len(own)) for own in rows]
    return np.array(padded, int).reshape(size, most)


def _rows(x, index: np.ndarray):
    if len(index) == x.shape[0] and np.all(index == np.arange(len(index))):
        return x
    # One operation; `x[index]` adds four that wrap negative indices.
    axes = lax.GatherDimensionNumbers(tuple(range(1, x.ndim)), (0,), (0,))
    sizes = (1, *x.shape[1:])
    return lax.gather(x, index[:, None], axes, sizes, mode="promise_in_bounds")


def _rows_or_zero(x, index: np.ndarray):
    if np.all(index >= 0):
        return _rows(x, index)
    padded = jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
    return _rows(padded, np.where(index < 0, x.shape[0], index))


def replace(x, index, values):
    """Return the array `x` with the rows `index`, which are distinct, replaced."""
    rows = np.arange(x.shape[0])
    rows[np.array([*index], int)] = x.shape[0] + np.arange(len(index))
    return take(concatenate([x, values]), rows)


def concatenate(trees):
    """Join trees along axis 0; batch axes of size one are broadcast."""
    trees = [t for t in trees if jtu.tree_leaves(t)[0].shape[0]] or trees[:1]
    if len(trees) == 1:
        return trees[0]

    def join(*xs):
        batch = jnp.broadcast_shapes(*(x.shape[1:] for x in xs))
        return jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], *batch)) for x in xs])

    return jtu.tree_map(join, *trees)


def per_row(values, like) -> np.ndarray:
    """Return constants, one per row, as a column that broadcasts against `like`."""
    return np.array([*values], like.dtype).reshape(-1, *(1 for _ in like.shape[1:]))
