"""Runs: what is trained, and the files of it.

`run` says what a run is: a `Run` has agents, an environment or a dataset, steps, seeds and
evaluations. `members` are its agents with their seeds, as one batched pytree; `offline`
lets agents learn from a dataset in the loop of online agents. `fields` turns hyper-parameters
into JSON and back. In the folder of a run, `folders` reads and writes `config.json`,
`checkpoints` the states, and `metrics` the rows of each turn; `pages` plots and describes a
run. `_presets` has tested runs.

Below are agents, data, vision and blocks; `training` and the commands import this package.
"""

from ._presets import find_preset as find_preset, presets as presets
from .checkpoints import (
    CheckpointError as CheckpointError,
    load_checkpoint as load_checkpoint,
    read_about as read_about,
    save_checkpoint as save_checkpoint,
)
from .fields import describe as describe
from .folders import EnvironmentWarning as EnvironmentWarning
from .metrics import read_metrics as read_metrics
from .offline import Offline as Offline, Recorded as Recorded
from .pages import write_curves as write_curves, write_page as write_page
from .run import Run as Run
