"""Fields of modules that hold arrays."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


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


def check_numbers(name: str, value: Any, accepted: Callable, expected: str) -> None:
    """Raise `ValueError` unless all values are finite and accepted. Skipped for traced
    values.

    **Arguments:**

    - `name`: name of the value in the message.
    - `value`: number or array; anything else passes.
    - `accepted`: function of an array that returns booleans.
    - `expected`: description of accepted values.
    """
    if isinstance(value, Tracer) or not eqx.is_array_like(value):
        return
    value = np.asarray(value)
    if not np.all(np.isfinite(value) & accepted(value)):
        raise ValueError(f"`{name}` must be {expected}, got {value.tolist()}.")


def check_positive(name: str, value: Any) -> None:
    """Raise `ValueError` unless all values are positive and finite, see `check_numbers`."""
    check_numbers(name, value, lambda x: x > 0.0, "positive")
