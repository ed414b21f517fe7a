"""Callbacks: what a run does after each turn, besides training. They write metrics,
checkpoints and curves, end a run early, and hand metrics to other programs.
"""

import abc
import dataclasses
import importlib
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsim.bridges import check_count

from ..runs.checkpoints import save_checkpoint
from ..runs.folders import agents_of, BEST, env_name, LAST
from ..runs.members import own_copy
from ..runs.metrics import BEGIN, METRICS, MetricsFile, read_metrics, Row
from ..runs.pages import write_page
from ..runs.run import Counters, Run
from ._progress import agreed, gathered, is_first
from .evaluation import Evaluation


@dataclasses.dataclass
class Turn:
    """One turn of a run, as callbacks see it.

    **Arguments:**

    - `run`: the run.
    - `counters`: steps, iterations and time so far.
    - `rows`: metrics, one row per member.
    - `evaluation`: evaluation after this turn; None if there was none.
    - `best`: true if that was the best so far.
    - `failed`: true if no member has finite numbers any more; the run ends.
    - `state`: state of all members. The next turn reuses its memory: copy what is kept.
    - `ends`: function that returns true in the last turn; all processes must call it alike.
    - `warn`: function that shows a warning.
    - `stop`: set by a callback to end the run after this turn: the reason; else empty.
    - `unsaved`: set by a callback if files of this turn are missing, as the disk is full
        or a checkpoint could not be written: the reason; else empty. A run whose last turn
        is unsaved ends with `UnsavedError`.
    - `videos`: animations that were written after this turn, for later callbacks.
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
    stop: str = ""
    unsaved: str = ""
    videos: list[pathlib.Path] = dataclasses.field(default_factory=list)


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
            turn.unsaved = turn.unsaved or full

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
            turn.unsaved = turn.unsaved or full

    def close(self) -> None:
        """Do nothing: each turn is written immediately."""


class Curves(AbstractCallback):
    """Draws `curves.png`, and writes a page about the run, `index.html`, at the end."""

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
            write_page(self._folder)
        except (OSError, ImportError, ValueError) as error:
            self._warn(f"The page of the run was not written: {error}")


class EarlyStop(AbstractCallback):
    """Ends a run at an evaluation with a mean return of at least `target`, or after
    `patience` evaluations in sequence that were not the best, also those before a run was
    resumed; the mean is over the members that have finite numbers.

    **Arguments:**

    - `target`: return to reach.
    - `patience`: number of evaluations to wait for a better one; None for any number.
    """

    def __init__(self, target: float = np.inf, patience: int | None = None):
        if patience is not None:
            check_count("patience", patience)
        self._target, self._patience = target, patience
        self._turns: set[int] = set()

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        self._turns = set()
        if folder is not None and turn and (folder / METRICS).is_file():
            known = [x["turn"] for x in read_metrics(folder) if "eval/return" in x]
            self._turns = {x for x in known if x <= turn}

    def turn(self, turn: Turn) -> None:
        if turn.evaluation is None:
            return
        means = turn.evaluation.mean()
        value = (
            float(np.mean(means[np.isfinite(means)]))
            if np.any(np.isfinite(means))
            else -np.inf
        )
        self._turns.add(turn.counters.turn)
        waited = sum(x > turn.counters.best_turn for x in self._turns)
        if value >= self._target:
            turn.stop = f"the mean return is {value:.4g}"
        elif self._patience is not None and waited >= self._patience:
            turn.stop = f"{waited} evaluations were not the best"

    def close(self) -> None:
        """Do nothing."""


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
        name = env_name(None if run.env is None else run.environment())
        self._about = {"agents": agents_of(run.members), "env": name}
        self.kept = NOTHING_KEPT
        if folder is not None:
            there = (folder / LAST).exists()
            self.kept = _kept(folder, turn) if there else "There was no checkpoint yet."
        self._saved, self._cost, self._best = time.monotonic(), 0.0, None

    def turn(self, turn: Turn) -> None:
        if turn.failed:
            return
        (due,) = agreed(int(self._due() or bool(turn.stop)))
        if turn.evaluation is None and not due and not turn.ends():
            return
        state = gathered(turn.state)
        if self._folder is None:
            return
        if turn.best:
            self._best = state, turn.counters
        # Rows of metrics that are not on the disk would be missing on resuming.
        why = turn.unsaved or self.save(state, turn.counters)
        if not why:
            return
        if turn.best:  # The next turn reuses the memory of the state.
            self._best = own_copy(state), turn.counters
        turn.unsaved = why
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


class TensorBoard(AbstractCallback):
    """Write files for TensorBoard. Extra: `tensorboard`.

    **Arguments:**

    - `folder`: folder to write to; members of a run get folders of their own in it.

    **Raises:** `ImportError` without tensorboardX.
    """

    def __init__(self, folder: str | os.PathLike):
        try:
            module: Any = importlib.import_module("tensorboardX")
        except ImportError as error:
            raise _missing("TensorBoard", "tensorboardX", "tensorboard") from error
        self._make = module.SummaryWriter
        self._folder = pathlib.Path(folder)
        self._writers: dict[int, Any] = {}
        self._ending = ""

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        """Choose names of files, which are opened with the first row of each member."""
        # tensorboardX names files by the second, and overwrites one of the same name.
        self._ending = f".turn{turn}"

    def turn(self, turn: Turn) -> None:
        rows = turn.rows if is_first() else ()
        for row in rows:
            member = row["member"]
            if member not in self._writers:
                name = f"member{member}" if len(rows) > 1 else ""
                path = str(self._folder / name)
                self._writers[member] = self._make(path, filename_suffix=self._ending)
            writer = self._writers[member]
            for name, value in _numbers(row).items():
                writer.add_scalar(name, value, row["steps"])
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WeightsAndBiases(AbstractCallback):
    """Send metrics to Weights & Biases, and the animations of callbacks before this one,
    such as `Video`. Extra: `wandb`.

    **Arguments:**

    - `project`, `name`: project and name of the run.
    - `config`: hyper-parameters that are shown; those of agents and run if None.

    **Raises:** `ImportError` without wandb.
    """

    def __init__(self, project: str, name: str, config: dict[str, Any] | None = None):
        try:
            module: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise _missing("Weights & Biases", "wandb", "wandb") from error
        self._init = lambda config: module.init(
            project=project, name=name, config=config
        )
        self._video = module.Video
        self._config, self._run = config, None

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        if not is_first():
            return
        found = self._config
        if found is None:
            fields = vars(run).items()
            numbers = {name: x for name, x in fields if isinstance(x, int | str)}
            found = {"agents": agents_of(run.members), "run": numbers}
        self._run = self._init(found)

    def turn(self, turn: Turn) -> None:
        if self._run is None:
            return
        rows = turn.rows
        out: dict[str, Any] = {"steps": rows[0]["steps"], "seconds": rows[0]["seconds"]}
        for row in rows:
            tail = f"/{row['member']}" if len(rows) > 1 else ""
            out |= {f"{name}{tail}": value for name, value in _numbers(row).items()}
        for path in turn.videos:
            out["video"] = self._video(str(path))
        self._run.log(out, step=rows[0]["turn"])

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


def _numbers(row: Row) -> dict[str, float]:
    return {k: x for k, x in row.items() if k not in BEGIN[:5]}


def _missing(what: str, package: str, extra: str) -> ImportError:
    return ImportError(
        f"{what} needs {package}. Run `pip install 'eqsim-zoo[{extra}]'`."
    )
