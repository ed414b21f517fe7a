"""The callback that writes checkpoints."""

import os
import pathlib
import shutil
import time
from collections.abc import Sequence
from typing import Any

from ..runs._checkpoint import save_checkpoint
from ..runs._config import agents_of
from ..runs._environment import env_name
from ..runs._members import own_copy
from ..runs._plan import Counters
from ..runs._run import BEST, LAST, Run
from ._callbacks import AbstractCallback, CSV, Curves, JSONLines, Turn
from ._processes import agreed, gathered


class Checkpoint(AbstractCallback):
    """Write `last.ckpt` at each evaluation, at the end, and after a turn that ends `every`
    seconds after the last one; `best.ckpt` at the evaluation with the highest mean
    return. After a failed write the previous file remains, and the run continues; the
    best state is kept in memory until it can be written.

    `best.ckpt` is written before `last.ckpt`, and both after the metrics of the turn. A
    process that dies at any time leaves files from which `resume` reaches the end of an
    uninterrupted run.

    **Arguments:**

    - `every`: seconds between checkpoints, more if writing takes long; 0 for one in each
        turn.

    `kept` says in a sentence which checkpoint was written last.
    """

    def __init__(self, every: int | float = 60.0):
        self._every = every
        self._folder: pathlib.Path | None = None
        self._about: dict[str, Any] = {}
        self._saved, self._cost = 0.0, 0.0
        self._best: tuple[Any, Counters] | None = None
        self.kept = NOTHING_KEPT

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        self._folder = folder
        self._about = {"agents": agents_of(run.members), "env": env_name(run.env)}
        self.kept = NOTHING_KEPT
        if folder is not None:
            there = (folder / LAST).exists()
            self.kept = _kept(folder, turn) if there else "There was no checkpoint yet."
        self._saved, self._cost, self._best = time.monotonic(), 0.0, None

    def turn(self, turn: Turn) -> None:
        if turn.failed:
            return
        (due,) = agreed(int(self._due() or bool(turn.control.stop)))
        if turn.evaluation is None and not due and not turn.ends():
            return
        state = gathered(turn.state)
        if self._folder is None:
            return
        if turn.best:
            self._best = state, turn.counters
        # Rows of metrics that are not on the disk would be missing on resuming.
        why = turn.control.unsaved or self.save(state, turn.counters)
        if not why:
            return
        if turn.best:  # The next turn reuses the memory of the state.
            self._best = own_copy(state), turn.counters
        turn.control.unsaved = why
        turn.warn(
            f"The checkpoint after turn {turn.counters.turn} could not be written ({why}). "
            "The previous one is kept, and the run continues. Make room on the disk."
        )

    def close(self) -> None:
        """Do nothing: checkpoints are written immediately."""

    def save(self, state: Any, counters: Counters) -> str:
        """Write a gathered state, after the best one if that has no file yet.

        **Returns:** the error message; empty on success, and without a folder.
        """
        if self._folder is None:
            return ""
        begin = time.monotonic()
        try:
            self._write(self._folder, state, counters)
        except OSError as error:
            return str(error)
        finally:
            self._saved = time.monotonic()
            self._cost = self._saved - begin
        self.kept = _kept(self._folder, counters.turn)
        return ""

    def _write(self, folder: pathlib.Path, state: Any, counters: Counters) -> None:
        about = lambda counters: self._about | {"counters": counters._asdict()}
        last, best = folder / LAST, folder / BEST
        found = self._best
        if found is not None:
            save_checkpoint(best, found[0], about(found[1]))
            self._best = None
        if found is not None and found[1].turn == counters.turn:
            _copy(best, last)
        else:
            save_checkpoint(last, state, about(counters))

    def _due(self) -> bool:
        age = time.monotonic() - self._saved
        return self._every == 0 or age >= max(self._every, 20.0 * self._cost)


NOTHING_KEPT = "Nothing was kept, as the run has no folder (`out`)."


def with_defaults(
    callbacks: Sequence[AbstractCallback], folder: pathlib.Path | None
) -> list[AbstractCallback]:
    """Return the callbacks of a run: the given ones, then metrics, checkpoints and
    curves if there is a folder, unless one of the same class is given."""
    last = Checkpoint, Curves
    given = [x for x in callbacks if not isinstance(x, last)]
    files: list[AbstractCallback] = [JSONLines(), CSV(), Checkpoint(), Curves()]
    for default in files:
        same = [x for x in callbacks if isinstance(x, type(default))]
        if isinstance(default, last):
            given += same or ([] if folder is None else [default])
        elif not same and folder is not None:
            given.append(default)
    return given


def _kept(folder: pathlib.Path, turn: int) -> str:
    return f"The last good checkpoint is {folder / LAST} (turn {turn})."


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Link a file that is never written to again, only replaced; copy it where the file
    system has no links."""
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
