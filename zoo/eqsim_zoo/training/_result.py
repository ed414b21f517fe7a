"""The result of a run, and the exceptions of runs that a signal or a full disk ended."""

import dataclasses
import pathlib
import signal
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
    - `folder`: folder of the run; None if it was not written.
    """

    members: Members
    state: Any
    counters: Counters
    evaluations: tuple[tuple[int, Evaluation], ...]
    folder: pathlib.Path | None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C (SIGINT) ended a run after a turn.

    `result` is its `Result`. With a folder, the last checkpoint is on the disk, and
    `resume` continues the run.
    """

    def __init__(self, text: str, result: Result):
        KeyboardInterrupt.__init__(self, text)
        self.result = result


class Terminated(SystemExit):
    """SIGTERM ended a run after a turn, and ends the process with status 143.

    `result` is as of `Interrupted`.
    """

    def __init__(self, result: Result):
        SystemExit.__init__(self, 128 + signal.SIGTERM)
        self.result = result


def ended(number: int, result: Result) -> Interrupted | Terminated:
    """Return the exception of a run that a signal ended."""
    if number == signal.SIGTERM:
        return Terminated(result)
    again = f" Resume with `eqsim resume {result.folder}`." if result.folder else ""
    done = result.counters
    return Interrupted(
        f"Stopped after turn {done.turn}, {done.steps:,} steps.{again}", result
    )


class UnsavedError(OSError):
    """The last checkpoint of a run, or a given initial state, could not be written.

    `result` is the `Result` of the run, which exists in memory only; None if the run did
    not begin. After making room on the disk, `resume` computes the missing turns again.
    """

    result: Result | None = None
