"""Field helpers: a field is an array with a converter, or static."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np


def _as_array(value: Any) -> Any:
    # Tracers, numpy and lists become inexact arrays; placeholders of tree
    # transformations (None, object()) pass, so that a System survives any tree_map.
    if isinstance(value, (list, tuple, float, int, np.ndarray)):
        return jnp.asarray(value, dtype=jnp.result_type(float))
    return value


def array() -> Any:
    """A differentiable number or array of numbers."""
    return eqx.field(converter=_as_array)


def static() -> Any:
    """A fact about the structure: hashable, compared by value."""
    return eqx.field(static=True)
