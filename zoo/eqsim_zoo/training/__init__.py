"""Training: the loop, evaluation and progress."""

from ._aggregate import (
    bootstrap_interval as bootstrap_interval,
    interquartile_mean as interquartile_mean,
)
from ._callbacks import (
    AbstractCallback as AbstractCallback,
    Control as Control,
    CSV as CSV,
    Curves as Curves,
    EarlyStop as EarlyStop,
    JSONLines as JSONLines,
    Turn as Turn,
)
from ._evaluate import (
    evaluate as evaluate,
    Evaluation as Evaluation,
)
from ._loggers import TensorBoard as TensorBoard, WeightsAndBiases as WeightsAndBiases
from ._progress import (
    RunWarning as RunWarning,
)
from ._result import (
    Interrupted as Interrupted,
    Result as Result,
    Terminated as Terminated,
    UnsavedError as UnsavedError,
)
from ._saving import Checkpoint as Checkpoint
from ._train import (
    resume as resume,
    train as train,
)
from ._video import Video as Video
