"""Parts that adapters to other libraries share: checks, randomization by name, and
compiled functions of environments."""

from ._compiled import CompiledEnv as CompiledEnv
from ._environments import (
    check_no_auto_reset as check_no_auto_reset,
    randomized as randomized,
    Randomizer as Randomizer,
)
