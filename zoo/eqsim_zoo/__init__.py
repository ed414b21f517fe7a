"""Learning agents for eqsim."""

from ._apg import APG as APG
from ._ars import ARS as ARS
from ._checkpoint import (
    CheckpointError as CheckpointError,
    load_checkpoint as load_checkpoint,
    read_about as read_about,
    save_checkpoint as save_checkpoint,
)
from ._curves import write_curves as write_curves
from ._dads import DADS as DADS, SkillDynamics as SkillDynamics
from ._diayn import DIAYN as DIAYN, Discriminator as Discriminator
from ._distributions import (
    Categorical as Categorical,
    Normal as Normal,
    NormalMixture as NormalMixture,
    TanhNormal as TanhNormal,
)
from ._environments import training_env as training_env
from ._es import ES as ES
from ._evaluate import evaluate as evaluate, Evaluation as Evaluation
from ._folder import load_run as load_run, Run as Run
from ._learner import Learner as Learner
from ._loggers import (
    AbstractLogger as AbstractLogger,
    TensorBoard as TensorBoard,
    WeightsAndBiases as WeightsAndBiases,
)
from ._members import Members as Members
from ._metrics import read_metrics as read_metrics
from ._networks import (
    Critic as Critic,
    Ensemble as Ensemble,
    Linear as Linear,
    MLP as MLP,
    target_update as target_update,
)
from ._parallel import device_mesh as device_mesh
from ._plan import Counters as Counters, Plan as Plan
from ._ppo import PPO as PPO
from ._presets import (
    find_preset as find_preset,
    Preset as Preset,
    presets as presets,
    variants as variants,
)
from ._progress import RunWarning as RunWarning
from ._recipe import Recipe as Recipe
from ._replay import Replay as Replay, Transition as Transition
from ._returns import (
    discounted_returns as discounted_returns,
    gae as gae,
    td_lambda as td_lambda,
    vtrace as vtrace,
)
from ._sac import SAC as SAC
from ._shac import SHAC as SHAC
from ._skill_agent import (
    AbstractSkillAgent as AbstractSkillAgent,
    Mix as Mix,
    SkillRow as SkillRow,
    SkillState as SkillState,
)
from ._skill_paths import (
    default_skills as default_skills,
    follow_skills as follow_skills,
    SkillPaths as SkillPaths,
)
from ._skill_pictures import write_goals as write_goals, write_skills as write_skills
from ._skill_planning import reach_goals as reach_goals, Reached as Reached
from ._td3 import TD3 as TD3
from ._train import Result as Result, resume as resume, train as train
from .data import Dataset as Dataset, load_data as load_data


__eqsim_api__ = "1.0"
