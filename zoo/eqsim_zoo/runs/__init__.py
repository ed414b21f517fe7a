"""Training runs on disk: plans, folders, checkpoints, recipes, presets and metrics."""

from ._presets import (
    find_preset as find_preset,
    Preset as Preset,
    presets as presets,
    variants as variants,
)
from .checkpoints import (
    CheckpointError as CheckpointError,
    load_checkpoint as load_checkpoint,
    read_about as read_about,
    save_checkpoint as save_checkpoint,
)
from .fields import (
    build as build,
    describe as describe,
    full_name as full_name,
    parse as parse,
)
from .folders import (
    EnvironmentWarning as EnvironmentWarning,
    load_run as load_run,
)
from .members import (
    Members as Members,
)
from .metrics import (
    read_metrics as read_metrics,
    write_curves as write_curves,
)
from .offline import (
    as_learner as as_learner,
    check_data as check_data,
    learners as learners,
    Offline as Offline,
    offline_maker as offline_maker,
    OfflineState as OfflineState,
    Recorded as Recorded,
)
from .run import (
    Counters as Counters,
    Plan as Plan,
    prior_of as prior_of,
    Recipe as Recipe,
    Run as Run,
    RunFolder as RunFolder,
    with_skills as with_skills,
)
