"""The agents, one file each."""

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
from .sac import (
    SAC as SAC,
    SACState as SACState,
)
from .shac import (
    SHAC as SHAC,
    SHACBatch as SHACBatch,
    SHACState as SHACState,
)
from .skill_agent import (
    AbstractSkillAgent as AbstractSkillAgent,
    SkillState as SkillState,
)
from .td3 import (
    TD3 as TD3,
    TD3State as TD3State,
)
from .td3_bc import (
    TD3BC as TD3BC,
    TD3BCState as TD3BCState,
)
