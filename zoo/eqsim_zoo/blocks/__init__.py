"""Building blocks of agents: networks, replay, returns, collection of steps."""

from ..agents.dads import (
    predictability as predictability,
    SkillDynamics as SkillDynamics,
)
from .collecting import (
    add_steps as add_steps,
    check_env as check_env,
    check_observations as check_observations,
    collect as collect,
    flatten_time as flatten_time,
    reset_envs as reset_envs,
    Running as Running,
    training_env as training_env,
)
from .hyperparameters import (
    as_scalar as as_scalar,
    cast_floats as cast_floats,
    check_num_levels as check_num_levels,
    check_positive as check_positive,
    check_ranges as check_ranges,
    cosine_schedule as cosine_schedule,
    linear_schedule as linear_schedule,
    static as static,
)
from .networks import (
    Activation as Activation,
    Critic as Critic,
    Ensemble as Ensemble,
    Learner as Learner,
    Linear as Linear,
    mean_metrics as mean_metrics,
    MLP as MLP,
    target_update as target_update,
)
from .observations import (
    acts_on_batches as acts_on_batches,
    init_statistics as init_statistics,
    normalize as normalize,
    ObservationStatistics as ObservationStatistics,
    update_statistics as update_statistics,
)
from .parallel import (
    check_divisible as check_divisible,
    device_mesh as device_mesh,
    replicate as replicate,
    shard_batch as shard_batch,
)
from .policies import (
    Actor as Actor,
    ActorCritic as ActorCritic,
    add_noise as add_noise,
    Categorical as Categorical,
    check_action_bounds as check_action_bounds,
    DeterministicPolicy as DeterministicPolicy,
    Explorer as Explorer,
    Normal as Normal,
    sample_actions as sample_actions,
    scale as scale,
    Squash as Squash,
    squash as squash,
    StochasticPolicy as StochasticPolicy,
    TanhNormal as TanhNormal,
    unscale as unscale,
)
from .replay import (
    AbstractOffPolicy as AbstractOffPolicy,
    clipped_policy_loss as clipped_policy_loss,
    clipped_value_loss as clipped_value_loss,
    collect_to_replay as collect_to_replay,
    explores_uniformly as explores_uniformly,
    init_memory as init_memory,
    init_running as init_running,
    lowest_value as lowest_value,
    Memory as Memory,
    Replay as Replay,
    scan_updates as scan_updates,
    td_loss as td_loss,
    td_target as td_target,
    Transition as Transition,
)
from .returns import (
    discounted_returns as discounted_returns,
    gae as gae,
    td_lambda as td_lambda,
    vtrace as vtrace,
)
from .skill_space import (
    Episodes as Episodes,
    log_density as log_density,
    Mix as Mix,
    SkillPolicy as SkillPolicy,
    SkillRow as SkillRow,
    SkillSpace as SkillSpace,
    with_reward as with_reward,
)
