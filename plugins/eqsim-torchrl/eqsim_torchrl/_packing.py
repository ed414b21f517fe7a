"""The state of an environment as two vectors: floating-point numbers, and 32-bit
words."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float, Int32

from eqsim.bridges import is_key


class Packing:
    """Conversion of a pytree to vectors and back.

    **Arguments:**

    - `example`: pytree of arrays, or of their shapes, and of constants.
    - `dtype`: data type of its floating-point arrays.

    **Raises:** `TypeError` if it has arrays of another type.
    """

    def __init__(self, example: Any, dtype: Any):
        is_array = lambda x: eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)
        arrays, self._static = eqx.partition(example, is_array)
        leaves, self._treedef = jtu.tree_flatten_with_path(arrays)
        self._leaves = [jax.ShapeDtypeStruct(x.shape, x.dtype) for _, x in leaves]
        self._names = [jtu.keystr(path).lstrip(".") for path, _ in leaves]
        for name, leaf in zip(self._names, self._leaves):
            if _is_real(leaf) and leaf.dtype != dtype:
                raise TypeError(
                    f"`{name}` of the state must have type {dtype}, that of the robot, "
                    f"got {leaf.dtype}."
                )
        self.dtype = jnp.dtype(dtype)
        self.numbers = sum(_size(x) for x in self._leaves if _is_real(x))
        self.words = sum(_size(x) for x in self._leaves if not _is_real(x))

    def slices(self) -> dict[str, tuple[slice, tuple[int, ...]]]:
        """Return the position of each floating-point array in the numbers, and its
        shape, by path."""
        found, begin = {}, 0
        for name, leaf in zip(self._names, self._leaves):
            if _is_real(leaf):
                end = begin + _size(leaf)
                found[name] = slice(begin, end), tuple(leaf.shape)
                begin = end
        return found

    def pack(
        self, tree: Any
    ) -> tuple[Float[Array, " numbers"], Int32[Array, " words"]]:
        """Pack the pytree of one environment."""
        leaves = jtu.tree_leaves(eqx.filter(tree, eqx.is_array))
        pairs = list(zip(leaves, self._leaves, strict=True))
        real = [x.reshape(-1) for x, leaf in pairs if _is_real(leaf)]
        rest = [_to_words(x) for x, leaf in pairs if not _is_real(leaf)]
        none = jnp.zeros(0, self.dtype), jnp.zeros(0, jnp.int32)
        return jnp.concatenate([none[0], *real]), jnp.concatenate([none[1], *rest])

    def unpack(self, numbers: Float[Array, " numbers"], words: Int32[Array, " words"]):
        """Unpack what `pack` returned."""
        at, leaves = {True: 0, False: 0}, []
        for leaf in self._leaves:
            real, size = _is_real(leaf), _size(leaf)
            row = numbers if real else words
            part = lax.slice(row, (at[real],), (at[real] + size,))
            at[real] += size
            leaves.append(part.reshape(leaf.shape) if real else _from_words(part, leaf))
        return eqx.combine(jtu.tree_unflatten(self._treedef, leaves), self._static)


def _is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _raw(leaf: Any) -> tuple[tuple[int, ...], Any]:
    """Return shape and type of the data of a key; of any other array its own."""
    if is_key(leaf):
        data = jax.eval_shape(jr.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
        return data.shape, data.dtype
    return leaf.shape, leaf.dtype


def _size(leaf: Any) -> int:
    shape, dtype = _raw(leaf)
    wide = 1 if _is_real(leaf) else max(1, jnp.dtype(dtype).itemsize // 4)
    return math.prod(shape) * wide


def _to_words(x: Array) -> Int32[Array, " words"]:
    if is_key(x):
        x = jr.key_data(x)
    if x.dtype.itemsize < 4:
        return x.astype(jnp.int32).reshape(-1)
    return lax.bitcast_convert_type(x, jnp.int32).reshape(-1)


def _from_words(words: Int32[Array, " words"], leaf: Any) -> Array:
    shape, dtype = _raw(leaf)
    wide = jnp.dtype(dtype).itemsize // 4
    if not wide:
        x = words.reshape(shape).astype(dtype)
    else:
        whole = shape if wide == 1 else (*shape, wide)
        x = lax.bitcast_convert_type(words.reshape(whole), dtype)
    if is_key(leaf):
        return jr.wrap_key_data(x, impl=jr.key_impl(leaf))
    return x
