"""Construction of environments from options of TorchRL, and their specs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch import nn
from torchrl.data import (
    Bounded,
    Categorical,
    Composite,
    OneHot,
    TensorSpec,
    Unbounded,
)

import eqsim
from eqsim import AbstractEnv, TimeLimit
from eqsim.bridges import check_count, check_no_auto_reset, randomized, Randomizer
from eqsim.wrappers import ActionRepeat

from ._arrays import Packing, to_torch, torch_type
from ._program import Program, Where


class Names:
    """Names of all environments, including those of plugins, as a class attribute."""

    def __get__(self, instance: Any, owner: type) -> list[str]:
        return list(eqsim.ENVS.names())


def build(
    env: AbstractEnv,
    name: str,
    randomize: Randomizer | str | None,
    frame_skip: int,
    episode_length: int | None,
) -> AbstractEnv:
    """Wrap an environment as requested by options.

    **Arguments:**

    - `name`: name of the environment whose presets `randomize` refers to.
    """
    check_no_auto_reset(env, "TorchRL", ", and use TorchRL's transforms instead")
    env = randomized(env, randomize, name)
    check_count("frame_skip", frame_skip)
    if frame_skip != 1:
        env = ActionRepeat(env, frame_skip)
    return env if episode_length is None else TimeLimit(env, episode_length)


def action_table(
    env: AbstractEnv, actions: int | Sequence[Sequence[float]] | None
) -> np.ndarray | None:
    """Return the action for each integer, as rows.

    **Arguments:**

    - `actions`: the rows; or the number of values from the lower to the upper bound of
        every actuator, in all combinations.
    """
    if actions is None:
        return None
    low, high = np.moveaxis(np.asarray(env.action_range), -1, 0)
    if isinstance(actions, int):
        if actions < 2 or not np.all(np.isfinite([low, high])):
            raise ValueError(
                "`discrete_actions` must be at least 2, with finite bounds of "
                f"actions, or a table of actions, got {actions} for actions from {low} "
                f"to {high}."
            )
        if actions ** len(low) > 10_000:
            raise ValueError(
                "`discrete_actions` must give at most 10,000 combinations, got "
                f"{actions}, which gives {actions ** len(low):,} for {len(low)} "
                "actuators. Pass a table of actions instead."
            )
        values = np.linspace(low, high, actions)
        grid = np.meshgrid(*values.T, indexing="ij")
        return np.stack([x.reshape(-1) for x in grid], -1).astype(low.dtype)
    table = np.asarray(actions, low.dtype)
    if table.ndim != 2 or table.shape[1] != len(low) or not np.all(np.isfinite(table)):
        raise ValueError(
            f"`discrete_actions` must have rows of {len(low)} finite numbers, one per "
            f"actuator, got shape {table.shape}."
        )
    return table


def parameters_of(
    env: AbstractEnv,
    wheres: Mapping[str, Where],
    device: torch.device | None,
    requires_grad: bool,
) -> nn.ParameterDict:
    """Return arrays of an environment as parameters of PyTorch.

    **Raises:** `TypeError` if one is not an array of floating-point numbers.
    """
    found = nn.ParameterDict()
    for name, where in wheres.items():
        value = where(env)
        if not isinstance(value, jax.Array) or not jax.numpy.issubdtype(
            value.dtype, jax.numpy.floating
        ):
            raise TypeError(
                f"`parameters[{name!r}]` must select an array of floating-point "
                f"numbers of the environment, got {value!r}."
            )
        tensor = to_torch(value).clone().to(device)
        found[name] = nn.Parameter(tensor, requires_grad)
    return found


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
