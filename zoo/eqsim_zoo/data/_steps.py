"""Recorded steps in host memory."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float


class Steps(NamedTuple):
    """Fields of `Transition` as NumPy arrays, with actions in physical units.

    - `obs`, `action`, `reward`: observation before the step, its action and reward.
    - `next_obs`: observation after the step.
    - `terminated`, `truncated`: true if the episode ended in the step, or was cut off
        after it.
    """

    obs: Any
    action: Float[np.ndarray, "*steps nu"]
    reward: Float[np.ndarray, "*steps"]
    next_obs: Any
    terminated: Bool[np.ndarray, "*steps"]
    truncated: Bool[np.ndarray, "*steps"]

    @property
    def done(self) -> Bool[np.ndarray, "*steps"]:
        """True at the last step of each episode."""
        return self.terminated | self.truncated
