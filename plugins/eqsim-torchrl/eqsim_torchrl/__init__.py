"""Environments of eqsim for PyTorch and TorchRL, with derivatives."""

try:
    import torch as _torch  # noqa: F401
    import torchrl as _torchrl  # noqa: F401
except ImportError as error:
    raise ImportError(
        "eqsim-torchrl needs PyTorch and TorchRL. Run `pip install torch torchrl`."
    ) from error

from ._env import EqsimEnv as EqsimEnv, EqsimWrapper as EqsimWrapper
from ._operator import Operator as Operator
from ._policies import from_torch as from_torch, TorchPolicy as TorchPolicy
from ._state import EnvState as EnvState
