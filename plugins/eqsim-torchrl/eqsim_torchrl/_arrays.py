"""Conversion of arrays between JAX and PyTorch, and states as two arrays."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import torch
from jax import dlpack, lax
from jaxtyping import Array, Float, Int32

from eqsim.bridges import is_key


_TYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.bool_): torch.bool,
}
_BACK = {theirs: ours for ours, theirs in _TYPES.items()}


def torch_type(dtype: Any) -> torch.dtype:
    """Return the corresponding PyTorch type.

    **Raises:** `TypeError` if there is none.
    """
    found = _TYPES.get(np.dtype(dtype))
    if found is None:
        raise TypeError(f"Arrays must have a type that PyTorch has, got {dtype}.")
    return found


def jax_type(dtype: torch.dtype) -> np.dtype:
    """Return the corresponding JAX type; integers of 64 bits become 32 bits unless JAX
    has 64-bit types enabled.

    **Raises:** `TypeError` if there is none.
    """
    found = _BACK.get(dtype)
    if found is None:
        raise TypeError(f"Tensors must have a type that JAX has, got {dtype}.")
    if found.itemsize == 8 and not jax.config.jax_enable_x64:
        if found.kind == "f":
            raise TypeError(
                "Tensors must have type torch.float32, because JAX computes in single "
                "precision, got torch.float64. Pass `tensor.float()`, or set "
                "`jax.config.update('jax_enable_x64', True)` at the start of the "
                "program."
            )
        return np.dtype(np.int32)
    return found


def to_jax(tensor: torch.Tensor) -> Any:
    """Convert a tensor to an input of a compiled function, on the same device.

    **Raises:** `TypeError` if JAX has no such type; `ValueError` for an integer of more
    than 32 bits without 64-bit types.
    """
    dtype, tensor = jax_type(tensor.dtype), tensor.detach()
    if tensor.dtype == torch.int64 and dtype == np.int32 and tensor.numel():
        for x in map(int, torch.aminmax(tensor)):
            if not -(2**31) <= x < 2**31:
                raise ValueError(
                    "Tensors of integers must fit in 32 bits, because JAX computes in "
                    f"single precision, got {x}. Pass smaller numbers, or set "
                    "`jax.config.update('jax_enable_x64', True)` at the start of the "
                    "program."
                )
    if tensor.device.type != "cpu":
        wanted = _TYPES[dtype]
        return dlpack.from_dlpack(tensor.to(wanted).contiguous())
    # Ten times faster than with dlpack; JAX copies if necessary.
    return tensor.numpy().astype(dtype, copy=False)


def to_torch(array: jax.Array) -> torch.Tensor:
    """Wait for an array, and return a tensor that shares its memory."""
    return torch.from_dlpack(array)


def jax_device(device: torch.device) -> Any:
    """Return the JAX device for a PyTorch device.

    **Raises:** `ValueError` if JAX does not support it.
    """
    kind = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
    try:
        found = jax.devices(kind) if kind else []
    except RuntimeError:
        found = []
    number = device.index or 0
    if number >= len(found):
        seen = ", ".join(str(x) for x in jax.devices())
        raise ValueError(
            f"`device` must be one that JAX sees ({seen}), got {str(device)!r}. For "
            "GPUs install `jax[cuda12]`, and set XLA_PYTHON_CLIENT_PREALLOCATE=false "
            "to leave memory for PyTorch."
        )
    return found[number]


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
