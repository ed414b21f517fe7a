"""A run, and the names of the files in its folder."""

import dataclasses
import os
import pathlib
from typing import Any

from eqsim import AbstractEnv

from ..data.dataset import Dataset
from ._members import Members
from ._plan import Plan
from ._recipe import Recipe


CONFIG, LAST, BEST = "config.json", "last.ckpt", "best.ckpt"
VIDEOS = "videos"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Destination of a run, for `train(out=...)`.

    **Arguments:**

    - `path`: folder for metrics, curves and the checkpoints `last.ckpt` and `best.ckpt`.
    - `overwrite`: true to delete a run in that folder.
    - `recipe`: names and settings from which `resume` rebuilds agent and environment.
    """

    path: str | os.PathLike
    overwrite: bool = False
    recipe: Recipe | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """A run loaded from its folder.

    **Arguments:**

    - `folder`: folder of the run.
    - `members`: agents; `members.agent(0)` is the first.
    - `env`: environment without auto-reset; None for training on a dataset alone.
    - `plan`: training plan.
    - `recipe`: names and settings of the run; None if it was started with objects.
    - `data`: dataset; None for training in an environment.
    - `state`: state of all members, with a member axis if there are several; see
        `members.pick`.
    - `about`: metadata of the checkpoint: `counters`, `agents` and `env`.
    """

    folder: pathlib.Path
    members: Members
    env: AbstractEnv | None
    plan: Plan
    recipe: Recipe | None
    data: Dataset | None = None
    state: Any = None
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    def environment(self) -> AbstractEnv:
        """Return the environment.

        **Raises:** `ValueError` if the run was trained on a dataset alone.
        """
        if self.env is None:
            raise ValueError(
                f"The run in {str(self.folder)!r} was trained on a dataset without an "
                "environment. Pass `env` to `load_run` to act and to evaluate."
            )
        return self.env
