"""Datasets of recorded steps: recording, import, files and sampling."""

from ._about import About as About
from ._behavior import (
    noisy_policy as noisy_policy,
    RandomPolicy as RandomPolicy,
)
from ._checks import check_fits as check_fits
from ._dataset import Dataset as Dataset
from ._files import load_data as load_data, save_data as save_data
from ._goals import (
    ACHIEVED as ACHIEVED,
    check_hindsight as check_hindsight,
    DESIRED as DESIRED,
    goal_of as goal_of,
    GoalData as GoalData,
    Hindsight as Hindsight,
    OBSERVATION as OBSERVATION,
    observation_of as observation_of,
)
from ._host import (
    HostArray as HostArray,
    is_host as is_host,
    take as take,
    to_device as to_device,
)
from ._join import joined as joined, with_scaled_rewards as with_scaled_rewards
from ._minari import from_minari as from_minari
from ._record import record as record
from ._trajectory import from_trajectory as from_trajectory
