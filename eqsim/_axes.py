"""Batch axes of environments: selection of the arrays that differ within a batch."""

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu


_SHARED = object()


def check_axes(env, env_axes, batch: tuple[int, ...]) -> None:
    """Raise `ValueError` unless the axes of environments have the sizes of `batch`."""
    axes = jtu.tree_leaves(_axes(env, env_axes))
    leaves = jtu.tree_leaves_with_path(eqx.filter(env, eqx.is_array))
    for (path, leaf), axis in zip(leaves, axes, strict=True):
        if axis is _SHARED:
            continue
        if tuple(leaf.shape[k] for k in _places(leaf, axis, len(batch))) != batch:
            raise ValueError(
                f"`env{jtu.keystr(path)}` has shape {leaf.shape}: its batch axes, which "
                f"`env_axes` places at axis {axis}, must have the shape of `key`, {batch}."
            )


def _places(leaf, axis: int, rank: int) -> range:
    """Return the axes of environments: they start at `axis`, or end there if it is
    negative."""
    first = axis if axis >= 0 else leaf.ndim + axis - rank + 1
    return range(max(0, first), min(first + rank, leaf.ndim))


def split(env, env_axes, rank: int):
    """Split `env` into arrays that differ between environments, with the axes of
    environments first, and all others."""
    arrays, static = eqx.partition(env, eqx.is_array)
    axes = _axes(env, env_axes)

    def front(x, axis):
        return jnp.moveaxis(x, tuple(_places(x, axis, rank)), tuple(range(rank)))

    own = jtu.tree_map(
        lambda x, axis: None if axis is _SHARED else front(x, axis), arrays, axes
    )
    shared = jtu.tree_map(lambda x, axis: x if axis is _SHARED else None, arrays, axes)
    return own, eqx.combine(shared, static)


def _axes(env, env_axes):
    """Return the axis of environments of each array of `env`, or `_SHARED`."""
    arrays = eqx.filter(env, eqx.is_array)
    if callable(env_axes):
        axis = lambda x: _SHARED if env_axes(x) is None else env_axes(x)
        return jtu.tree_map(axis, arrays)
    if env_axes is None or isinstance(env_axes, int):
        return jtu.tree_map(lambda _: _SHARED if env_axes is None else env_axes, arrays)
    is_none = lambda x: x is None
    return jtu.tree_map(
        lambda axis, part: _axes(part, axis), env_axes, env, is_leaf=is_none
    )
