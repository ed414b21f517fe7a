"""Training runs on disk: plans, folders, checkpoints, recipes, presets and metrics."""

from ._checkpoint import (
    CheckpointError as CheckpointError,
    load_checkpoint as load_checkpoint,
    read_about as read_about,
    save_checkpoint as save_checkpoint,
)
from ._curves import (
    write_curves as write_curves,
)
from ._environment import (
    EnvironmentWarning as EnvironmentWarning,
)
from ._folder import load_run as load_run
from ._members import (
    Members as Members,
)
from ._metrics import (
    read_metrics as read_metrics,
)
from ._plan import (
    Counters as Counters,
    Plan as Plan,
)
from ._presets import (
    find_preset as find_preset,
    Preset as Preset,
    presets as presets,
    variants as variants,
)
from ._recipe import (
    Recipe as Recipe,
)
from ._recorded import (
    as_learner as as_learner,
    check_data as check_data,
    learners as learners,
    Offline as Offline,
    offline_maker as offline_maker,
    OfflineState as OfflineState,
    Recorded as Recorded,
)
from ._run import Run as Run, RunFolder as RunFolder
from ._settings import (
    build as build,
    describe as describe,
    full_name as full_name,
    parse as parse,
)
from ._skill_priors import (
    prior_of as prior_of,
    with_skills as with_skills,
)
