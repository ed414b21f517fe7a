"""Actuators of a random robot."""

import dataclasses
from typing import Any

import numpy as np

from ._actuator_laws import DCMotors, MuscleActivations, Muscles, PIDs
from ._actuators import Actuators, velocity_gains
from ._joints import Joints
from ._kinds import (
    Activation,
    ActivationState,
    Bias,
    Control,
    Gain,
    JointKind,
    Transmission,
)
from ._random_parts import Plan


_SIMPLE = (
    Activation.NONE,
    Activation.INTEGRATOR,
    Activation.FILTER,
    Activation.FILTER_EXACT,
)


def random_actuators(rng: np.random.Generator, plan: Plan) -> Actuators:
    """Draw motors and servos on joints."""
    flat = plan.flat()
    chosen = [joint for joint in range(len(flat)) if rng.random() < 0.7]
    rows = [_actuator(rng, flat[joint][1]) for joint in chosen]
    count = len(rows)

    def column(name: str, width: int) -> np.ndarray:
        return np.asarray([row[name] for row in rows], float).reshape(count, width)

    def marks(probability: float) -> tuple[bool, ...]:
        return tuple(bool(draw < probability) for draw in rng.random(count))

    activation = tuple(row["activation"] for row in rows)
    moving = [kind is not Activation.NONE for kind in activation]
    low, high = rng.uniform(-1.5, -0.2, count), rng.uniform(0.2, 1.5, count)
    span = np.stack([low, high], -1)
    in_parent = [
        mark and flat[joint][1].nv > 1 for joint, mark in zip(chosen, marks(0.4))
    ]
    kinds = (Transmission.JOINT, Transmission.JOINT_IN_PARENT)
    signal = (ActivationState.SIGNAL,)
    affine = (Gain.AFFINE,) * count, (Bias.AFFINE,) * count
    gain, bias = column("gain", 3), column("bias", 3)
    return Actuators(
        names=tuple(f"actuator{index}" for index in range(count)),
        transmissions=tuple(kinds[mark] for mark in in_parent),
        targets=tuple((joint, -1) for joint in chosen),
        gains=affine[0],
        biases=affine[1],
        activation=activation,
        inputs=((Control.SIGNAL,),) * count,
        states=tuple(signal if on else () for on in moving),
        wraps=(False,) * count,
        enabled=(True,) * count,
        active=True,
        has_velocity_gain=velocity_gains(*affine, gain, bias),
        ctrl_limited=marks(0.6),
        force_limited=marks(0.4),
        act_limited=tuple(mark and on for mark, on in zip(marks(0.4), moving)),
        act_early=tuple(mark and on for mark, on in zip(marks(0.4), moving)),
        gear=column("gear", 6),
        gain=gain,
        bias=bias,
        time_constant=rng.uniform(0.02, 0.5, count),
        ctrl_range=span,
        force_range=4 * span,
        act_range=0.8 * span * np.asarray(moving, float).reshape(count, 1),
    )


def _actuator(rng: np.random.Generator, kind: JointKind) -> dict[str, Any]:
    gear = np.zeros(6)
    gear[: kind.nv] = rng.uniform(0.5, 3, kind.nv) * rng.choice([-1, 1], kind.nv)
    strength = rng.uniform(0.5, 5)
    # The effect of a servo on its joint grows with the square of the gear.
    servo, brake = rng.uniform([0.5, 0], [5, 0.2]) / np.max(gear**2)
    motor = ([strength, 0, 0], [0, 0, 0])
    velocity = ([brake, 0, 0], [0, 0, -brake])
    position = ([servo, 0, 0], [0, -servo, -brake])
    mixed = 0.1 * rng.uniform(-brake, brake, 2)
    affine = ([strength, *mixed], [rng.normal(), -servo, -brake])
    # In MuJoCo, position servos on ball joints wrap their setpoint.
    laws = [motor, velocity, position, affine] if kind.nv == 1 else [motor, velocity]
    gain, bias = laws[rng.integers(len(laws))]
    weights = [0.6, 0.1, 0.15, 0.15]
    activation = _SIMPLE[rng.choice(4, p=weights)]
    return {"gear": gear, "gain": gain, "bias": bias, "activation": activation}


def _or_none(values: np.ndarray) -> np.ndarray | None:
    return values if np.any(values) else None


