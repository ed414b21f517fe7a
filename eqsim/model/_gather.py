"""Static gathers and sums over the leading axis of every array of a tree."""

import functools as ft

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax


def take(tree, index):
    """Return `x[index]` for every array `x`, with a static index."""
    index = np.array([*index], int)

    def one(x):
        whole = len(index) == x.shape[0] and np.all(index == np.arange(len(index)))
        return x if whole else _rows(x, index)

    return jtu.tree_map(one, tree)


def _rows(x, index: np.ndarray):
    """Return `x[index]` as one operation: `jnp` adds four that wrap negative indices."""
    axes = lax.GatherDimensionNumbers(tuple(range(1, x.ndim)), (0,), (0,))
    sizes = (1, *x.shape[1:])
    return lax.gather(x, index[:, None], axes, sizes, mode="promise_in_bounds")


def put(tree, index, size: int):
    """Return arrays of leading size `size` with `tree` at the distinct places `index`
    and zero elsewhere."""
    rows = _rows_per_target(tuple(index), size)[:, 0]
    return jtu.tree_map(lambda x: _rows(_with_zero_row(x), rows), tree)


def accumulate(tree, index, size: int):
    """Return arrays of leading size `size`: the sums of the rows of `tree` that have the
    same entry in `index`. Rows with the entry -1 are dropped."""
    rows = _rows_per_target(tuple(index), size)

    def one(x):
        summands = _rows(_with_zero_row(x), rows.ravel())
        return jnp.sum(summands.reshape(*rows.shape, *x.shape[1:]), axis=1)

    return jtu.tree_map(one, tree)


def _with_zero_row(x):
    return jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])


@ft.lru_cache(maxsize=4096)
def _rows_per_target(index: tuple[int, ...], size: int) -> np.ndarray:
    """List, for each target, the rows of a sum; padded with the number of rows."""
    rows = [[k for k, i in enumerate(index) if i == target] for target in range(size)]
    most = max([1, *map(len, rows)])
    pad = len(index)
    return np.array([own + [pad] * (most - len(own)) for own in rows], int).reshape(
        size, most
    )


def concatenate(trees):
    """Join trees along axis 0; batch axes of size one are broadcast."""
    trees = [t for t in trees if jtu.tree_leaves(t)[0].shape[0]] or trees[:1]
    if len(trees) == 1:
        return trees[0]

    def join(*xs):
        batch = jnp.broadcast_shapes(*(x.shape[1:] for x in xs))
        return jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], *batch)) for x in xs])

    return jtu.tree_map(join, *trees)
