"""Tasks: a robot, and what is observed, rewarded and ended."""

from ._ant import Ant as Ant
from ._env import (
    AbstractEnv as AbstractEnv,
    check_action as check_action,
    Timestep as Timestep,
)
from ._half_cheetah import HalfCheetah as HalfCheetah
from ._inverted_pendulum import InvertedPendulum as InvertedPendulum
from ._make import make as make
from ._options import reset_options as reset_options, ResetOptions as ResetOptions
from ._task import AbstractTask as AbstractTask
