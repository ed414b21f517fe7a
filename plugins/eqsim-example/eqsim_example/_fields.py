"""The converter of fields that hold a number."""

from typing import Any

import jax.numpy as jnp


def number(value: Any) -> Any:
    """A number of Python becomes an array of the default precision.

    Not a weakly typed one, as `jnp.asarray(value)` makes it: that compiles everything once
    more when it is replaced. All else passes: arrays, tracers, and the placeholders of
    tree transformations.
    """
    return jnp.asarray(value, float) if isinstance(value, int | float) else value
