"""Offline agents, which are trained on datasets."""

from .agents import (
    AbstractGoalAgent as AbstractGoalAgent,
    AbstractLevelAgent as AbstractLevelAgent,
    AbstractOfflineAgent as AbstractOfflineAgent,
    AWAC as AWAC,
    BC as BC,
    CQL as CQL,
    DiscreteCQL as DiscreteCQL,
    fine_tuned as fine_tuned,
    GCBC as GCBC,
    GCIQL as GCIQL,
    IQL as IQL,
    TD3BC as TD3BC,
)
from .data import GoalData as GoalData, Hindsight as Hindsight
from .runs import (
    as_learner as as_learner,
    check_data as check_data,
    learners as learners,
    Offline as Offline,
    offline_maker as offline_maker,
    Recorded as Recorded,
)