def with_joint_laws(rng: np.random.Generator, joints: Joints, lifted: bool) -> Joints:
    """Add polynomial springs and dampers, limits of actuator forces and, if `lifted`,
    gravity compensation by actuators."""
    count, repeats = len(joints.kinds), [kind.nv for kind in joints.kinds]
    limited = (rng.random(count) < 0.5) & (np.array(repeats) == 1)
    pick = lambda share: (rng.random(count) < share)[:, None]
    stiffness = rng.uniform([-1, 0], [1, 3], (count, 2)) * pick(0.6)
    damping = rng.uniform(0, 0.3, (count, 2)) * pick(0.6)
    span = np.sort(rng.normal(size=(count, 2)), axis=1)
    return dataclasses.replace(
        joints,
        force_limited=tuple(bool(mark) for mark in limited),
        actuator_gravity=tuple(bool(mark) and lifted for mark in pick(0.4)[:, 0]),
        stiffness_poly=_or_none(stiffness),
        damping_poly=_or_none(np.repeat(damping, repeats, axis=0)),
        force_range=span if np.any(limited) else None,
    )


def with_actuator_laws(
    rng: np.random.Generator, actuators: Actuators, joints: Joints
) -> Actuators:
    """Replace actuators by muscles, DC motors, PID servos and orientation servos, and
    add damping and armature."""
    laws = (_plain, _muscle, _motor, _pid, _orientation)
    rows = [
        laws[rng.choice(5, p=[0.2, 0.3, 0.25, 0.15, 0.1])](rng, actuators, joints, k)
        for k in range(len(actuators.names))
    ]
    rows = [_with_controls(rng, row) for row in rows]
    for row in rows:
        row["act_range"] = np.array(row["act_range"]) * bool(row["states"])
    count = len(rows)
    column = lambda name: tuple(row[name] for row in rows)
    stack = lambda name, width: np.reshape(
        [x for row in rows for x in np.atleast_2d(row[name])], (-1, width)
    )
    passive = rng.uniform([0, 0, 0, 0], [0.2, 0.05, 0.05, 0.02], (count, 4))
    # As in MuJoCo, orientation servos have no damping and armature.
    passive[[row["gain_kind"] is Gain.ORIENTATION for row in rows]] = 0.0
    affine = column("gain_kind"), column("bias_kind")
    gain, bias = stack("gain", 3), stack("bias", 3)
    return dataclasses.replace(
        actuators,
        transmissions=column("transmission"),
        gains=affine[0],
        biases=affine[1],
        has_velocity_gain=velocity_gains(*affine, gain, bias),
        activation=column("activation"),
        inputs=column("inputs"),
        states=column("states"),
        wraps=column("wraps"),
        enabled=tuple(bool(draw < 0.9) for draw in rng.random(count)),
        ctrl_limited=tuple(mark for row in rows for mark in row["ctrl_limited"]),
        act_limited=column("act_limited"),
        act_early=column("act_early"),
        gear=stack("gear", 6),
        gain=gain,
        bias=bias,
        ctrl_range=stack("ctrl_range", 2),
        force_range=stack("force_range", 2),
        time_constant=np.array([row["time_constant"] for row in rows], float),
        act_range=stack("act_range", 2),
        damping=_or_none(passive[:, 0] * (rng.random(count) < 0.6)),
        damping_poly=_or_none(passive[:, 1:3]),
        armature=_or_none(passive[:, 3]),
        muscles=_muscles(rows),
        muscle_activations=_table(MuscleActivations, rows, "muscle_activation"),
        motors=_table(DCMotors, rows, "motor"),
        pids=_table(PIDs, rows, "pid"),
    )


def _plain(rng, actuators: Actuators, joints: Joints, k: int) -> dict[str, Any]:
    """Return the actuator unchanged, except that position servos on ball joints
    wrap."""
    del rng
    ball = joints.kinds[actuators.targets[k][0]] is JointKind.SPHERICAL
    servo = actuators.gain[k, 0] == -actuators.bias[k, 1]
    direct = actuators.activation[k] in (Activation.NONE, Activation.INTEGRATOR)
    return {
        "transmission": actuators.transmissions[k],
        "gain_kind": Gain.AFFINE,
        "bias_kind": Bias.AFFINE,
        "activation": actuators.activation[k],
        "inputs": actuators.inputs[k],
        "states": actuators.states[k],
        "wraps": bool(ball and servo and direct and not np.any(actuators.gain[k, 1:])),
        "act_limited": actuators.act_limited[k],
        "act_early": actuators.act_early[k],
        "gear": actuators.gear[k],
        "gain": actuators.gain[k],
        "bias": actuators.bias[k],
        "force_range": actuators.force_range[k],
        "time_constant": actuators.time_constant[k],
        "act_range": actuators.act_range[k],
    }


