"""The converter of array fields: a field is an array, or static."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def as_array(value: Any) -> Any:
    """Numbers, lists and NumPy arrays become arrays of the default precision.

    Everything else passes: tracers, and the placeholders of tree transformations.
    """
    if isinstance(value, list | tuple | float | int | np.ndarray | np.generic):
        dtype = jnp.result_type(float)
        if not isinstance(value, list | tuple):
            # JAX would compile a conversion for each shape.
            value = np.array(value, dtype)
        return jnp.asarray(value, dtype=dtype)
    return value
