"""Flattening of batched steps."""

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Bool

from ._steps import Steps


def flatten(steps: Steps, kept: Bool[np.ndarray, "rows time"]) -> Steps:
    """Flatten steps by environment; the last kept step of each one is truncated unless it
    is terminated.

    **Arguments:**

    - `steps`: steps with axes (environment, time).
    - `kept`: mask of the steps to keep.
    """
    left = np.cumsum(kept[:, ::-1], axis=1)[:, ::-1]
    cut = kept & (left == 1) & ~steps.terminated
    steps = steps._replace(truncated=steps.truncated | cut)
    return jtu.tree_map(lambda x: x[kept], steps)
