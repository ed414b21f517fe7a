"""Steps of environments side by side as one row of steps."""

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Bool

from ._steps import Steps


def in_a_row(steps: Steps, kept: Bool[np.ndarray, "rows time"]) -> Steps:
    """First those of one environment, then those of the next; the last that is kept of
    each is cut off.

    **Arguments:**

    - `steps`: with axes (environment, time).
    - `kept`: which of them.
    """
    left = np.cumsum(kept[:, ::-1], axis=1)[:, ::-1]
    cut = kept & (left == 1) & ~steps.terminated
    steps = steps._replace(truncated=steps.truncated | cut)
    return jtu.tree_map(lambda x: x[kept], steps)
