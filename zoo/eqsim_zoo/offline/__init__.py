"""Agents that learn from recordings."""

from ._agent import (
    AbstractLevelAgent as AbstractLevelAgent,
    AbstractOfflineAgent as AbstractOfflineAgent,
)
from ._awac import AWAC as AWAC
from ._bc import BC as BC
from ._cql import CQL as CQL
from ._discrete_cql import DiscreteCQL as DiscreteCQL
from ._fine_tune import fine_tuned as fine_tuned
from ._gcbc import GCBC as GCBC
from ._gciql import GCIQL as GCIQL
from ._goals import GoalData as GoalData, Hindsight as Hindsight
from ._iql import IQL as IQL
from ._recorded import (
    as_learner as as_learner,
    check_data as check_data,
    learners as learners,
    NoEnvironment as NoEnvironment,
    Offline as Offline,
    offline_maker as offline_maker,
    Recorded as Recorded,
)
from ._td3_bc import TD3BC as TD3BC
