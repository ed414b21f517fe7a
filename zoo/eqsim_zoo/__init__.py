"""Learning agents for eqsim.

Agents, `Run`, `train`, `resume`, `load_run` and `evaluate` are here. The packages, from the
lowest: `blocks` has the parts that agents are made of, `vision` encoders, `data` datasets,
`agents` one file per agent, `runs` what a run is, with checkpoints and presets; `training`,
the loop with its callbacks, `skills`, what is done with learned skills, and `export`, policies
that leave the simulator, are on `runs` and do not import each other. `_cli` has the commands.
No package imports from a higher one, and none imports private names of eqsim.
`docs/anatomy.md` follows `train` to an agent.
"""

from . import (
    agents as agents,
    blocks as blocks,
    data as data,
    export as export,
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
from .runs import Offline as Offline, Run as Run
from .training import (
    evaluate as evaluate,
    Evaluation as Evaluation,
    load_run as load_run,
    Result as Result,
    resume as resume,
    train as train,
)


__eqsim_api__ = "1.0"
