"""Random changes of a robot, `(key, sys) -> sys`, as values that can be composed.

They are made for `eqsim.DomainRandomization`, and work without it as well: under
`eqx.filter_vmap` over keys they make a batch of robots.
"""

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
