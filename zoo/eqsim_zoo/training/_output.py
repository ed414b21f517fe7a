"""All that a run writes."""

import os
import pathlib
import shutil
import time
from collections.abc import Sequence
from typing import Any

from ..runs._checkpoint import save_checkpoint
from ..runs._curves import write_curves
from ..runs._folder import agents_of, BEST, env_name, LAST, Run
from ..runs._loggers import AbstractLogger
from ..runs._metrics import Metrics, Row
from ..runs._plan import Counters
from ._progress import AbstractProgress


class Output:
    """Writes rows and checkpoints; what cannot be written is said, and ends nothing.

    **Arguments:**

    - `run`: what is run.
    - `folder`: where to; None for nowhere.
    - `turn`: after which it goes on.
    - `loggers`: who is told the rows as well.
    - `progress`: who is told what goes wrong.

    `kept` says in a sentence which checkpoint was written last.
    """

    def __init__(
        self,
        run: Run,
        folder: pathlib.Path | None,
        turn: int,
        loggers: Sequence[AbstractLogger],
        progress: AbstractProgress,
    ):
        self._run, self._folder = run, folder
        self._loggers, self._progress = loggers, progress
        self._metrics = None if folder is None else Metrics(folder, turn)
        self._about = {"agents": agents_of(run.members), "env": env_name(run.env)}
        self.kept = "Nothing was kept, as the run has no folder (`out`)."
        if folder is not None:
            self.kept = "There was no checkpoint yet."
            if (folder / LAST).exists():
                self.kept = _kept(folder, turn)
        self._saved, self._cost, self._said = time.monotonic(), 0.0, ""

    def write(self, rows: Sequence[Row]) -> None:
        """Rows of one turn."""
        if self._metrics is not None:
            why = self._metrics.write(rows)
            if why and why != self._said:
                self._progress.warn(
                    f"Metrics could not be written ({why}). The run goes on, and tries "
                    "again in each turn."
                )
            self._said = why
        for logger in self._loggers:
            logger.write(rows)

    def due(self, every: int | float) -> bool:
        """Whether the last checkpoint is old, and writing one does not take long beside;
        always, if `every` is 0."""
        age = time.monotonic() - self._saved
        return every == 0 or age >= max(every, 20.0 * self._cost)

    def save(self, state: Any, counters: Counters, best: bool) -> bool:
        """Writes `last.ckpt`, and `best.ckpt` if it is the best.

        **Returns:** whether it could be written.
        """
        if self._folder is None:
            return True
        about = self._about | {"counters": counters._asdict()}
        last, begin = self._folder / LAST, time.monotonic()
        try:
            save_checkpoint(last, state, about)
            if best:
                _copy(last, self._folder / BEST)
        except OSError as error:
            self._progress.warn(
                f"The checkpoint after turn {counters.turn} could not be written ({error}). "
                "The one before is kept, and the run goes on. Make room on the disk."
            )
            return False
        finally:
            self._saved = time.monotonic()
            self._cost = self._saved - begin
        self.kept = _kept(self._folder, counters.turn)
        return True

    def curves(self) -> None:
        """Draws `curves.png`."""
        if self._folder is None:
            return
        try:
            write_curves([self._folder], self._folder / "curves.png")
        except (OSError, ImportError) as error:
            self._progress.warn(f"No curves were drawn: {error}")

    def close(self) -> None:
        """Writes what is left."""
        for logger in self._loggers:
            logger.close()


def _kept(folder: pathlib.Path, turn: int) -> str:
    return f"The last good checkpoint is {folder / LAST} (turn {turn})."


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """A second name for a file that is never written to again, only replaced; or a copy,
    where files have one name only."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    try:
        try:
            os.link(source, part)
        except OSError:
            shutil.copyfile(source, part)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
