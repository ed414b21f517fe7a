"""Parts that adapters to other libraries share: checks, randomization by name, random
keys, and compiled functions of environments."""

from .._errors import (
    check_count as check_count,
    check_key as check_key,
    check_type as check_type,
    is_key as is_key,
    typed_key as typed_key,
)
from ._compiled import CompiledEnv as CompiledEnv
from ._environments import (
    check_no_auto_reset as check_no_auto_reset,
    randomized as randomized,
    Randomizer as Randomizer,
)
