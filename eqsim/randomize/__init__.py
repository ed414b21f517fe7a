"""Domain randomization: functions `(key, sys) -> sys` that draw parameters of a robot.

`eqsim.DomainRandomization` calls them at every reset; `batch` makes a fixed batch of
robots from them.
"""

from ._randomizers import (
    AbstractRandomizer as AbstractRandomizer,
    batch as batch,
    chain as chain,
    choice as choice,
    gaussian as gaussian,
    masses as masses,
    presets as presets,
    scale as scale,
    uniform as uniform,
)
