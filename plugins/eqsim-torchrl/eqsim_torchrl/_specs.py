"""TorchRL specs of shapes, types and bounds."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import torch
from torchrl.data import (
    Bounded,
    Categorical,
    Composite,
    OneHot,
    TensorSpec,
    Unbounded,
)

from eqsim import AbstractEnv

from ._arrays import torch_type
from ._packing import Packing
from ._program import Program


def action_spec(
    env: AbstractEnv,
    table: np.ndarray | None,
    categorical: bool,
    batch: torch.Size,
    device: torch.device | None,
) -> TensorSpec:
    """Return the spec of actions: an integer, a one-hot vector, or a bounded vector.

    **Raises:** `ValueError` if only some entries have bounds.
    """
    if table is not None and categorical:
        return Categorical(len(table), shape=batch, device=device)
    if table is not None:
        return OneHot(len(table), shape=(*batch, len(table)), device=device)
    low, high = np.moveaxis(np.asarray(env.action_range), -1, 0)
    shape, dtype = (*batch, *low.shape), torch_type(low.dtype)
    if np.all(np.isfinite([low, high])):
        wide = lambda x: torch.tensor(x, device=device).expand(shape).clone()
        return Bounded(wide(low), wide(high), shape, device, dtype)
    if np.any(np.isfinite([low, high])):
        raise ValueError(
            f"Bounds of actions must be finite for all entries or for none, got {low} "
            f"and {high}. Set `ctrlrange` of all actuators in the model file, or of "
            "none: `eqsim.wrappers.ClipAction` accepts any number and clips it."
        )
    return Unbounded(shape, device, dtype)


def unbounded(leaf: Any, batch: torch.Size, device: torch.device | None) -> TensorSpec:
    """Return the unbounded spec of an array of one environment, from its shape and
    type."""
    shape, dtype = (*batch, *leaf.shape), torch_type(leaf.dtype)
    if dtype == torch.uint8:
        return Bounded(0, 255, shape, device, dtype)
    return Unbounded(shape, device, dtype)


def flags_spec(batch: torch.Size, device: torch.device | None) -> Composite:
    """Return the specs of `done`, `terminated` and `truncated`."""
    one = lambda: Categorical(2, shape=(*batch, 1), device=device, dtype=torch.bool)
    names = "done", "terminated", "truncated"
    return Composite({name: one() for name in names}, shape=batch, device=device)


def state_spec(
    packing: Packing, obs: Any, batch: torch.Size, device: torch.device | None
) -> Composite:
    """Return the spec of a state: numbers, words, and the last observation."""
    number = torch_type(packing.dtype)
    return Composite(
        {
            "numbers": Unbounded((*batch, packing.numbers), device, number),
            "words": Unbounded((*batch, packing.words), device, torch.int32),
            "obs": unbounded(obs, batch, device),
        },
        shape=batch,
        device=device,
    )


def rows(batch: torch.Size) -> int:
    """Return the number of environments."""
    return math.prod(batch)


def observation_spec(
    program: Program,
    seen: Sequence[str],
    pixels: jax.ShapeDtypeStruct,
    in_tensordict: bool,
    batch: torch.Size,
    device: torch.device | None,
) -> Composite:
    """Return the spec of observations, and of the state if that is in the tensordict.

    **Arguments:**

    - `seen`: names among `observation` and `pixels`.
    - `pixels`: shape of an image.
    """
    obs = Composite(shape=batch, device=device)
    shapes = {"observation": program.timestep.obs, "pixels": pixels}
    for name in seen:
        obs[name] = unbounded(shapes[name], batch, device)
    if in_tensordict:
        shape = program.timestep.obs
        obs["state"] = state_spec(program.packing, shape, batch, device)
    return obs
