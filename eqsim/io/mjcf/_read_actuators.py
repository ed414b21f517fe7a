"""Reading of actuators and the parameters of their laws."""

from typing import Any

import numpy as np

from ...model import (
    Activation,
    ActivationState,
    Actuators,
    Bias,
    Control,
    DCMotors,
    Gain,
    MuscleActivations,
    Muscles,
    PIDs,
    Transmission,
)
from ...model.actuators import velocity_gains
from .mujoco_names import element_names, engine, Flags


# Parameters of muscles, DC motors and PID servos: conversion from and to MuJoCo's
# arrays.
#
# The columns of `gainprm`, `biasprm` and `dynprm` are those of `mju_muscleGain`,
# `mj_fwdActuation` and `mjs_setToDCMotor`.


# Columns 2 and 3 are the peak force, or -1, and its scale.
_MUSCLE = {
    "force": 2,
    "scale": 3,
    "shortest": 4,
    "longest": 5,
    "max_speed": 6,
    "max_passive": 7,
    "max_lengthening": 8,
}
_MUSCLE_ACTIVATION = {"rise": 0, "fall": 1, "smoothing": 2}
_PID = {"integral_gain": ("gainprm", 0), "max_integral": ("dynprm", 0)}
_PID["max_slew"] = ("dynprm", 1)
_MOTOR = {
    "resistance": ("gainprm", 0),
    "torque_constant": ("gainprm", 1),
    "temperature_coefficient": ("gainprm", 2),
    "reference_temperature": ("gainprm", 3),
    "proportional": ("gainprm", 4),
    "integral": ("gainprm", 5),
    "derivative": ("gainprm", 6),
    "max_voltage": ("gainprm", 7),
    "time_constant": ("dynprm", 0),
    "max_current_rate": ("dynprm", 1),
    "thermal_resistance": ("dynprm", 2),
    "thermal_capacitance": ("dynprm", 3),
    "ambient_temperature": ("dynprm", 4),
    "bristle_stiffness": ("dynprm", 5),
    "bristle_damping": ("dynprm", 6),
    "max_slew": ("dynprm", 7),
    "max_integral": ("dynprm", 8),
    "cogging": ("biasprm", 0),
    "cogging_periods": ("biasprm", 1),
    "cogging_phase": ("biasprm", 2),
    "coulomb_friction": ("biasprm", 3),
    "static_friction": ("biasprm", 4),
    "stribeck_velocity": ("biasprm", 5),
}


def read_muscles(model: Any, gains, biases) -> Muscles | None:
    """Read force laws of muscles. Equal parameters of gain and bias share one row."""
    parameters: list[np.ndarray] = []
    owners: list[int] = []
    rows = [[-1] * model.nactuator, [-1] * model.nactuator]
    for k, kinds in enumerate(zip(gains, biases)):
        for side, kind in enumerate(kinds):
            if kind not in (Gain.MUSCLE, Bias.MUSCLE):
                continue
            source = (model.actuator_gainprm, model.actuator_biasprm)[side]
            own = np.array(source[k, :9])
            if side and rows[0][k] >= 0 and np.array_equal(own, parameters[-1]):
                rows[1][k] = rows[0][k]
                continue
            rows[side][k] = len(owners)
            parameters.append(own)
            owners.append(k)
    if not owners:
        return None
    table = np.stack(parameters)
    return Muscles(
        gain_rows=tuple(rows[0]),
        bias_rows=tuple(rows[1]),
        owners=tuple(owners),
        scaled=tuple(bool(force < 0) for force in table[:, 2]),
        length_range=model.actuator_lengthrange[model.actuator_outadr[owners]],
        range=table[:, :2],
        **{name: table[:, column] for name, column in _MUSCLE.items()},
    )


def read_muscle_activations(model: Any, activation) -> MuscleActivations | None:
    """Read activation dynamics of muscles."""
    owners = [k for k, kind in enumerate(activation) if kind is Activation.MUSCLE]
    if not owners:
        return None
    table = model.actuator_dynprm[owners]
    numbers = {name: table[:, i] for name, i in _MUSCLE_ACTIVATION.items()}
    return MuscleActivations(owners=tuple(owners), **numbers)


def read_motors(model: Any, gains) -> DCMotors | None:
    """Read DC motors."""
    owners = [k for k, kind in enumerate(gains) if kind is Gain.DC_MOTOR]
    if not owners:
        return None
    return DCMotors(owners=tuple(owners), **_columns(model, owners, _MOTOR))


def read_pids(model: Any, gains) -> PIDs | None:
    """Read PID servos."""
    owners = [k for k, kind in enumerate(gains) if kind is Gain.PID]
    if not owners:
        return None
    return PIDs(owners=tuple(owners), **_columns(model, owners, _PID))


def _columns(model: Any, owners: list[int], places) -> dict[str, np.ndarray]:
    arrays = {
        "gainprm": model.actuator_gainprm,
        "biasprm": model.actuator_biasprm,
        "dynprm": model.actuator_dynprm,
    }
    return {name: arrays[key][owners, i] for name, (key, i) in places.items()}


