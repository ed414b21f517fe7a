"""Learning agents for eqsim."""

from typing import Final

from ._apg import APG as APG
from ._ars import ARS as ARS
from ._es import ES as ES
from ._networks import (
    Critic as Critic,
    Ensemble as Ensemble,
    Linear as Linear,
    MLP as MLP,
    target_update as target_update,
)
from ._parallel import device_mesh as device_mesh
from ._ppo import PPO as PPO
from ._replay import Replay as Replay, Transition as Transition
from ._sac import SAC as SAC
from ._shac import SHAC as SHAC
from ._td3 import TD3 as TD3


__eqsim_api__: Final = "1.0"
