"""Conversion of rollouts to datasets."""

import jax.tree_util as jtu
import numpy as np

from eqsim import AbstractEnv, Trajectory

from ._about import About
from ._dataset import Dataset
from ._rows import flatten
from ._steps import Steps


def from_trajectory(
    trajectory: Trajectory, env: AbstractEnv, *, about: About = About()
) -> Dataset:
    """Convert a rollout, batched or not, to a dataset.

    Steps that were not taken (`valid` is false) and separate reset steps of `AutoReset`
    (`first` is true) are left out, as are, without `AutoReset`, steps after the end of an
    episode. Episodes that are unfinished at the end of the rollout are truncated.

    **Arguments:**

    - `trajectory`: result of `eqsim.rollout` without `collect`.
    - `env`: environment of the rollout; its action bounds are those of the dataset.
    - `about`: metadata.

    **Raises:** `ValueError` if no step is left, actions are unbounded or outside their
    bounds, or a value is not finite.
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
    return Dataset.of(flatten(steps, kept), bounds=env.action_range, about=about)
