"""Training: the loop, evaluation and progress."""

from ._evaluate import (
    evaluate as evaluate,
    Evaluation as Evaluation,
)
from ._progress import (
    RunWarning as RunWarning,
)
from ._train import (
    Result as Result,
    resume as resume,
    train as train,
)
