"""Where environments are, and where they were."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from tensordict import TensorDict

from ._arrays import torch_type
from ._program import Program


class EnvState(NamedTuple):
    """Where environments are, one per element of the batch: tensors, which can be
    copied, stored, and differentiated by.

    - `numbers`: all floating point numbers; `EqsimWrapper.slices` tells which is which.
    - `words`: all that is not: counters, keys.
    - `obs`: what was observed last.
    """

    numbers: torch.Tensor
    words: torch.Tensor
    obs: torch.Tensor


def check_state(
    state: EnvState, program: Program, batch: torch.Size, device: torch.device | None
) -> EnvState:
    """A state on that device, in the types of the environment.

    **Raises:** `ValueError` if a shape is wrong.
    """
    packing, timestep = program.packing, program.timestep
    shapes = (packing.numbers,), (packing.words,), timestep.obs.shape
    for name, x, shape in zip(EnvState._fields, state, shapes):
        expected = (*batch, *shape)
        if tuple(x.shape) != expected:
            raise ValueError(
                f"`{name}` of the state has shape {tuple(x.shape)}, but {expected} is "
                "expected: batch size, and one environment's."
            )
    return EnvState(
        state.numbers.to(device, torch_type(packing.dtype)),
        state.words.to(device, torch.int32),
        state.obs.to(device),
    )


def trajectory(
    state: EnvState, actions: torch.Tensor, out: Sequence[torch.Tensor], axis: int
) -> tuple[TensorDict, EnvState]:
    """What `EqsimWrapper.unroll` returns.

    **Arguments:**

    - `state`: before the first step.
    - `out`: numbers and words after the last; observations, rewards and flags of all.
    - `axis`: of steps.
    """
    numbers, words, obs, reward, terminated, truncated = out
    before = state.obs.unsqueeze(axis), obs.narrow(axis, 0, obs.shape[axis] - 1)
    after = {
        "observation": obs,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "done": terminated | truncated,
    }
    shape, device = actions.shape[: axis + 1], obs.device
    result = TensorDict(
        {
            "action": actions,
            "observation": torch.cat(before, axis),
            "next": TensorDict(after, shape, device=device),
        },
        shape,
        device=device,
    )
    return result, EnvState(numbers, words, obs.select(axis, -1))
