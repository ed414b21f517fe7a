"""Building blocks of agents: networks, replay, returns, collection of steps."""

from ._acting import acts_on_batches as acts_on_batches
from ._actions import (
    check_action_bounds as check_action_bounds,
    scale as scale,
    Squash as Squash,
    squash as squash,
    unscale as unscale,
)
from ._collect import (
    add_steps as add_steps,
    check_env as check_env,
    check_observations as check_observations,
    collect as collect,
    flatten_time as flatten_time,
    reset_envs as reset_envs,
    Running as Running,
)
from ._distributions import (
    Categorical as Categorical,
    Normal as Normal,
    TanhNormal as TanhNormal,
)
from ._environments import training_env as training_env
from ._episodes import Episodes as Episodes
from ._hyperparameters import (
    as_scalar as as_scalar,
    cast_floats as cast_floats,
    check_num_levels as check_num_levels,
    check_positive as check_positive,
    cosine_schedule as cosine_schedule,
    linear_schedule as linear_schedule,
    static as static,
)
from ._learner import Learner as Learner, mean_metrics as mean_metrics
from ._losses import (
    clipped_policy_loss as clipped_policy_loss,
    clipped_value_loss as clipped_value_loss,
    lowest_value as lowest_value,
    td_loss as td_loss,
    td_target as td_target,
)
from ._networks import (
    Activation as Activation,
    Critic as Critic,
    Ensemble as Ensemble,
    Linear as Linear,
    MLP as MLP,
    target_update as target_update,
)
from ._off_policy import (
    AbstractOffPolicy as AbstractOffPolicy,
    collect_to_replay as collect_to_replay,
    explores_uniformly as explores_uniformly,
    init_memory as init_memory,
    init_running as init_running,
    Memory as Memory,
    scan_updates as scan_updates,
)
from ._parallel import (
    check_divisible as check_divisible,
    device_mesh as device_mesh,
    replicate as replicate,
    shard_batch as shard_batch,
)
from ._policies import (
    Actor as Actor,
    ActorCritic as ActorCritic,
    add_noise as add_noise,
    DeterministicPolicy as DeterministicPolicy,
    Explorer as Explorer,
    sample_actions as sample_actions,
    StochasticPolicy as StochasticPolicy,
)
from ._ranges import check_ranges as check_ranges
from ._replay import Replay as Replay, Transition as Transition
from ._returns import (
    discounted_returns as discounted_returns,
    gae as gae,
    td_lambda as td_lambda,
    vtrace as vtrace,
)
from ._skill_dynamics import (
    predictability as predictability,
    SkillDynamics as SkillDynamics,
)
from ._skill_observations import SkillPolicy as SkillPolicy, SkillSpace as SkillSpace
from ._skills import (
    log_density as log_density,
    Mix as Mix,
    SkillRow as SkillRow,
    with_reward as with_reward,
)
from ._statistics import (
    init_statistics as init_statistics,
    normalize as normalize,
    ObservationStatistics as ObservationStatistics,
    update_statistics as update_statistics,
)
