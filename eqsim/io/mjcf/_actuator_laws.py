"""Parameters of muscles, DC motors and PID servos: conversion from and to MuJoCo's
arrays.

The columns of `gainprm`, `biasprm` and `dynprm` are those of `mju_muscleGain`,
`mj_fwdActuation` and `mjs_setToDCMotor`.
"""

from typing import Any

import numpy as np

from ...model import (
    Activation,
    Actuators,
    Bias,
    DCMotors,
    Gain,
    MuscleActivations,
    Muscles,
    PIDs,
)


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
