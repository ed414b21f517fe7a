"""Adapters between eqsim's environments and those of other JAX libraries."""

from ._brax import (
    from_brax as from_brax,
    from_playground as from_playground,
    to_brax as to_brax,
)
from ._dm_env import to_dm_env as to_dm_env
from ._foreign import (
    AbstractLibrary as AbstractLibrary,
    Foreign as Foreign,
    ForeignState as ForeignState,
    NoPhysics as NoPhysics,
)
from ._gymnax import (
    Box as Box,
    from_gymnax as from_gymnax,
    GymnaxEnv as GymnaxEnv,
    GymnaxParams as GymnaxParams,
    GymnaxState as GymnaxState,
    to_gymnax as to_gymnax,
)
