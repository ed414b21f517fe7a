"""The result of a run, and the error of a run whose end is not on the disk."""

import dataclasses
import pathlib
from typing import Any

from ..runs._members import Members
from ..runs._plan import Counters
from ._evaluate import Evaluation


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of a run.

    **Arguments:**

    - `members`: the agents.
    - `state`: state of all members, with an axis of members if there are several;
        `members.pick(state, 3)` returns that of one.
    - `counters`: turns, steps and seconds.
    - `evaluations`: steps and evaluation, for each one of this call, with an axis of
        members.
    - `interrupted`: number of the signal that ended it early; 0 without one.
    - `folder`: folder of the run; None if it was not written.
    """

    members: Members
    state: Any
    counters: Counters
    evaluations: tuple[tuple[int, Evaluation], ...]
    interrupted: int
    folder: pathlib.Path | None


class UnsavedError(OSError):
    """The last checkpoint of a run, or a given initial state, could not be written.

    `result` is the `Result` of the run, which exists in memory only; None if the run did
    not begin. After making room on the disk, `resume` computes the missing turns again.
    """

    result: Result | None = None
