"""Construction of environments from options of TorchRL."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

import eqsim
from eqsim import AbstractEnv, TimeLimit
from eqsim.bridges import check_count, check_no_auto_reset, randomized, Randomizer
from eqsim.wrappers import ActionRepeat

from ._arrays import to_torch
from ._shared import Where


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
