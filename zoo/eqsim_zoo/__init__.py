"""Learning agents for eqsim."""

from typing import Final

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


__eqsim_api__: Final = "1.0"
