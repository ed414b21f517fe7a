"""Actuators of a random robot: on joints, and on tendons, sites, slider-cranks and links."""

import dataclasses
from typing import Any

import numpy as np

from ..model import (
    Activation,
    ActivationState,
    Actuators,
    Bias,
    Control,
    DCMotors,
    Gain,
    JointKind,
    Joints,
    Muscles,
    PIDs,
    System,
    Transmission,
)
from ..model.actuator_parameters import MuscleActivations, velocity_gains
from ._random_parts import Plan


# Actuators on joints.


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


# Other transmissions.


_SERVOS = (Activation.NONE, Activation.INTEGRATOR)
_REFERENCED = "referenced site"
_SITE, _TENDON = Transmission.SITE, Transmission.TENDON
_CRANK, _BODY = Transmission.SLIDER_CRANK, Transmission.BODY


def change_transmissions(rng: np.random.Generator, sys: System) -> System:
    """Move most actuators from their joints to tendons, sites, slider-cranks and links,
    for a robot with sites."""
    rng = rng.spawn(1)[0]
    actuators, count = sys.actuators, sys.nactuator
    kinds, targets = list(actuators.transmissions), list(actuators.targets)
    wraps, gear = list(actuators.wraps), np.array(actuators.gear)
    gain, bias = np.array(actuators.gain), np.array(actuators.bias)
    lengths, passive = np.zeros(count), np.ones((count, 2))
    for k, start in enumerate(actuators.out_starts):
        if kinds[k] is Transmission.ORIENTATION:
            if sys.nsite > 1 and rng.random() < 0.6:
                targets[k] = pick_two(rng, sys.nsite)
            continue
        options = _options(sys, k)
        if not options or rng.random() < 0.15:
            continue
        choice = options[rng.integers(len(options))]
        row = _row(rng, sys, choice)
        kinds[k], targets[k], gear[start] = row["kind"], row["target"], row["gear"]
        lengths[k] = row["length"]
        wraps[k] = choice == _REFERENCED and _turns(gear[start]) and _servo(sys, k)
        # MuJoCo supports neither armature of tendons around shapes nor damping of
        # sites.
        passive[k] = choice is _TENDON, 0.0
        if choice is _BODY:
            # Adhesion pulls, independently of the length of the transmission.
            gain[k, 1:], bias[k] = 0.0, 0.0
    affine = actuators.gains, actuators.biases
    damping = _scaled(actuators.damping, passive[:, 0])
    poly = _scaled(actuators.damping_poly, passive[:, :1])
    damps = np.zeros(count, bool) if damping is None else damping != 0
    damps = damps if poly is None else damps | np.any(poly != 0, axis=1)
    damped = {targets[k][0] for k in np.flatnonzero(damps) if kinds[k] is _TENDON}
    marks = enumerate(sys.tendons.has_damping)
    return dataclasses.replace(
        sys,
        tendons=dataclasses.replace(
            sys.tendons, has_damping=tuple(on or k in damped for k, on in marks)
        ),
        actuators=dataclasses.replace(
            actuators,
            transmissions=tuple(kinds),
            targets=tuple(targets),
            wraps=tuple(wraps),
            gear=gear,
            gain=gain,
            bias=bias,
            has_velocity_gain=velocity_gains(*affine, gain, bias),
            damping=damping,
            damping_poly=poly,
            armature=_scaled(actuators.armature, passive[:, 1]),
            crank_length=lengths if _CRANK in kinds else None,
        ),
    )


def _options(sys: System, k: int) -> list[Any]:
    """Return the objects that an actuator can act on. Muscles whose peak force depends
    on the inertia stay at their joints, because another transmission may move nothing
    at the reference."""
    actuators = sys.actuators
    muscles = actuators.muscles
    if muscles is not None and k in muscles.owners:
        if muscles.scaled[muscles.owners.index(k)]:
            return []
    laws = actuators.gains[k], actuators.biases[k]
    options: list[Any] = [_TENDON] if sys.ntendon else []
    options += [_SITE] if sys.nsite else []
    options += [_REFERENCED, _CRANK] if sys.nsite > 1 else []
    options += [_BODY] if laws == (Gain.AFFINE, Bias.AFFINE) and sys.ngeom else []
    return options


def _row(rng: np.random.Generator, sys: System, choice: Any) -> dict[str, Any]:
    gear, length = np.zeros(6), 0.0
    gear[0] = rng.uniform(0.5, 3) * rng.choice([-1, 1])
    kind = _SITE if choice == _REFERENCED else choice
    target = -1, -1
    if kind is _TENDON:
        target = int(rng.integers(sys.ntendon)), -1
    elif kind is _BODY:
        target, gear[0] = (int(rng.integers(-1, sys.nlink)), -1), 1.0
    elif kind is _CRANK:
        target, length = pick_two(rng, sys.nsite), float(rng.uniform(0.3, 1.0))
    elif choice is _SITE:
        target, gear = (int(rng.integers(sys.nsite)), -1), rng.uniform(-2, 2, 6)
    else:
        target = pick_two(rng, sys.nsite)
        gear = rng.uniform(-2, 2, 6) * np.repeat(_ONE_OR_BOTH[rng.integers(3)], 3)
    return {"kind": kind, "target": target, "gear": gear, "length": length}


_ONE_OR_BOTH = ((1, 0), (0, 1), (1, 1))
"""Flags of a site actuator: force or torque relative to its reference."""


def _servo(sys: System, k: int) -> bool:
    """Test if MuJoCo treats the law as that of a position servo."""
    actuators = sys.actuators
    if actuators.gains[k] is Gain.PID:
        return True
    laws = actuators.gains[k], actuators.biases[k]
    gain, bias = np.asarray(actuators.gain[k]), np.asarray(actuators.bias[k])
    return bool(
        laws == (Gain.AFFINE, Bias.AFFINE)
        and actuators.activation[k] in _SERVOS
        and np.any(bias)
        and gain[0] == -bias[1]
        and not np.any(gain[1:])
    )


def _turns(gear: np.ndarray) -> bool:
    return bool(not np.any(gear[:3]) and np.any(gear[3:]))


def pick_two(rng: np.random.Generator, count: int) -> tuple[int, int]:
    one, two = rng.choice(count, 2, replace=False).tolist()
    return one, two


def _scaled(values: Any, scale: np.ndarray) -> np.ndarray | None:
    if values is None:
        return None
    scaled = np.asarray(values) * scale
    return scaled if np.any(scaled) else None
