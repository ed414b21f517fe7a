"""Steps in the memory of the host."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float


class Steps(NamedTuple):
    """What `Transition` holds, of NumPy: actions are in the units of the robot.

    - `obs`, `action`, `reward`: before the step, of it, for it.
    - `next_obs`: what it led to.
    - `terminated`, `truncated`: true if the task ended there, or was cut off.
    """

    obs: Any
    action: Float[np.ndarray, "*steps nu"]
    reward: Float[np.ndarray, "*steps"]
    next_obs: Any
    terminated: Bool[np.ndarray, "*steps"]
    truncated: Bool[np.ndarray, "*steps"]

    @property
    def done(self) -> Bool[np.ndarray, "*steps"]:
        """Whether the episode went no further."""
        return self.terminated | self.truncated
