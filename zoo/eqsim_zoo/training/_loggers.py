"""Callbacks that hand metrics to other programs. Each needs a package of its own."""

import importlib
import os
import pathlib
from typing import Any

from ..runs._folder import agents_of, Run
from ..runs._metrics import BEGIN, Row
from ._callbacks import AbstractCallback, Turn
from ._processes import is_first


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

    def start(self, run: Run, folder: pathlib.Path | None, turn: int) -> None:
        """Do nothing: files are opened with the first row of each member."""

    def turn(self, turn: Turn) -> None:
        rows = turn.rows if is_first() else ()
        for row in rows:
            member = row["member"]
            if member not in self._writers:
                name = f"member{member}" if len(rows) > 1 else ""
                self._writers[member] = self._make(str(self._folder / name))
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
    - `config`: hyper-parameters that are shown; those of agents and plan if None.

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
            found = {"agents": agents_of(run.members), "plan": vars(run.plan)}
        self._run = self._init(found)

    def turn(self, turn: Turn) -> None:
        if self._run is None:
            return
        rows = turn.rows
        out: dict[str, Any] = {"steps": rows[0]["steps"], "seconds": rows[0]["seconds"]}
        for row in rows:
            tail = f"/{row['member']}" if len(rows) > 1 else ""
            out |= {f"{name}{tail}": value for name, value in _numbers(row).items()}
        for path in turn.control.videos:
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
