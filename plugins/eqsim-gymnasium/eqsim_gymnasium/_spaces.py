"""Conversion of shapes, types and bounds between eqsim and Gymnasium."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
import numpy as np
from gymnasium import spaces

from eqsim import AbstractEnv


class ArraySpec(NamedTuple):
    """Shape, type and bounds of the arrays of a space.

    **Arguments:**

    - `shape`, `dtype`: shape and data type of its elements.
    - `low`, `high`: inclusive bounds, of that shape; infinite if there are none.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    low: np.ndarray
    high: np.ndarray


def from_space(space: spaces.Space) -> Any:
    """Return shape, type and bounds of a Gymnasium space.

    **Arguments:**

    - `space`: a `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary`, or a `Dict` or
        `Tuple` of these.

    **Returns:** an `ArraySpec`; for a dictionary or tuple, one of them per entry.

    **Raises:** `TypeError` for other spaces, whose elements are not arrays of one
    shape.
    """
    if isinstance(space, spaces.Dict):
        return {name: from_space(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(from_space(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low = np.asarray(space.start, space.dtype)
        high = np.asarray(low + count - 1, space.dtype)
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
    else:
        raise TypeError(
            "`space` must be a Box, Discrete, MultiDiscrete or MultiBinary space, or "
            f"a Dict or Tuple of these, got {space}."
        )
    return ArraySpec(low.shape, low.dtype, np.array(low), np.array(high))


def action_space(env: AbstractEnv) -> spaces.Box:
    """Return the action space of an environment of eqsim."""
    low, high = np.moveaxis(np.asarray(env.action_range), -1, 0)
    return spaces.Box(low.copy(), high.copy(), dtype=low.dtype)


def observation_space(env: AbstractEnv) -> spaces.Box:
    """Return the observation space of an environment of eqsim, by tracing it.

    **Raises:** `TypeError` if observations are neither floating point nor integer.
    """
    _, timestep = eqx.filter_eval_shape(env.reset, jr.key(0))
    shape, dtype = timestep.obs.shape, timestep.obs.dtype
    if np.issubdtype(dtype, np.floating):
        return spaces.Box(-np.inf, np.inf, shape, dtype)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return spaces.Box(info.min, info.max, shape, dtype)
    raise TypeError(
        f"Observations must be floating-point numbers or integers, got {dtype}."
    )
