"""Datasets of recorded steps: recording, import, files and sampling."""

from .dataset import (
    About as About,
    Dataset as Dataset,
    from_trajectory as from_trajectory,
    joined as joined,
    with_scaled_rewards as with_scaled_rewards,
)
from .files import load_data as load_data, save_data as save_data
from .foreign import from_minari as from_minari
from .goals import (
    ACHIEVED as ACHIEVED,
    check_hindsight as check_hindsight,
    DESIRED as DESIRED,
    goal_of as goal_of,
    GoalData as GoalData,
    Hindsight as Hindsight,
    OBSERVATION as OBSERVATION,
    observation_of as observation_of,
)
from .packing import (
    check_fits as check_fits,
    HostArray as HostArray,
    is_host as is_host,
    take as take,
    to_device as to_device,
)
from .recording import (
    noisy_policy as noisy_policy,
    RandomPolicy as RandomPolicy,
    record as record,
)
