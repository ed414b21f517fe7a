"""Wrappers of environments: time limits, auto-reset, actions, observations, robots, skills.

A wrapper is an environment that holds another one. Files in reading order:

- `_wrapper`: base classes, and the lifetime of the state that a wrapper adds;
- `_episodes`: time limits, auto-reset, resets in advance, another robot in each episode;
- `_curriculum`: terrain whose difficulty follows what a robot reached;
- `_actions`: repeated, clipped, scaled and delayed actions;
- `_observations`: normalized, stacked, selected, noisy and privileged observations, images;
- `skills`: descriptors of behavior, skills and goals; the environments with descriptors;
- `_task_facts`: deployment, reflection, tracking and progress of tasks inside wrappers.

They use environments and `render`; the viewer, the conformance kit, bridges, the command line
and the agents import them.
"""

from ._actions import (
    AbstractConversion as AbstractConversion,
    ActionRepeat as ActionRepeat,
    check_scalable as check_scalable,
    ClipAction as ClipAction,
    DelayAction as DelayAction,
    ScaleAction as ScaleAction,
)
from ._curriculum import (
    TerrainCurriculum as TerrainCurriculum,
    Walked as Walked,
    WalkedDistance as WalkedDistance,
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
from ._task_facts import (
    deployment_of as deployment_of,
    progress_of as progress_of,
    reflection_of as reflection_of,
    tracking_of as tracking_of,
)
from ._wrapper import (
    AbstractCarryOver as AbstractCarryOver,
    AbstractStateful as AbstractStateful,
    AbstractStateless as AbstractStateless,
    AbstractWrapper as AbstractWrapper,
    Lifetime as Lifetime,
    nested_envs as nested_envs,
    next_episode as next_episode,
    next_options as next_options,
)
from .skills import (
    AbstractDescriptor as AbstractDescriptor,
    AbstractSkillPrior as AbstractSkillPrior,
    FeetContact as FeetContact,
    NormalSkills as NormalSkills,
    OneHotSkills as OneHotSkills,
    Reach as Reach,
    ReachState as ReachState,
    Skills as Skills,
    TorsoPosition as TorsoPosition,
    UniformSkills as UniformSkills,
)
