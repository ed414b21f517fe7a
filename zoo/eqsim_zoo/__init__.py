"""Learning agents for eqsim.

Agents, `train`, `resume` and `evaluate` are here; `blocks` has the parts that agents are
made of, `vision` encoders, `data` datasets, `skills` what is done with learned skills, and
`runs` plans, folders, checkpoints and presets.
"""

from . import (
    agents as agents,
    blocks as blocks,
    data as data,
    runs as runs,
    skills as skills,
    training as training,
    vision as vision,
)
from .agents import (
    APG as APG,
    ARS as ARS,
    AWAC as AWAC,
    BC as BC,
    CQL as CQL,
    DADS as DADS,
    DIAYN as DIAYN,
    DiscreteCQL as DiscreteCQL,
    ES as ES,
    fine_tuned as fine_tuned,
    GCBC as GCBC,
    GCIQL as GCIQL,
    IQL as IQL,
    METRA as METRA,
    PPO as PPO,
    RecurrentPPO as RecurrentPPO,
    SAC as SAC,
    SHAC as SHAC,
    TD3 as TD3,
    TD3BC as TD3BC,
)
from .blocks.skill_space import RewardMix as RewardMix
from .runs import (
    load_run as load_run,
    Members as Members,
    Plan as Plan,
    Run as Run,
    RunFolder as RunFolder,
)
from .training import (
    evaluate as evaluate,
    Evaluation as Evaluation,
    Result as Result,
    resume as resume,
    train as train,
)


__eqsim_api__ = "1.0"
