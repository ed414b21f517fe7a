"""Steps with each observation held once."""

from typing import Any, NamedTuple

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Bool, Int

from ._steps import Steps


class Packed(NamedTuple):
    """Arrays of a `Dataset`, of NumPy."""

    frames: Any
    at: Int[np.ndarray, " steps"]
    action: np.ndarray
    reward: np.ndarray
    terminated: Bool[np.ndarray, " steps"]
    last: Int[np.ndarray, " steps"]


def pack(steps: Steps) -> Packed:
    """Steps in their order, of which the last ends a trajectory.

    Where a step does not lead to what the next one begins with, both are held.
    """
    number = len(steps.reward)
    over = np.asarray(steps.terminated) | np.asarray(steps.truncated)
    over[-1] = True
    follows = ~over[:-1]
    for now, then in zip(jtu.tree_leaves(steps.obs), jtu.tree_leaves(steps.next_obs)):
        # By their bytes: zero has two signs.
        follows &= (_bytes(now[1:]) == _bytes(then[:-1])).all(axis=1)
    breaks = np.append(~follows, True)
    at = np.arange(number) + np.append(0, np.cumsum(breaks)[:-1])

    def frames(obs, next_obs):
        out = np.empty((number + int(breaks.sum()), *obs.shape[1:]), obs.dtype)
        out[at], out[at[breaks] + 1] = obs, next_obs[breaks]
        return out

    ends = np.flatnonzero(over)
    last = ends[np.searchsorted(ends, np.arange(number))]
    return Packed(
        jtu.tree_map(frames, steps.obs, steps.next_obs),
        at,
        steps.action,
        steps.reward,
        steps.terminated,
        last,
    )


def _bytes(x: np.ndarray) -> np.ndarray:
    """Those of each row."""
    size = int(np.prod(x.shape[1:]))
    return np.ascontiguousarray(x).reshape(len(x), size).view(np.uint8)


def check_packed(packed: Packed) -> None:
    """Raises `ValueError` unless arrays are those of a dataset."""
    number = packed.reward.shape[0] if packed.reward.ndim == 1 else 0
    if not number:
        raise ValueError(
            f"`reward` has shape {packed.reward.shape}: one number for each step, and at "
            "least one step, is expected."
        )
    names = (
        ("at", np.signedinteger),
        ("terminated", np.bool_),
        ("last", np.signedinteger),
    )
    for name, kind in names:
        x = packed._asdict()[name]
        if x.shape != (number,) or not np.issubdtype(x.dtype, kind):
            raise ValueError(
                f"`{name}` has shape {x.shape} and type {x.dtype}: ({number},) and "
                f"{kind.__name__} are expected, as there are {number} rewards."
            )
    if packed.action.ndim != 2 or len(packed.action) != number:
        raise ValueError(
            f"`action` has shape {packed.action.shape}: ({number}, nu) is expected, as "
            f"there are {number} rewards."
        )
    sizes = {np.shape(x)[:1] for x in jtu.tree_leaves(packed.frames)}
    fits = len(sizes) == 1 and packed.at[0] >= 0 and np.all(np.diff(packed.at) > 0)
    if not fits or (int(packed.at[-1]) + 1,) >= min(sizes):
        raise ValueError(
            f"`at` does not lead from one to the next of the frames, of which there are "
            f"{sorted(sizes)}."
        )
    steps = np.arange(number)
    inside = np.all((packed.last >= steps) & (packed.last < number))
    own = packed.last == steps
    if not inside or not np.all(own[packed.last]) or np.any(packed.terminated & ~own):
        raise ValueError(
            "`last` does not tell the end of each trajectory, in which alone a task ends."
        )
    # Nothing ends between a step and the last of its trajectory.
    if np.any(np.diff(packed.last)[~own[:-1]] != 0):
        raise ValueError("`last` changes within a trajectory.")
