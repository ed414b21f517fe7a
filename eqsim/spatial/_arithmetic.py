"""Sums and products of arrays and numbers.

For arrays of the same shape and type, `jax.lax` computes the same as `jax.numpy` and is
traced several times faster. Vectors and matrices by component consist of such
operations.
"""

import jax
from jax import lax


def _alike(x, y) -> bool:
    if not (isinstance(x, jax.Array) and isinstance(y, jax.Array)):
        return False
    return x.shape == y.shape and x.dtype == y.dtype


def add(x, y):
    """Return `x + y`."""
    return lax.add(x, y) if _alike(x, y) else x + y


def sub(x, y):
    """Return `x - y`."""
    return lax.sub(x, y) if _alike(x, y) else x - y


def mul(x, y):
    """Return `x * y`."""
    return lax.mul(x, y) if _alike(x, y) else x * y


def neg(x):
    """Return `-x`."""
    return lax.neg(x) if isinstance(x, jax.Array) else -x
