"""Converter of numeric fields."""

from typing import Any

import jax.numpy as jnp


def number(value: Any) -> Any:
    """Convert a Python number to an array of the default precision.

    The array is not weakly typed, unlike that of `jnp.asarray(value)`, because
    replacing a weakly typed array recompiles. Everything else is returned unchanged:
    arrays, traced values, and the placeholders of tree transformations.
    """
    return jnp.asarray(value, float) if isinstance(value, int | float) else value
