"""Comparing states of agents."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np


def raw(x):
    """Numbers of an array or a key."""
    x = jax.numpy.asarray(x)
    return np.asarray(
        jr.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    )


def bits(tree):
    """Type, shape and bytes of each leaf: equal if and only if every bit is."""
    leaves = map(raw, jax.tree.leaves(eqx.filter(tree, eqx.is_array)))
    return [(str(x.dtype), x.shape, x.tobytes()) for x in leaves]


def without_times(rows):
    """Rows of metrics, as text, but for what a clock says."""
    keep = lambda row: {k: x for k, x in row.items() if k not in ("seconds", "rate")}
    return [repr(keep(row)) for row in rows]
