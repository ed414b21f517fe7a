"""Arrays in host memory."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Int, Shaped


class _Same:
    """An array compared by identity, so that it can be a static field."""

    def __init__(self, array: np.ndarray):
        self.array = array


class HostArray(eqx.Module):
    """An array in host memory whose rows are fetched to the device on access."""

    _held: _Same = eqx.field(static=True)

    @staticmethod
    def of(array: Any) -> "HostArray":
        """Copy an array to the host; a NumPy array is not copied."""
        return HostArray(_Same(np.asarray(array)))

    @property
    def array(self) -> np.ndarray:
        """The array, in NumPy."""
        return self._held.array

    def take(self, index: Int[Array, "*n"]) -> Shaped[Array, "..."]:
        """Return rows by index, on the device. Compiled programs fetch them by a callback."""
        array = self.array
        shape = jax.ShapeDtypeStruct((*index.shape, *array.shape[1:]), array.dtype)
        fetch = lambda i: np.take(array, np.asarray(i), axis=0, mode="clip")
        return jax.pure_callback(fetch, shape, index, vmap_method="expand_dims")


def is_host(x: Any) -> bool:
    """Return whether `x` is a `HostArray`."""
    return isinstance(x, HostArray)


def take(tree: Any, index: Int[Array, "*n"]) -> Any:
    """Return rows of each array by index."""

    def rows(x):
        if is_host(x):
            return x.take(index)
        return jnp.take(x, index, axis=0, mode="clip")

    return jtu.tree_map(rows, tree, is_leaf=is_host)


def to_device(tree: Any) -> Any:
    """Move all arrays to the device."""
    whole = lambda x: jnp.asarray(x.array if is_host(x) else x)
    return jtu.tree_map(whole, tree, is_leaf=is_host)
