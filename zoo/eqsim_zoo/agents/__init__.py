"""The agents, one file each, and what families of agents share.

Online agents: `sac.py` and `td3.py` on `blocks/replay.py`, `ppo.py` (whose settings and losses
`recurrent_ppo.py` shares), `es.py` and `ars.py` without derivatives, `apg.py` and `shac.py` with
derivatives of the physics. Agents of skills: `dads.py`, `diayn.py` and `metra.py` on
`skill_agent.py`, around a SAC. Offline agents: `bc.py`, `awac.py`, `td3_bc.py`, `iql.py`, `cql.py`
and `discrete_cql.py` on `offline_agent.py`, and `goal_agents.py` around them. Agents import
`blocks`, `vision` and `data`.
"""

from .apg import (
    APG as APG,
    APGState as APGState,
)
from .ars import (
    ARS as ARS,
    ARSState as ARSState,
)
from .awac import (
    AWAC as AWAC,
    AWACState as AWACState,
)
from .bc import (
    BC as BC,
    BCState as BCState,
)
from .cql import (
    CQL as CQL,
    CQLState as CQLState,
    fine_tuned as fine_tuned,
)
from .dads import DADS as DADS
from .diayn import (
    DIAYN as DIAYN,
    Discriminator as Discriminator,
)
from .discrete_cql import (
    DiscreteCQL as DiscreteCQL,
    DiscreteCQLState as DiscreteCQLState,
)
from .es import (
    ES as ES,
    ESState as ESState,
)
from .goal_agents import (
    AbstractGoalAgent as AbstractGoalAgent,
    GCBC as GCBC,
    GCIQL as GCIQL,
)
from .iql import (
    IQL as IQL,
    IQLState as IQLState,
)
from .metra import METRA as METRA, Representation as Representation
from .offline_agent import (
    AbstractLevelAgent as AbstractLevelAgent,
    AbstractOfflineAgent as AbstractOfflineAgent,
    AbstractOfflineCritic as AbstractOfflineCritic,
)
from .ppo import (
    AbstractProximalAgent as AbstractProximalAgent,
    PPO as PPO,
    PPOBatch as PPOBatch,
    PPOState as PPOState,
)
from .recurrent_ppo import (
    RecurrentPPO as RecurrentPPO,
    RecurrentPPOBatch as RecurrentPPOBatch,
    RecurrentPPOState as RecurrentPPOState,
)
from .sac import SAC as SAC, SACLearner as SACLearner
from .shac import (
    SHAC as SHAC,
    SHACBatch as SHACBatch,
    SHACState as SHACState,
)
from .skill_agent import (
    AbstractSkillAgent as AbstractSkillAgent,
    SkillLearner as SkillLearner,
)
from .td3 import TD3 as TD3, TD3Learner as TD3Learner
from .td3_bc import (
    TD3BC as TD3BC,
    TD3BCState as TD3BCState,
)
