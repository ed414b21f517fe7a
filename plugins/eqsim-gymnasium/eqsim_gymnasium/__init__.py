"""Environments of eqsim for Gymnasium.

Importing this module registers `eqsim/<Name>-v0` for every name in `eqsim.ENVS`.
Environments are imported when they are made.
"""

from ._env import EqsimEnv as EqsimEnv
from ._registration import register_envs as register_envs
from ._spaces import ArraySpec as ArraySpec, from_space as from_space
from ._vector import EqsimVectorEnv as EqsimVectorEnv


register_envs()
