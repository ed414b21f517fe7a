"""Arrays that stay in the memory of the host."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Int, Shaped


class _Same:
    """An array that is equal to itself only, so that a program is compiled once for it."""

    def __init__(self, array: np.ndarray):
        self.array = array


class HostArray(eqx.Module):
    """Rows of numbers that are fetched from the host, where they are asked for."""

    _held: _Same = eqx.field(static=True)

    @staticmethod
    def of(array: Any) -> "HostArray":
        """A copy on the host; of an array of NumPy, that array."""
        return HostArray(_Same(np.asarray(array)))

    @property
    def array(self) -> np.ndarray:
        """The rows."""
        return self._held.array

    def take(self, index: Int[Array, "*n"]) -> Shaped[Array, "..."]:
        """Some rows, on the device; a compiled program calls the host for them."""
        array = self.array
        shape = jax.ShapeDtypeStruct((*index.shape, *array.shape[1:]), array.dtype)
        fetch = lambda i: np.take(array, np.asarray(i), axis=0, mode="clip")
        return jax.pure_callback(fetch, shape, index, vmap_method="expand_dims")


def is_host(x: Any) -> bool:
    """Whether `x` is a `HostArray`."""
    return isinstance(x, HostArray)


def take(tree: Any, index: Int[Array, "*n"]) -> Any:
    """Rows of each array."""

    def rows(x):
        if is_host(x):
            return x.take(index)
        return jnp.take(x, index, axis=0, mode="clip")

    return jtu.tree_map(rows, tree, is_leaf=is_host)


def to_device(tree: Any) -> Any:
    """All arrays on the device."""
    whole = lambda x: jnp.asarray(x.array if is_host(x) else x)
    return jtu.tree_map(whole, tree, is_leaf=is_host)
