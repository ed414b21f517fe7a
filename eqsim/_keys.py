"""Typed random keys."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, PRNGKeyArray


def is_key(x: Any) -> bool:
    """Test if `x` is an array of typed random keys (`jax.random.key`), or the shape and
    type of one."""
    known = isinstance(x, jax.Array | jax.ShapeDtypeStruct)
    return known and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def typed_key(key: Array) -> PRNGKeyArray:
    """Convert a legacy key (`jax.random.PRNGKey`) to a typed key; typed keys are
    returned."""
    return key if is_key(key) else jr.wrap_key_data(key)
