"""Callbacks: what a run does after each turn, besides training."""

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsim.bridges import check_count

from ..runs._curves import write_curves
from ..runs._metrics import MetricsFile, Row
from ..runs._plan import Counters
from ..runs._run import Run
from ._evaluate import Evaluation


@dataclasses.dataclass
class Control:
    """Requests of callbacks to the loop.

    **Arguments:**

    - `stop`: reason to end the run after this turn; empty to continue.
    - `unsaved`: reason why files of this turn are missing, if the disk is full or a
        checkpoint could not be written; otherwise empty. A run whose last turn is
        unsaved ends with `UnsavedError`.
    - `videos`: animations that were written after this turn, for later callbacks.
    """

    stop: str = ""
    unsaved: str = ""
    videos: list[pathlib.Path] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn of a run, as callbacks see it.

    **Arguments:**

    - `run`: agents, environment and plan.
    - `counters`: steps, iterations and time so far.
    - `rows`: metrics, one row per member.
    - `evaluation`: evaluation after this turn; None if there was none.
    - `best`: true if that was the best so far.
    - `failed`: true if no member has finite numbers any more; the run ends.
    - `state`: state of all members. The next turn reuses its memory: copy what is kept.
    - `ends`: function that returns true in the last turn; all processes must call it alike.
    - `warn`: function that shows a warning.
    - `control`: requests to the loop.
    """

    run: Run
    counters: Counters
    rows: Sequence[Row]
    evaluation: Evaluation | None
    best: bool
    failed: bool
    state: Any
    ends: Callable[[], bool]
    warn: Callable[[str], None]
    control: Control


class AbstractCallback(abc.ABC):
    """An observer of a run. In a run of several processes each of them calls it; only
    process 0 is given a folder."""

    @abc.abstractmethod
    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        """Prepare for a run.

        **Arguments:**

        - `folder`: folder of the run; None without one, and in other processes.
        - `turn`: number of turns that were taken before; 0 for a new run.
        """

    @abc.abstractmethod
    def turn(self, turn: Turn) -> None:
        """Observe one turn."""

    @abc.abstractmethod
    def close(self) -> None:
        """Finish, also after an error."""


class JSONLines(AbstractCallback):
    """Writes `metrics.jsonl`: one JSON object per turn and member; null for a number that
    is not finite. Rows of turns after the last checkpoint are cut off on resuming."""

    def __init__(self):
        self._file: MetricsFile | None = None

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        self._file = None if folder is None else MetricsFile.json_lines(folder, turn)

    def turn(self, turn: Turn) -> None:
        if self._file is not None:
            full = self._file.write(turn.rows, turn.warn)
            turn.control.unsaved = turn.control.unsaved or full

    def close(self) -> None:
        """Do nothing: each turn is written immediately."""


class CSV(AbstractCallback):
    """Writes `metrics.csv`, with the rows of `JSONLines`; the first line has the names of
    all columns."""

    def __init__(self):
        self._file: MetricsFile | None = None

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        self._file = None if folder is None else MetricsFile.csv(folder, turn)

    def turn(self, turn: Turn) -> None:
        if self._file is not None:
            full = self._file.write(turn.rows, turn.warn)
            turn.control.unsaved = turn.control.unsaved or full

    def close(self) -> None:
        """Do nothing: each turn is written immediately."""


class Curves(AbstractCallback):
    """Draws `curves.png` at the end."""

    def __init__(self):
        self._folder: pathlib.Path | None = None
        self._warn: Callable[[str], None] | None = None

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        self._folder, self._warn = folder, None

    def turn(self, turn: Turn) -> None:
        self._warn = turn.warn

    def close(self) -> None:
        if self._folder is None or self._warn is None:
            return
        try:
            write_curves([self._folder], self._folder / "curves.png")
        except (OSError, ImportError, ValueError) as error:
            self._warn(f"No curves were drawn: {error}")


class EarlyStop(AbstractCallback):
    """Ends a run at an evaluation with a mean return of at least `target`, or after
    `patience` evaluations in sequence that were not the best; the mean is over the
    members that have finite numbers.

    **Arguments:**

    - `target`: return to reach.
    - `patience`: number of evaluations to wait for a better one; None for any number.
    """

    def __init__(self, target: float = np.inf, patience: int | None = None):
        if patience is not None:
            check_count("patience", patience)
        self._target, self._patience, self._waited = target, patience, 0

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        self._waited = 0

    def turn(self, turn: Turn) -> None:
        if turn.evaluation is None:
            return
        means = turn.evaluation.mean()
        value = (
            float(np.mean(means[np.isfinite(means)]))
            if np.any(np.isfinite(means))
            else -np.inf
        )
        self._waited = 0 if turn.best else self._waited + 1
        if value >= self._target:
            turn.control.stop = f"the mean return is {value:.4g}"
        elif self._patience is not None and self._waited >= self._patience:
            turn.control.stop = f"{self._waited} evaluations were not the best"

    def close(self) -> None:
        """Do nothing."""
