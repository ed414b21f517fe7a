"""The converter of array fields: a field is an array, or static."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def as_array(value: Any) -> Any:
    """Numbers, lists and NumPy arrays become arrays of the default precision.

    Everything else passes: tracers, and the placeholders of tree transformations.
    """
    if isinstance(value, list | tuple | float | int | np.ndarray | np.generic):
        return jnp.asarray(value, dtype=jnp.result_type(float))
    return value
