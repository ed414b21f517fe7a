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
from ._episodes import (
    AutoReset as AutoReset,
    DomainRandomization as DomainRandomization,
    episode_robot as episode_robot,
    pool_resets as pool_resets,
    PooledResets as PooledResets,
    ResetMode as ResetMode,
    TimeLimit as TimeLimit,
)
from ._observations import (
    NoisyObservation as NoisyObservation,
    NormalizeObservation as NormalizeObservation,
    Pixels as Pixels,
    PrivilegedObservation as PrivilegedObservation,
    RunningStatistics as RunningStatistics,
    SelectObservation as SelectObservation,
    StackObservation as StackObservation,
)
from ._skills import (
    AbstractDescriptor as AbstractDescriptor,
    AbstractSkillPrior as AbstractSkillPrior,
    ant_omni as ant_omni,
    ant_uni as ant_uni,
    FeetContact as FeetContact,
    half_cheetah_uni as half_cheetah_uni,
    hopper_uni as hopper_uni,
    humanoid_omni as humanoid_omni,
    humanoid_uni as humanoid_uni,
    NormalSkills as NormalSkills,
    OneHotSkills as OneHotSkills,
    Reach as Reach,
    ReachState as ReachState,
    Skills as Skills,
    TorsoPosition as TorsoPosition,
    UniformSkills as UniformSkills,
    walker2d_uni as walker2d_uni,
)
from ._wrapper import (
    AbstractStateful as AbstractStateful,
    AbstractStateless as AbstractStateless,
    AbstractWrapper as AbstractWrapper,
    Lifetime as Lifetime,
    nested_envs as nested_envs,
)
