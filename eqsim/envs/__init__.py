"""Tasks: a robot, and what is observed, rewarded and ended."""

from ._ant import Ant as Ant
from ._env import AbstractEnv as AbstractEnv, Timestep as Timestep
from ._half_cheetah import HalfCheetah as HalfCheetah
from ._inverted_pendulum import InvertedPendulum as InvertedPendulum
from ._make import make as make
