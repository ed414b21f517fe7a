"""Environments of eqsim for Gymnasium.

Importing this module registers `eqsim/<Name>-v0` for every name in `eqsim.ENVS`.
Environments are imported when they are made.
"""

from ._build import ArraySpec as ArraySpec, from_space as from_space
from ._env import EqsimEnv as EqsimEnv, EqsimVectorEnv as EqsimVectorEnv
from ._registration import register_envs as register_envs


register_envs()
