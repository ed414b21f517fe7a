"""MuJoCo's actuators."""

from typing import Any

import numpy as np

from ...model import Activation, Actuators
from ._flags import Flags
from ._mujoco import engine
from ._names import element_names


_ACTIVATIONS = (
    Activation.NONE,
    Activation.INTEGRATOR,
    Activation.FILTER,
    Activation.FILTER_EXACT,
)


def read_actuators(model: Any, flags: Flags) -> Actuators:
    """Translates the actuators of a `mujoco.MjModel`, all of which act on joints."""
    mujoco = engine()
    fixed = model.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_FIXED)
    unbiased = model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_NONE)
    gain = np.array(model.actuator_gainprm[:, :3])
    gain[fixed, 1:] = 0
    bias = np.array(model.actuator_biasprm[:, :3])
    bias[unbiased] = 0
    idle = idle_actuators(model, flags)
    in_parent = model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINTINPARENT)
    return Actuators(
        names=element_names(model, "actuator"),
        joints=tuple(int(joint) for joint in model.actuator_trnid[:, 0]),
        in_parent=_bools(in_parent),
        activation=tuple(_ACTIVATIONS[kind] for kind in model.actuator_dyntype),
        ctrl_limited=_bools(model.actuator_ctrllimited * flags.clampctrl),
        force_limited=_bools(model.actuator_forcelimited),
        act_limited=_bools(model.actuator_actlimited),
        act_early=_bools(model.actuator_actearly),
        gear=np.where(idle[:, None], 0.0, model.actuator_gear),
        gain=gain,
        bias=bias,
        time_constant=model.actuator_dynprm[:, 0],
        ctrl_range=model.actuator_ctrlrange,
        force_range=model.actuator_forcerange,
        act_range=model.actuator_actrange,
    )


def idle_actuators(model: Any, flags: Flags) -> np.ndarray:
    """Marks the actuators that are switched off, all of them or by their group."""
    # Groups outside 0..30 cannot be switched off.
    group = model.actuator_group
    off = (model.opt.disableactuator >> np.clip(group, 0, 30)) & 1
    return ((group >= 0) & (group <= 30) & (off == 1)) | (not flags.actuation)


def _bools(values: np.ndarray) -> tuple[bool, ...]:
    return tuple(bool(value) for value in values)
