"""Conversion of arrays between PyTorch and JAX, without copies where possible."""

from typing import Any

import jax
import numpy as np
import torch
from jax import dlpack


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
