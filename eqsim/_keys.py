"""Typed random keys."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ._errors import described


def is_key(x: Any) -> bool:
    """Test if `x` is an array of typed random keys (`jax.random.key`), or the shape and
    type of one."""
    known = isinstance(x, jax.Array | jax.ShapeDtypeStruct)
    return known and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def check_key(key: Any) -> None:
    """Raise an error unless `key` is one random key, of `jax.random.key` or of the older
    `jax.random.PRNGKey`. Traced keys are checked as well.

    **Raises:** `TypeError` if it is not a key; `ValueError` if there are several keys.
    """
    shape = key.shape if isinstance(key, jax.Array | np.ndarray) else None
    # The older keys are rows of 2 or 4 numbers, depending on the generator.
    older = shape is not None and key.dtype == np.uint32 and shape[-1:] in ((2,), (4,))
    if shape is None or not (older or is_key(key)):
        seed = key if type(key) is int else 0
        raise TypeError(
            f"`key` must be a random key, got {described(key)}. Write "
            f"`jax.random.key({seed})`."
        )
    batch = shape[:-1] if older else shape
    if batch:
        raise ValueError(
            f"`key` must be one key, got keys of shape {batch}. For a batch, wrap the call "
            "in `eqx.filter_vmap`."
        )


def typed_key(key: Array) -> PRNGKeyArray:
    """Convert a legacy key (`jax.random.PRNGKey`) to a typed key; typed keys are
    returned."""
    return key if is_key(key) else jr.wrap_key_data(key)
