"""Metrics for programs that show them. Each needs a package of its own."""

import abc
import importlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from ._metrics import BEGIN, Row


class AbstractLogger(abc.ABC):
    """Is told the rows of every turn, beside the files of a run."""

    @abc.abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Takes the rows of one turn, one per member: numbers by name."""

    @abc.abstractmethod
    def close(self) -> None:
        """Writes what is left."""


class TensorBoard(AbstractLogger):
    """Writes files for TensorBoard. Extra: `tensorboard`.

    **Arguments:**

    - `folder`: where to; members of a run get folders of their own in it.

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

    def write(self, rows: Sequence[Row]) -> None:
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


class WeightsAndBiases(AbstractLogger):
    """Sends metrics to Weights & Biases. Extra: `wandb`.

    **Arguments:**

    - `project`: to which the run belongs.
    - `name`: of the run.
    - `config`: shown with it.

    **Raises:** `ImportError` without wandb.
    """

    def __init__(self, project: str, name: str, config: dict[str, Any] | None = None):
        try:
            module: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise _missing("Weights & Biases", "wandb", "wandb") from error
        self._run = module.init(project=project, name=name, config=config)

    def write(self, rows: Sequence[Row]) -> None:
        out = {"steps": rows[0]["steps"], "seconds": rows[0]["seconds"]}
        for row in rows:
            tail = f"/{row['member']}" if len(rows) > 1 else ""
            out |= {f"{name}{tail}": value for name, value in _numbers(row).items()}
        self._run.log(out, step=rows[0]["turn"])

    def close(self) -> None:
        self._run.finish()


def _numbers(row: Row) -> dict[str, float]:
    return {k: x for k, x in row.items() if k not in BEGIN[:5]}


def _missing(what: str, package: str, extra: str) -> ImportError:
    return ImportError(
        f"{what} needs {package}. Run `pip install 'eqsim-zoo[{extra}]'`."
    )
