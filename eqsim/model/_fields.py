"""Converter of array fields."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def as_array(value: Any) -> Any:
    """Convert numbers, lists and NumPy arrays to arrays of the default precision.

    Everything else is returned unchanged: traced values, and placeholders of tree
    transformations.
    """
    if isinstance(value, list | tuple | float | int | np.ndarray | np.generic):
        dtype = jnp.result_type(float)
        if not isinstance(value, list | tuple):
            # JAX would compile a conversion for each shape.
            value = np.array(value, dtype)
        return jnp.asarray(value, dtype=dtype)
    return value
