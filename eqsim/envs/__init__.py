"""Environments: tasks with a robot, observations, rewards and termination
conditions."""

from ._ant import Ant as Ant
from ._env import (
    AbstractEnv as AbstractEnv,
    check_action as check_action,
    Timestep as Timestep,
)
from ._half_cheetah import HalfCheetah as HalfCheetah
from ._hopper import Hopper as Hopper
from ._humanoid import Humanoid as Humanoid
from ._humanoid_standup import HumanoidStandup as HumanoidStandup
from ._import import (
    check_not_imported as check_not_imported,
    is_import_path as is_import_path,
)
from ._inverted_double_pendulum import InvertedDoublePendulum as InvertedDoublePendulum
from ._inverted_pendulum import InvertedPendulum as InvertedPendulum
from ._make import make as make
from ._options import (
    reset_options as reset_options,
    ResetOptions as ResetOptions,
    same_robot_options as same_robot_options,
)
from ._point_mass import PointMass as PointMass
from ._pusher import Pusher as Pusher
from ._reacher import Reacher as Reacher
from ._swimmer import Swimmer as Swimmer
from ._task import AbstractTask as AbstractTask
from ._walker2d import Walker2d as Walker2d
