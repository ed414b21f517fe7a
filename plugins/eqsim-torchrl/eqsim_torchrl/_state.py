"""States of environments."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from tensordict import TensorDict, TensorDictBase

from ._program import Program


class EnvState(NamedTuple):
    """State of a batch of environments: tensors that can be copied, stored and
    differentiated.

    - `numbers`: all floating-point values; `EqsimWrapper.slices` gives their positions.
    - `words`: all other values: counters, keys.
    - `obs`: last observation.
    """

    numbers: torch.Tensor
    words: torch.Tensor
    obs: torch.Tensor


def check_state(
    state: EnvState, program: Program, batch: torch.Size, device: torch.device | None
) -> EnvState:
    """Check a state, and convert it to the device and the types of the environment.

    **Raises:** `ValueError` if a shape is wrong.
    """
    for name, x, shape in zip(EnvState._fields, state, program.shapes):
        expected = (*batch, *shape)
        if tuple(x.shape) != expected:
            raise ValueError(
                f"`{name}` of the state must have shape {expected} (batch size, shape "
                f"of one environment), got {tuple(x.shape)}."
            )
    return EnvState(
        state.numbers.to(device, program.number),
        state.words.to(device, torch.int32),
        state.obs.to(device),
    )


def check_first_observation(state: EnvState) -> None:
    """Raise `ValueError` if a policy would act on an observation that does not depend
    on a state for which derivatives are needed."""
    if state.numbers.requires_grad and not state.obs.requires_grad:
        raise ValueError(
            "The state depends on its `numbers`, which require a gradient, but its "
            "`obs`, from which the policy chooses the first action, does not. Take a "
            "step first and use the state that `transition` returns, or detach the "
            "numbers, or let `obs` require a gradient too."
        )


def check_actions(actions: torch.Tensor, number: int | None = None) -> None:
    """Raise `ValueError` for an action that is not finite, or for an integer without a
    row. Only on the CPU, because a GPU would have to be synchronized, and not while
    PyTorch compiles.
    """
    if torch.compiler.is_compiling() or actions.device.type != "cpu":
        return
    values = torch.func.debug_unwrap(actions.detach())
    if number is not None and not torch.all((0 <= values) & (values < number)):
        raise ValueError(f"Actions must satisfy 0 <= action < {number}, got {values}.")
    if values.is_floating_point() and not torch.isfinite(values).all():
        raise ValueError(f"Actions must be finite, got {values}.")


def check_action_type(
    action: torch.Tensor,
    shape: Sequence[int],
    rows: int | None,
    categorical: bool,
) -> None:
    """Check shape and type of actions.

    **Arguments:**

    - `rows`: number of discrete actions; None for continuous ones.

    **Raises:** `ValueError` if the shape, `TypeError` if the type is wrong.
    """
    if tuple(action.shape) != tuple(shape):
        raise ValueError(
            f"Actions must have shape {tuple(shape)} (batch size, number of steps if "
            f"there are any, shape of an action), got {tuple(action.shape)}."
        )
    if rows is None and not action.is_floating_point():
        raise TypeError(f"Actions must be floating-point numbers, got {action.dtype}.")
    if categorical and action.is_floating_point():
        raise TypeError(f"Actions must be integers, got {action.dtype}.")


def state_in(tensordict: TensorDictBase | None) -> EnvState:
    """Return the state in a tensordict.

    **Raises:** `KeyError` if it is not there.
    """
    if tensordict is None or tensordict.get("state", None) is None:
        raise KeyError(
            "The tensordict must have a `state`. Pass what `reset` or a step returned."
        )
    held = tensordict.get("state")
    for name in EnvState._fields:
        if held.get(name, None) is None:
            raise KeyError(
                f"The `state` of the tensordict must have `{name}`. Pass all that "
                "`reset` or a step returned."
            )
    return EnvState(*map(held.get, EnvState._fields))


def stepped(
    mask: torch.Tensor,
    new: tuple[EnvState, tuple[torch.Tensor, ...]],
    state: EnvState,
    tensordict: TensorDictBase,
) -> tuple[EnvState, tuple[torch.Tensor, ...]]:
    """Keep the state of environments that take no step.

    **Arguments:**

    - `mask`: true for environments that take a step.
    - `new`: state, and reward, terminated and truncated, after the step.
    - `state`, `tensordict`: state and flags before it.
    """
    after, (reward, terminated, truncated) = new
    pick = lambda x, y: torch.where(
        mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y
    )
    no = torch.zeros_like(terminated)
    told = (
        pick(reward, torch.zeros_like(reward)),
        pick(terminated, tensordict.get("terminated", no)),
        pick(truncated, tensordict.get("truncated", no)),
    )
    return EnvState(*map(pick, after, state)), told


def flags_after_reset(
    tensordict: TensorDictBase | None,
    mask: torch.Tensor | None,
    found: Sequence[torch.Tensor],
    shape: Sequence[int],
    device: torch.device | None,
) -> dict[str, torch.Tensor]:
    """Return the flags after a reset: those of new episodes, and those that environments
    which are not reset had before.

    **Arguments:**

    - `mask`: true for environments that are reset; all if None.
    - `found`: terminated and truncated of new episodes; false if empty.
    - `shape`: shape of a flag.
    """
    names: tuple[str, ...] = ("done", "terminated", "truncated")
    no = torch.zeros(shape, dtype=torch.bool, device=device)
    flags = {name: no.clone() for name in names}
    if found:
        terminated, truncated = found
        flags = dict(zip(names, (terminated | truncated, terminated, truncated)))
    if tensordict is None or mask is None:
        return flags
    stay = ~mask.reshape(no.shape)
    return {name: flags[name] | (tensordict.get(name, no) & stay) for name in names}


def trajectory(
    state: EnvState, actions: torch.Tensor, out: Sequence[torch.Tensor], axis: int
) -> tuple[TensorDict, EnvState]:
    """Return the tensordict of `EqsimWrapper.unroll`.

    **Arguments:**

    - `state`: state before the first step.
    - `out`: numbers and words after the last step; observations, rewards and flags of
        all steps.
    - `axis`: axis of the steps.
    """
    numbers, words, obs, reward, terminated, truncated = out
    after = {
        "observation": obs,
        "terminated": terminated,
        "truncated": truncated,
        "done": terminated | truncated,
    }
    no = torch.zeros_like(terminated.select(axis, 0))
    first = {"observation": state.obs, "terminated": no, "truncated": no, "done": no}
    late = lambda x: x.narrow(axis, 0, x.shape[axis] - 1)
    before = {
        name: torch.cat([x.unsqueeze(axis), late(after[name])], axis)
        for name, x in first.items()
    }
    shape, device = reward.shape[: axis + 1], obs.device
    after = TensorDict({**after, "reward": reward}, shape, device=device)
    result = TensorDict(
        {"action": actions, **before, "next": after}, shape, device=device
    )
    return result, EnvState(numbers, words, obs.select(axis, -1))
