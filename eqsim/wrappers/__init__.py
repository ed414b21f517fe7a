"""Wrappers of environments: time limits, auto-reset, actions, observations, domain
randomization."""

from ._actions import (
    AbstractConversion as AbstractConversion,
    ActionRepeat as ActionRepeat,
    check_scalable as check_scalable,
    ClipAction as ClipAction,
    DelayAction as DelayAction,
    ScaleAction as ScaleAction,
)
from ._auto_reset import (
    AutoReset as AutoReset,
    ResetMode as ResetMode,
)
from ._described import (
    ant_omni as ant_omni,
    ant_uni as ant_uni,
    half_cheetah_uni as half_cheetah_uni,
    hopper_uni as hopper_uni,
    humanoid_omni as humanoid_omni,
    humanoid_uni as humanoid_uni,
    walker2d_uni as walker2d_uni,
)
from ._descriptors import (
    AbstractDescriptor as AbstractDescriptor,
    FeetContact as FeetContact,
    TorsoPosition as TorsoPosition,
)
from ._observations import (
    NoisyObservation as NoisyObservation,
    NormalizeObservation as NormalizeObservation,
    SelectObservation as SelectObservation,
    StackObservation as StackObservation,
    Statistics as Statistics,
)
from ._pixels import Pixels as Pixels
from ._priors import (
    AbstractPrior as AbstractPrior,
    NormalSkills as NormalSkills,
    OneHotSkills as OneHotSkills,
    UniformSkills as UniformSkills,
)
from ._privileged import PrivilegedObservation as PrivilegedObservation
from ._randomization import (
    DomainRandomization as DomainRandomization,
    robot as robot,
)
from ._reach import Reach as Reach, ReachState as ReachState
from ._reset_pool import pool_resets as pool_resets, PooledResets as PooledResets
from ._skill_wrapper import Skills as Skills
from ._time_limit import TimeLimit as TimeLimit
from ._wrapper import (
    AbstractPassThrough as AbstractPassThrough,
    AbstractStateful as AbstractStateful,
    AbstractStateless as AbstractStateless,
    AbstractWrapper as AbstractWrapper,
    layers as layers,
    Lifetime as Lifetime,
)
