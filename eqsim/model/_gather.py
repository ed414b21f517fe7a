"""Static gathers and sums over the leading axis, in the form that XLA runs fastest."""

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np


def take(tree, index):
    """`x[index]` for every array of a tree, with a static index into axis 0."""
    index = np.asarray(index, int)
    return jtu.tree_map(lambda x: _take(x, index), tree)


def _take(x, index):
    n = len(index)
    if n == 0:
        return x[:0]
    if x.shape[0] == 1 and not index.any():
        return jnp.broadcast_to(x, (n, *x.shape[1:])) if n > 1 else x
    steps = np.diff(index)
    if n == 1 or (steps == 1).all():
        start = int(index[0])
        return x if start == 0 and n == x.shape[0] else x[start : start + n]
    if n > 1 and (steps == steps[0]).all() and steps[0] > 1:
        return x[int(index[0]) : int(index[-1]) + 1 : int(steps[0])]
    runs = np.split(index, np.flatnonzero(steps != 1) + 1)
    if len(runs) <= 16:
        return jnp.concatenate([x[int(r[0]) : int(r[-1]) + 1] for r in runs])
    return x[index]


def put(tree, index, size: int):
    """Arrays of leading size `size` with `tree` at the distinct places `index`, else
    zero."""
    index = np.asarray(index, int)
    place = np.full(size, len(index))
    place[index] = np.arange(len(index))

    def one(x):
        if len(index) == size and (index == np.arange(size)).all():
            return x
        zero = jnp.zeros((1, *x.shape[1:]), x.dtype)
        return _take(jnp.concatenate([x, zero]), place)

    return jtu.tree_map(one, tree)


def accumulate(tree, index, size: int):
    """Sums the rows of `tree` that have the same entry in `index`; -1 is dropped."""
    index = np.asarray(index, int)
    rounds = []
    left = np.flatnonzero(index >= 0)
    while len(left):
        _, first = np.unique(index[left], return_index=True)
        rounds.append(left[np.sort(first)])
        left = np.delete(left, np.sort(first))
    if not rounds:
        return jtu.tree_map(lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype), tree)
    parts = [put(take(tree, rows), index[rows], size) for rows in rounds]
    return jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *parts)


def concatenate(trees):
    """Joins trees along axis 0; batch axes of size one are broadcast."""
    trees = [t for t in trees if jtu.tree_leaves(t)[0].shape[0]]
    if len(trees) == 1:
        return trees[0]

    def join(*xs):
        batch = np.broadcast_shapes(*(x.shape[1:] for x in xs))
        return jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], *batch)) for x in xs])

    return jtu.tree_map(join, *trees)