def _without_affine(row: dict[str, Any]) -> dict[str, Any]:
    none = np.zeros(3)
    return row | {"gain": none, "bias": none, "wraps": False, "time_constant": 1.0}


def _muscle(rng, actuators, joints, k):
    row = _without_affine(_plain(rng, actuators, joints, k))
    low = rng.uniform(-1.5, -0.3)
    force = rng.uniform(5, 20) * (1 if rng.random() < 0.5 else -1)
    numbers = {
        "length_range": [low, low + rng.uniform(1, 3)],
        "range": rng.uniform([0.6, 1.0], [0.9, 1.2]),
        "force": force if force > 0 else -1.0,
        "scale": rng.uniform(10, 40),
        "shortest": rng.uniform(0.3, 0.6),
        "longest": rng.uniform(1.3, 1.8),
        "max_speed": rng.uniform(0.8, 3),
        "max_passive": rng.uniform(0.5, 1.5),
        "max_lengthening": rng.uniform(1.1, 1.5),
    }
    row |= {"gain_kind": Gain.MUSCLE, "bias_kind": Bias.MUSCLE, "muscle": numbers}
    if rng.random() < 0.7:
        smoothing = rng.choice([0.0, 0.3])
        times = {"rise": 0.01, "fall": 0.04, "smoothing": smoothing}
        row |= {
            "activation": Activation.MUSCLE,
            "states": (ActivationState.SIGNAL,),
            "muscle_activation": times,
        }
    return row


def _motor(rng, actuators, joints, k):
    state = ActivationState
    row = _without_affine(_plain(rng, actuators, joints, k))
    choices = (
        (Control.VOLTAGE,),
        (Control.POSITION,),
        (Control.POSITION, Control.VELOCITY),
        (Control.POSITION, Control.VELOCITY, Control.FORCE, Control.VOLTAGE),
        (Control.VELOCITY, Control.FORCE),
        (),
    )
    inputs = choices[rng.integers(len(choices))]
    controlled = any(control is not Control.VOLTAGE for control in inputs)
    has = dict(zip(state, [False, *(bool(x) for x in rng.random(5) < 0.5)]))
    has[state.SLEW] &= controlled
    has[state.INTEGRAL] &= Control.POSITION in inputs
    numbers = {
        "resistance": rng.uniform(0.5, 3),
        "torque_constant": rng.uniform(0.2, 1),
        "temperature_coefficient": 0.004,
        "reference_temperature": 25.0,
        "ambient_temperature": rng.uniform(15, 35),
        "proportional": rng.uniform(0, 5) * controlled,
        "integral": rng.uniform(0.1, 1) * has[state.INTEGRAL],
        "derivative": rng.uniform(0, 0.2) * controlled,
        "max_voltage": rng.choice([0.0, 3.0]),
        "max_integral": rng.choice([0.0, 0.5]),
        "max_slew": rng.uniform(0.5, 50) * has[state.SLEW],
        "time_constant": rng.uniform(0.005, 0.05) * has[state.CURRENT],
        "max_current_rate": rng.choice([0.0, 20.0]),
        "thermal_resistance": rng.uniform(1, 3) * has[state.TEMPERATURE],
        "thermal_capacitance": rng.uniform(1, 20),
        "cogging": rng.uniform(0, 0.2),
        "cogging_periods": 6.0,
        "cogging_phase": rng.uniform(0, 3),
        "bristle_stiffness": rng.uniform(5, 50) * has[state.BRISTLE],
        "bristle_damping": rng.uniform(0, 0.3) * has[state.BRISTLE],
        "coulomb_friction": rng.uniform(0.1, 0.3),
        "static_friction": rng.uniform(0.3, 0.6),
        "stribeck_velocity": rng.uniform(0.05, 0.3),
    }
    states = tuple(each for each, on in has.items() if on)
    return row | {
        "gain_kind": Gain.DC_MOTOR,
        "bias_kind": Bias.DC_MOTOR,
        "activation": Activation.DC_MOTOR if states else Activation.NONE,
        "inputs": inputs,
        "states": states,
        "act_limited": False,
        "act_early": bool(states),
        "motor": numbers,
    }


