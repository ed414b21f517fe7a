"""The agents, one file each."""

from ._apg import (
    APG as APG,
    APGState as APGState,
)
from ._ars import (
    ARS as ARS,
    ARSState as ARSState,
)
from ._awac import (
    AWAC as AWAC,
    AWACState as AWACState,
)
from ._bc import (
    BC as BC,
    BCState as BCState,
)
from ._cql import (
    CQL as CQL,
    CQLState as CQLState,
)
from ._dads import DADS as DADS
from ._diayn import (
    DIAYN as DIAYN,
    Discriminator as Discriminator,
)
from ._discrete_cql import (
    DiscreteCQL as DiscreteCQL,
    DiscreteCQLState as DiscreteCQLState,
)
from ._es import (
    ES as ES,
    ESState as ESState,
)
from ._fine_tune import (
    fine_tuned as fine_tuned,
)
from ._gcbc import (
    GCBC as GCBC,
)
from ._gciql import (
    GCIQL as GCIQL,
)
from ._goal_agent import (
    AbstractGoalAgent as AbstractGoalAgent,
)
from ._iql import (
    IQL as IQL,
    IQLState as IQLState,
)
from ._metra import METRA as METRA, Representation as Representation
from ._offline import (
    AbstractLevelAgent as AbstractLevelAgent,
    AbstractOfflineAgent as AbstractOfflineAgent,
)
from ._ppo import (
    PPO as PPO,
    PPOBatch as PPOBatch,
    PPOState as PPOState,
)
from ._proximal import AbstractProximalAgent as AbstractProximalAgent
from ._recurrent_ppo import (
    RecurrentPPO as RecurrentPPO,
    RecurrentPPOBatch as RecurrentPPOBatch,
    RecurrentPPOState as RecurrentPPOState,
)
from ._sac import (
    SAC as SAC,
    SACState as SACState,
)
from ._shac import (
    SHAC as SHAC,
    SHACBatch as SHACBatch,
    SHACState as SHACState,
)
from ._skill_agent import (
    AbstractSkillAgent as AbstractSkillAgent,
    SkillState as SkillState,
)
from ._td3 import (
    TD3 as TD3,
    TD3State as TD3State,
)
from ._td3_bc import (
    TD3BC as TD3BC,
    TD3BCState as TD3BCState,
)
