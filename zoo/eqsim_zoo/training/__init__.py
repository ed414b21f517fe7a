"""Training: the loop, its callbacks, and evaluation.

`train_resume` has `train`, `resume` and `load_run`; it calls `_loop`, which takes turns until
a run ends, evaluates the agents (`evaluation`), and calls `callbacks` (metrics, checkpoints,
curves, loggers; `video`) after each turn. A turn (`_turn`) is a number of iterations of all
members, that is of all agents and seeds of the run, in one compiled call. `_progress` shows
it, hears signals, and lets several processes agree.

Below is `runs`; the commands import this package.
"""

from ._progress import RunWarning as RunWarning
from .callbacks import (
    AbstractCallback as AbstractCallback,
    Checkpoint as Checkpoint,
    CSV as CSV,
    Curves as Curves,
    EarlyStop as EarlyStop,
    JSONLines as JSONLines,
    TensorBoard as TensorBoard,
    Turn as Turn,
    WeightsAndBiases as WeightsAndBiases,
)
from .evaluation import (
    bootstrap_interval as bootstrap_interval,
    evaluate as evaluate,
    Evaluation as Evaluation,
    interquartile_mean as interquartile_mean,
)
from .train_resume import (
    Interrupted as Interrupted,
    load_run as load_run,
    Result as Result,
    resume as resume,
    Terminated as Terminated,
    train as train,
    UnsavedError as UnsavedError,
)
from .video import Video as Video
