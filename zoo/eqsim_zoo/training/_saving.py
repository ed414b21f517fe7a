"""The callback that writes checkpoints."""

import os
import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..runs._checkpoint import save_checkpoint
from ..runs._folder import agents_of, BEST, env_name, LAST, Run
from ..runs._plan import Counters
from ._callbacks import AbstractCallback, CSV, Curves, JSONLines, Turn
from ._processes import agreed, gathered


class Checkpoint(AbstractCallback):
    """Write `last.ckpt` at each evaluation, at the end, and after a turn that ends `every`
    seconds after the last one; `best.ckpt` at the evaluation with the highest mean
    return. After a failed write the previous file remains, and the run continues.

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
        self.kept = NOTHING_KEPT

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        self._folder = folder
        self._about = {"agents": agents_of(run.members), "env": env_name(run.env)}
        self.kept = NOTHING_KEPT
        if folder is not None:
            there = (folder / LAST).exists()
            self.kept = _kept(folder, turn) if there else "There was no checkpoint yet."
        self._saved, self._cost = time.monotonic(), 0.0

    def turn(self, turn: Turn) -> None:
        if turn.failed:
            return
        (due,) = agreed(int(self._due()))
        if turn.evaluation is None and not due and not turn.ends():
            return
        state = gathered(turn.state)
        if not self.save(state, turn.counters, turn.best, turn.warn):
            turn.control.best_lost = turn.best

    def close(self) -> None:
        """Do nothing: checkpoints are written immediately."""

    def save(
        self,
        state: Any,
        counters: Counters,
        best: bool,
        warn: Callable[[str], None],
    ) -> bool:
        """Write a gathered state.

        **Returns:** true unless that failed.
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
            warn(
                f"The checkpoint after turn {counters.turn} could not be written ({error}). "
                "The previous one is kept, and the run continues. Make room on the disk."
            )
            return False
        finally:
            self._saved = time.monotonic()
            self._cost = self._saved - begin
        self.kept = _kept(self._folder, counters.turn)
        return True

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
