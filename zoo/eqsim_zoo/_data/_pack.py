"""Steps with each observation held once."""

from typing import Any, NamedTuple

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Bool, Int

from .._replay import Transition


class Packed(NamedTuple):
    """Arrays of a `Dataset`, of NumPy."""

    frames: Any
    at: Int[np.ndarray, " steps"]
    action: np.ndarray
    reward: np.ndarray
    terminated: Bool[np.ndarray, " steps"]
    last: Int[np.ndarray, " steps"]


def pack(steps: Transition) -> Packed:
    """Steps in their order, of which the last ends a trajectory.

    Where a step does not lead to what the next one begins with, both are held.
    """
    number = len(steps.reward)
    over = np.asarray(steps.terminated) | np.asarray(steps.truncated)
    over[-1] = True
    follows = ~over[:-1]
    for now, then in zip(jtu.tree_leaves(steps.obs), jtu.tree_leaves(steps.next_obs)):
        follows &= (now[1:] == then[:-1]).reshape(number - 1, -1).all(axis=1)
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