def _pid(rng, actuators, joints, k):
    state = ActivationState
    row = _plain(rng, actuators, joints, k)
    slew, integral = (bool(x) for x in rng.random(2) < 0.6)
    states = (state.SLEW,) * slew + (state.INTEGRAL,) * integral
    inputs = (Control.POSITION,) if states or rng.random() < 0.5 else ()
    inputs += (Control.VELOCITY,) + (Control.FORCE,) * int(rng.random() < 0.5)
    ball = joints.kinds[actuators.targets[k][0]] is JointKind.SPHERICAL
    size = np.max(actuators.gear[k] ** 2)
    numbers = {
        "integral_gain": rng.uniform(0.1, 1) * integral,
        "max_integral": rng.choice([0.0, 0.5]) * bool(states),
        "max_slew": rng.uniform(0.5, 50) * slew,
    }
    return row | {
        "gain_kind": Gain.PID,
        "activation": Activation.PID if states else Activation.NONE,
        "inputs": inputs,
        "states": states,
        "wraps": ball,
        "gain": np.zeros(3),
        "bias": [rng.normal(), *(-rng.uniform([0.5, 0], [5, 0.2]) / size)],
        "time_constant": 1.0,
        "act_limited": row["act_limited"] and bool(states),
        "act_early": row["act_early"] and bool(states),
        "act_range": 0.5 * np.array([-1.0, 1.0]),
        "pid": numbers,
    }


def _orientation(rng, actuators, joints, k):
    if joints.kinds[actuators.targets[k][0]] is not JointKind.SPHERICAL:
        return _plain(rng, actuators, joints, k)
    row = _plain(rng, actuators, joints, k)
    quat, integrates = rng.random() < 0.4, rng.random() < 0.4
    control = Control.QUATERNION if quat else Control.ROTATION
    integrates = integrates and not quat
    return row | {
        "transmission": Transmission.ORIENTATION,
        "gain_kind": Gain.ORIENTATION,
        "bias_kind": Bias.ORIENTATION,
        "activation": Activation.INTEGRATOR if integrates else Activation.NONE,
        "inputs": (control,) * (4 if quat else 3),
        "states": (ActivationState.SIGNAL,) * (3 * integrates),
        "wraps": False,
        "gear": np.tile(actuators.gear[k], (3, 1)),
        "gain": [rng.uniform(0.5, 2), 0.0, 0.0],
        "bias": [0.0, 0.0, -rng.uniform(0, 0.1)],
        "force_range": [0.0, rng.uniform(0.5, 3)],
        "act_limited": False,
        "act_early": row["act_early"] and integrates,
    }


def _with_controls(rng, row: dict[str, Any]) -> dict[str, Any]:
    """Set one range for all controls of an actuator, as in MJCF, except for PIDs."""
    count, limited = len(row["inputs"]), bool(rng.random() < 0.5)
    span = np.array([rng.uniform(-1.5, -0.2), rng.uniform(0.2, 1.5)])
    spans, marks = np.tile(span, (count, 1)), [limited] * count
    if row["gain_kind"] is Gain.PID:
        for j, control in enumerate(row["inputs"]):
            if control is not Control.POSITION:
                marks[j] = bool(rng.random() < 0.5)
                spans[j] = span * marks[j]
    return row | {"ctrl_range": spans, "ctrl_limited": marks}


def _muscles(rows: list[dict[str, Any]]) -> Muscles | None:
    owners = [k for k, row in enumerate(rows) if "muscle" in row]
    if not owners:
        return None
    index = tuple(owners.index(k) if k in owners else -1 for k in range(len(rows)))
    return Muscles(
        gain_rows=index,
        bias_rows=index,
        owners=tuple(owners),
        scaled=tuple(bool(rows[k]["muscle"]["force"] < 0) for k in owners),
        **_numbers(rows, owners, "muscle"),
    )


def _table(cls: Any, rows: list[dict[str, Any]], name: str) -> Any:
    owners = [k for k, row in enumerate(rows) if name in row]
    if not owners:
        return None
    return cls(owners=tuple(owners), **_numbers(rows, owners, name))


def _numbers(rows, owners, name: str) -> dict[str, np.ndarray]:
    keys = rows[owners[0]][name]
    return {key: np.array([rows[k][name][key] for k in owners], float) for key in keys}
