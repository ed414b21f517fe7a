"""From what `eqsim.rollout` returns to a dataset."""

import jax.tree_util as jtu
import numpy as np

from eqsim import AbstractEnv, Trajectory

from ._about import About
from ._dataset import Dataset
from ._rows import in_a_row
from ._steps import Steps


def from_trajectory(
    trajectory: Trajectory, env: AbstractEnv, *, about: About = About()
) -> Dataset:
    """The steps of a rollout, of one environment or of many.

    Left out are steps that were not taken (`valid` is False), resets that `AutoReset`
    made in steps of their own (`first` is True), and, without `AutoReset`, what followed
    the end of an episode. Where the rollout stops, an episode is cut off.

    **Arguments:**

    - `trajectory`: from `eqsim.rollout`, without `collect`.
    - `env`: in which it was made; the bounds of actions are taken from it.
    - `about`: where it comes from.

    **Raises:** `ValueError` if no step is left, actions have no bounds or are outside, or
    a number is not finite.
    """
    timestep = trajectory.timestep
    restarts = timestep.final_obs is not None
    axes, length = trajectory.valid.ndim, trajectory.valid.shape[-1]

    def rows(tree):
        flat = lambda x: np.asarray(x).reshape(-1, length, *x.shape[axes:])
        return jtu.tree_map(flat, tree)

    steps = Steps(
        rows(trajectory.obs),
        rows(trajectory.action),
        rows(timestep.reward),
        rows(timestep.final_obs if restarts else timestep.obs),
        rows(timestep.terminated),
        rows(timestep.truncated),
    )
    valid, first = rows(trajectory.valid), rows(timestep.first)
    kept = valid & ~first
    if not restarts:
        over = np.logical_or.accumulate(steps.done & kept, axis=1)
        kept[:, 1:] &= ~over[:, :-1]
    return Dataset.of(in_a_row(steps, kept), bounds=env.action_range, about=about)
