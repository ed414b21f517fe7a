"""Building blocks of agents: networks, replay, returns, collection of steps, optimizer steps."""

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
    collect as collect,
    flatten_time as flatten_time,
    reset_batch as reset_batch,
    reset_envs as reset_envs,
    Running as Running,
)
from ._differentiable import (
    GradientEnvs as GradientEnvs,
    rollout_gradient as rollout_gradient,
    start_gradient_envs as start_gradient_envs,
)
from ._distributions import (
    Categorical as Categorical,
    log_slope as log_slope,
    Normal as Normal,
    NormalMixture as NormalMixture,
    TanhNormal as TanhNormal,
)
from ._environments import (
    evaluation_env as evaluation_env,
    evaluation_key as evaluation_key,
    member_key as member_key,
    pool_key as pool_key,
    training_env as training_env,
)
from ._episodes import (
    Episodes as Episodes,
)
from ._heads import (
    Choice as Choice,
    ChoiceCritic as ChoiceCritic,
    ChoicePolicy as ChoicePolicy,
    GaussianPolicy as GaussianPolicy,
    select_action as select_action,
    StateValue as StateValue,
)
from ._hyperparameters import (
    as_scalar as as_scalar,
    cast_floats as cast_floats,
    check_positive as check_positive,
    cosine_schedule as cosine_schedule,
    linear_schedule as linear_schedule,
    static as static,
)
from ._learner import (
    Learner as Learner,
)
from ._levels import (
    check_levels as check_levels,
    Levels as Levels,
)
from ._networks import (
    Critic as Critic,
    Ensemble as Ensemble,
    LayerNorm as LayerNorm,
    Linear as Linear,
    MLP as MLP,
    target_update as target_update,
)
from ._off_policy import (
    AbstractOffPolicy as AbstractOffPolicy,
    acts_at_random as acts_at_random,
    critic_step as critic_step,
    Memory as Memory,
    practise as practise,
    remember as remember,
    several as several,
)
from ._parallel import (
    check_divisible as check_divisible,
    device_mesh as device_mesh,
    map_shards as map_shards,
    num_shards as num_shards,
    replicate as replicate,
    shard_batch as shard_batch,
)
from ._policies import (
    Actor as Actor,
    ActorCritic as ActorCritic,
    add_noise as add_noise,
    bounded_log_std as bounded_log_std,
    DeterministicPolicy as DeterministicPolicy,
    Explorer as Explorer,
    sample_actions as sample_actions,
    StochasticPolicy as StochasticPolicy,
)
from ._populations import (
    evaluate_pairs as evaluate_pairs,
    Perturbations as Perturbations,
)
from ._replay import (
    Replay as Replay,
    Transition as Transition,
)
from ._returns import (
    discounted_returns as discounted_returns,
    gae as gae,
    td_lambda as td_lambda,
    vtrace as vtrace,
)
from ._skill_observations import (
    Layout as Layout,
    SkillPolicy as SkillPolicy,
    World as World,
)
from ._statistics import (
    denormalize as denormalize,
    init_statistics as init_statistics,
    normalize as normalize,
    update_statistics as update_statistics,
)
