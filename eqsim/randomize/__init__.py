"""Domain randomization: functions `(key, sys) -> sys` that draw parameters of a robot.

`eqsim.DomainRandomization` calls them at every reset; `batched_env` makes a fixed batch of
robots from them.
"""

from ._randomizers import (
    AbstractRandomizer as AbstractRandomizer,
    batched_env as batched_env,
    chain as chain,
    choice as choice,
    gaussian as gaussian,
    masses as masses,
    presets as presets,
    uniform as uniform,
    uniform_factor as uniform_factor,
)
