"""Statistics of an evaluation, one for each member."""

from typing import Any

import numpy as np


class _PerMember(np.ndarray):
    """An array with one number for each member, which converts to a number if there is a
    single member."""

    def __float__(self) -> float:
        if self.size != 1:
            raise TypeError(
                f"This statistic has one value for each of {self.size} members, so it is "
                "not a single number. Select a member, as in `evaluation.mean()[0]`, or "
                "average over members, as in `evaluation.mean().mean()`."
            )
        return float(self.item())

    def __format__(self, spec: str) -> str:
        return format(float(self) if spec else str(self), spec)


def per_member(values: Any) -> np.ndarray:
    """Return an array of numbers, one for each member."""
    return np.asarray(values).view(_PerMember)
