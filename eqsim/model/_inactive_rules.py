"""Rules for array entries without influence on the motion."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Rule(NamedTuple):
    """Array entries that are disabled.

    - `path`: path of the array.
    - `marks`: True for disabled entries; one mark may stand for a row, or for the whole
        array.
    - `reason`: reason why they are disabled.
    """

    path: str
    marks: Any
    reason: str


def rows(marks: Sequence[bool]) -> np.ndarray:
    return np.asarray(marks, bool)


def beyond(counts: Sequence[int], width: int) -> np.ndarray:
    """Return True for the entries of each row after the first `count`."""
    return np.arange(width) >= np.reshape(np.asarray(counts, int), (-1, 1))
