"""Domain randomization: functions `(key, sys) -> sys` that draw parameters of a robot.

`eqsim.DomainRandomization` calls them at every reset; `batched_env` makes a fixed batch of
robots from them; `presets` lists those of eqsim's environments. All is in `_randomizers`,
which uses models and environments; bridges and the command line import the presets.
"""

from ._randomizers import (
    AbstractRandomizer as AbstractRandomizer,
    batched_env as batched_env,
    chain as chain,
    choice as choice,
    gaussian as gaussian,
    masses as masses,
    motors as motors,
    presets as presets,
    uniform as uniform,
    uniform_factor as uniform_factor,
)
