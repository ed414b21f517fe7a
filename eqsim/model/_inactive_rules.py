"""Entries of arrays that cannot influence the motion."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Rule(NamedTuple):
    """Entries of an array that are switched off.

    - `path`: of the array.
    - `marks`: True where an entry is switched off; one mark may stand for a row, or for
        the whole array.
    - `reason`: why.
    """

    path: str
    marks: Any
    reason: str


def rows(marks: Sequence[bool]) -> np.ndarray:
    return np.asarray(marks, bool)


def beyond(counts: Sequence[int], width: int) -> np.ndarray:
    """True for the entries of each row that come after the first `count`."""
    return np.arange(width) >= np.reshape(np.asarray(counts, int), (-1, 1))
