"""Fields of modules that hold arrays."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np


def as_array(value: Any) -> Any:
    """Convert numbers to arrays of the default precision; everything else is returned
    unchanged."""
    if isinstance(value, int | float | list | tuple | np.ndarray | np.generic):
        return jnp.asarray(value, jnp.result_type(float))
    return value


def as_arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the numbers of a dictionary, see `as_array`."""
    return {name: as_array(value) for name, value in values.items()}


def array(default: Any) -> Any:
    """Return a field for an array with a default value."""
    return eqx.field(converter=as_array, default=default)