def law_parameters(actuators: Actuators, k: int) -> dict[str, np.ndarray]:
    """Return MuJoCo's `gainprm`, `biasprm` and `dynprm` of an actuator."""
    arrays = {key: np.zeros(10) for key in ("gainprm", "biasprm", "dynprm")}
    arrays["gainprm"][:3] = actuators.gain[k]
    arrays["biasprm"][:3] = actuators.bias[k]
    arrays["dynprm"][0] = actuators.time_constant[k]
    muscles, owners = actuators.muscles, actuators.muscle_activations
    if muscles is not None:
        for key, rows in (
            ("gainprm", muscles.gain_rows),
            ("biasprm", muscles.bias_rows),
        ):
            if rows[k] >= 0:
                arrays[key][:9] = _muscle_row(muscles, rows[k])
    if owners is not None and k in owners.owners:
        row = owners.owners.index(k)
        for name, i in _MUSCLE_ACTIVATION.items():
            arrays["dynprm"][i] = vars(owners)[name][row]
    for family, places in ((actuators.motors, _MOTOR), (actuators.pids, _PID)):
        if family is not None and k in family.owners:
            row = family.owners.index(k)
            for name, (key, i) in places.items():
                arrays[key][i] = vars(family)[name][row]
    return arrays


def _muscle_row(muscles: Muscles, row: int) -> np.ndarray:
    numbers = [*muscles.range[row], *(vars(muscles)[name][row] for name in _MUSCLE)]
    if muscles.scaled[row]:
        numbers[2] = -1.0
    return np.array(numbers)


# Conversion of MuJoCo's actuators.


_ACTIVATIONS = (
    Activation.NONE,
    Activation.INTEGRATOR,
    Activation.FILTER,
    Activation.FILTER_EXACT,
    Activation.MUSCLE,
    Activation.DC_MOTOR,
    Activation.PID,
)
_TRANSMISSIONS = (
    Transmission.JOINT,
    Transmission.JOINT_IN_PARENT,
    Transmission.SLIDER_CRANK,
    Transmission.TENDON,
    Transmission.SITE,
    Transmission.BODY,
    Transmission.ORIENTATION,
)
# MuJoCo's fixed gains and absent biases are affine ones with zero coefficients.
_GAINS = (
    Gain.AFFINE,
    Gain.AFFINE,
    Gain.MUSCLE,
    Gain.DC_MOTOR,
    Gain.ORIENTATION,
    Gain.PID,
)
_BIASES = (Bias.AFFINE, Bias.AFFINE, Bias.MUSCLE, Bias.DC_MOTOR, Bias.ORIENTATION)


def read_actuators(model: Any, flags: Flags) -> Actuators:
    """Convert the actuators of a `mujoco.MjModel`."""
    gains = tuple(_GAINS[kind] for kind in model.actuator_gaintype)
    biases = tuple(_BIASES[kind] for kind in model.actuator_biastype)
    gain, bias = _affine(model, gains, biases)
    activation = tuple(_ACTIVATIONS[kind] for kind in model.actuator_dyntype)
    own = (Activation.MUSCLE, Activation.DC_MOTOR, Activation.PID)
    laws = (Gain.DC_MOTOR, Gain.PID)
    has_own = [a in own or g in laws for a, g in zip(activation, gains)]
    damping, damping_poly, armature = _passive(model, flags)
    crank = Transmission.SLIDER_CRANK
    transmissions = tuple(_TRANSMISSIONS[kind] for kind in model.actuator_trntype)
    return Actuators(
        names=element_names(model, "actuator"),
        transmissions=transmissions,
        targets=tuple(map(_target, transmissions, model.actuator_trnid.tolist())),
        gains=gains,
        biases=biases,
        activation=activation,
        inputs=tuple(_inputs(model, k) for k in range(model.nactuator)),
        states=tuple(_states(model, k) for k in range(model.nactuator)),
        wraps=_bools(wrapping_servos(model)),
        enabled=_bools(~idle_actuators(model, flags)),
        active=flags.actuation,
        has_velocity_gain=velocity_gains(gains, biases, gain, bias),
        ctrl_limited=_bools(model.actuator_ctrllimited * flags.clampctrl),
        force_limited=_bools(model.actuator_forcelimited),
        act_limited=_bools(model.actuator_actlimited),
        act_early=_bools(model.actuator_actearly),
        gear=model.actuator_gear,
        gain=gain,
        bias=bias,
        time_constant=np.where(has_own, 1.0, model.actuator_dynprm[:, 0]),
        ctrl_range=model.actuator_ctrlrange,
        force_range=model.actuator_forcerange,
        act_range=model.actuator_actrange,
        damping=damping,
        damping_poly=damping_poly,
        armature=armature,
        crank_length=model.actuator_cranklength if crank in transmissions else None,
        muscles=read_muscles(model, gains, biases),
        muscle_activations=read_muscle_activations(model, activation),
        motors=read_motors(model, gains),
        pids=read_pids(model, gains),
    )


