"""Conversion of MuJoCo's keyframes."""

from typing import Any

import numpy as np

from ...model import Keyframes
from ._names import element_names


def read_keyframes(model: Any) -> Keyframes:
    """Convert the keyframes of a `mujoco.MjModel`, without their times."""
    return Keyframes(
        names=element_names(model, "key"),
        q=np.array(model.key_qpos),
        qd=np.array(model.key_qvel),
        act=np.array(model.key_act),
        ctrl=np.array(model.key_ctrl),
    )
