"""Environments: tasks with a robot, observations, rewards and termination
conditions."""

from ._arms import Pusher as Pusher, Reacher as Reacher
from ._env import (
    AbstractEnv as AbstractEnv,
    check_action as check_action,
    reset_options as reset_options,
    ResetOptions as ResetOptions,
    same_robot_options as same_robot_options,
    Timestep as Timestep,
)
from ._humanoids import Humanoid as Humanoid, HumanoidStandup as HumanoidStandup
from ._make import is_import_path as is_import_path, make as make
from ._pendulums import (
    InvertedDoublePendulum as InvertedDoublePendulum,
    InvertedPendulum as InvertedPendulum,
    PointMass as PointMass,
)
from ._task import AbstractTask as AbstractTask
from ._walkers import (
    Ant as Ant,
    HalfCheetah as HalfCheetah,
    Hopper as Hopper,
    Swimmer as Swimmer,
    Walker2d as Walker2d,
)