def _affine(model: Any, gains, biases) -> tuple[np.ndarray, np.ndarray]:
    """Read affine gains and biases; zeros for laws with other parameters."""
    mujoco = engine()
    gain = np.array(model.actuator_gainprm[:, :3])
    bias = np.array(model.actuator_biasprm[:, :3])
    fixed = model.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_FIXED)
    single = [kind is Gain.ORIENTATION for kind in gains]
    gain[fixed | np.array(single, bool), 1:] = 0
    gain[[kind not in (Gain.AFFINE, Gain.ORIENTATION) for kind in gains]] = 0
    bias[model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_NONE)] = 0
    bias[[kind is Bias.ORIENTATION for kind in biases], 1] = 0
    bias[[kind not in (Bias.AFFINE, Bias.ORIENTATION) for kind in biases]] = 0
    return gain, bias


def _target(kind: Transmission, ids: list[int]) -> tuple[int, int]:
    first, second = ids
    if kind is Transmission.BODY:
        return first - 1, -1
    paired = (Transmission.SITE, Transmission.SLIDER_CRANK, Transmission.ORIENTATION)
    return first, second if kind in paired else -1


def _inputs(model: Any, k: int) -> tuple[Control, ...]:
    mujoco = engine()
    spec, kinds = int(model.actuator_ctrlspec[k]), mujoco.mjtGain
    count = int(model.actuator_ctrlnum[k])
    gain = model.actuator_gaintype[k]
    if gain == int(kinds.mjGAIN_SO3):
        return ((Control.QUATERNION if count == 4 else Control.ROTATION),) * count
    if gain not in (int(kinds.mjGAIN_PID), int(kinds.mjGAIN_DCMOTOR)):
        return (Control.SIGNAL,) * count
    order = (Control.POSITION, Control.VELOCITY, Control.FORCE, Control.VOLTAGE)
    return tuple(control for bit, control in enumerate(order) if spec & (1 << bit))


def _states(model: Any, k: int) -> tuple[ActivationState, ...]:
    count, state = int(model.actuator_actnum[k]), ActivationState
    kind = _ACTIVATIONS[model.actuator_dyntype[k]]
    gain, dyn = model.actuator_gainprm[k], model.actuator_dynprm[k]
    if kind is Activation.PID:
        present = ((state.SLEW, dyn[1] > 0), (state.INTEGRAL, gain[0] > 0))
    elif kind is Activation.DC_MOTOR:
        present = (
            (state.SLEW, dyn[7] > 0),
            (state.INTEGRAL, gain[5] > 0),
            (state.TEMPERATURE, dyn[2] > 0),
            (state.BRISTLE, dyn[5] > 0),
            (state.CURRENT, dyn[0] > 0),
        )
    else:
        return (state.SIGNAL,) * count
    return tuple(each for each, on in present if on)


def _passive(model: Any, flags: Flags):
    """Read damping, its polynomial, and armature; None if all are zero."""
    # MuJoCo ignores those of orientation servos.
    felt = model.actuator_trntype != int(engine().mjtTrn.mjTRN_SO3)
    linear = model.actuator_damping * (flags.damper & felt)
    poly = model.actuator_dampingpoly * (flags.damper & felt)[:, None]
    armature = model.actuator_armature * felt
    return tuple(x if np.any(x) else None for x in (linear, poly, armature))


def wrapping_servos(model: Any) -> np.ndarray:
    """Return true for servos whose setpoint MuJoCo wraps (`wrapPeriod`)."""
    mujoco = engine()
    m, dyn, trn = model, mujoco.mjtDyn, mujoco.mjtTrn
    direct = np.isin(
        m.actuator_dyntype, [int(dyn.mjDYN_NONE), int(dyn.mjDYN_INTEGRATOR)]
    )
    servo = (
        (m.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_FIXED))
        & (m.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE))
        & (m.actuator_gainprm[:, 0] == -m.actuator_biasprm[:, 1])
        & direct
    )
    servo |= m.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_PID)
    on_joint = np.isin(m.actuator_trntype, [int(trn.mjTRN_JOINT), 1])
    kinds = np.array([*m.jnt_type, -1])
    on_ball = kinds[np.where(on_joint, m.actuator_trnid[:, 0], -1)] == int(
        mujoco.mjtJoint.mjJNT_BALL
    )
    gear = m.actuator_gear[m.actuator_outadr]
    on_site = (m.actuator_trntype == int(trn.mjTRN_SITE)) & (
        m.actuator_trnid[:, 1] >= 0
    )
    turns = on_site & ~np.any(gear[:, :3], axis=1) & np.any(gear[:, 3:], axis=1)
    return servo & ((on_ball & np.any(gear[:, :3], axis=1)) | turns)


def idle_actuators(model: Any, flags: Flags) -> np.ndarray:
    """Return true for disabled actuators: all, or those of disabled groups."""
    # Groups outside 0..30 cannot be disabled.
    group = model.actuator_group
    off = (model.opt.disableactuator >> np.clip(group, 0, 30)) & 1
    return ((group >= 0) & (group <= 30) & (off == 1)) | (not flags.actuation)


def _bools(values: np.ndarray) -> tuple[bool, ...]:
    return tuple(bool(value) for value in values)
