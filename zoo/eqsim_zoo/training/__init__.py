"""Training: the loop, evaluation and progress."""

from ._progress import (
    RunWarning as RunWarning,
)
from ._train import (
    Interrupted as Interrupted,
    Result as Result,
    resume as resume,
    Terminated as Terminated,
    train as train,
    UnsavedError as UnsavedError,
)
from .callbacks import (
    AbstractCallback as AbstractCallback,
    Checkpoint as Checkpoint,
    Control as Control,
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
from .video import Video as Video
