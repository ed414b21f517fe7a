"""Building blocks of agents.

The files, in reading order:

- `hyperparameters.py`: fields of agents, their checks, ranges and schedules;
- `parallel.py`: batches on several devices;
- `observations.py`: vectors, images and dictionaries, and their running statistics;
- `networks.py`: networks, what they see, and `Learner`, a network with its optimizer;
- `policies.py`: distributions, action ranges and policies;
- `collecting.py`: environments of training, and `collect`, which steps them;
- `returns.py`: returns and advantages;
- `replay.py`: the replay buffer and what off-policy agents share;
- `recurrent.py`: policies with memory; `populations.py`: evaluation of many policies;
- `skill_space.py`: skills in observations and rewards.

Agents, `vision`, `data` and everything above import the modules directly; the names below are those
that a training loop or an agent of your own needs. The modules import nothing of the package
outside `blocks`.
"""

from .collecting import (
    collect as collect,
    flatten_time as flatten_time,
    reset_batch as reset_batch,
    reset_envs as reset_envs,
    training_env as training_env,
    Transition as Transition,
)
from .hyperparameters import (
    as_scalar as as_scalar,
    same_precision as same_precision,
    static as static,
)
from .networks import (
    Critic as Critic,
    Learner as Learner,
    mean_metrics as mean_metrics,
    MLP as MLP,
    target_update as target_update,
    Vectors as Vectors,
)
from .observations import (
    acts_on_batches as acts_on_batches,
    init_statistics as init_statistics,
    normalize as normalize,
    update_statistics as update_statistics,
)
from .parallel import device_mesh as device_mesh
from .policies import (
    ActorCritic as ActorCritic,
    DeterministicPolicy as DeterministicPolicy,
    Normal as Normal,
    scale_action as scale_action,
    Squash as Squash,
    StochasticPolicy as StochasticPolicy,
)
from .replay import Replay as Replay, td_loss as td_loss, td_target as td_target
from .returns import gae as gae
