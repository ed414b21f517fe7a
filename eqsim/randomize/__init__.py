"""Domain randomization: functions `(key, sys) -> sys` that draw parameters of a robot.

`eqsim.DomainRandomization` calls them at every reset; `batch` makes a fixed batch of
robots from them.
"""

from ._batch import batch as batch
from ._presets import presets as presets
from ._random import (
    AbstractRandomizer as AbstractRandomizer,
    chain as chain,
    choice as choice,
    gaussian as gaussian,
    masses as masses,
    scale as scale,
    uniform as uniform,
)
