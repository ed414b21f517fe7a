"""Force laws of actuators: gain times input plus bias."""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..model import ActuatorStructure, Bias, Gain, System, Transmission
from ..model._gather import (
    accumulate,
    concatenate,
    per_row,
    put,
    replace,
    take,
    take_or_zero,
)
from ..spatial import safe_sqrt
from ._activation import clip_rows, Signals
from ._addresses import addresses
from ._dc_motor import (
    back_emf,
    mechanical_forces,
    motor_facts,
    motor_gain,
)
from ._muscle import active_force, MuscleScale, passive_force
from ._servo import nearest_setpoints, orientation_forces, pid_drive, pid_facts


class Laws(NamedTuple):
    """Static facts. All but `orientations` count the actuators with one force, `scalars`.

    - `scalars`, `scalar_outs`: these actuators, and their forces.
    - `orientations`, `orientation_outs`: servos of orientation, and their forces.
    - `inputs`: place of the input of each, among activations, then controls, then
        voltages of motors; -1 if it has none.
    - `gains`, `biases`: indices of the actuators with each law.
    """

    scalars: tuple[int, ...]
    scalar_outs: tuple[int, ...]
    orientations: tuple[int, ...]
    orientation_outs: tuple[int, ...]
    inputs: tuple[int, ...]
    gains: dict[Gain, tuple[int, ...]]
    biases: dict[Bias, tuple[int, ...]]


@ft.lru_cache(maxsize=256)
def laws(structure: ActuatorStructure, motors: tuple[int, ...]) -> Laws:
    """Return which actuators have which law."""
    at = addresses(structure)
    three = [kind is Transmission.ORIENTATION for kind in structure.transmissions]
    scalars = tuple(k for k, mark in enumerate(three) if not mark)
    orientations = tuple(k for k, mark in enumerate(three) if mark)
    num_act = sum(map(len, structure.states))
    num_ctrl = sum(map(len, structure.inputs))
    inputs = []
    for k in scalars:
        direct = num_act + at.ctrl[k] if structure.inputs[k] else -1
        if structure.gains[k] is Gain.DC_MOTOR:
            voltage = num_act + num_ctrl + motors.index(k)
            current = "current" in [state.value for state in structure.states[k]]
            inputs.append(at.last_act[k] if current else voltage)
        else:
            inputs.append(at.last_act[k] if structure.states[k] else direct)
    place = {k: i for i, k in enumerate(scalars)}
    groups = lambda kinds, values: {
        kind: tuple(place[k] for k in scalars if values[k] is kind) for kind in kinds
    }
    return Laws(
        scalars,
        tuple(at.out[k] for k in scalars),
        orientations,
        tuple(at.out[k] + i for k in orientations for i in range(3)),
        tuple(inputs),
        groups(Gain, structure.gains),
        groups(Bias, structure.biases),
    )


def laws_of(sys: System) -> Laws:
    motors = sys.actuators.motors
    return laws(sys.actuators.structure, () if motors is None else motors.owners)


def join_rows(parts, size: int):
    """Join values of groups of actuators, given with their places."""
    parts = [(rows, values) for rows, values in parts if rows]
    order = [row for rows, _ in parts for row in rows]
    return put(concatenate([values for _, values in parts]), order, size)


class LawInputs(NamedTuple):
    """Inputs of the force laws.

    - `act`: activations as the forces read them: now, or at the end of the step.
    - `signals`: controls and motors.
    - `length`, `velocity`: values of each actuator.
    - `muscles`: None if there are none.
    """

    act: Any
    signals: Signals
    length: Any
    velocity: Any
    muscles: MuscleScale | None


def law_forces(sys: System, x: LawInputs):
    """Compute forces `(nout, *batch)`, before ranges."""
    facts, actuators = laws_of(sys), sys.actuators
    parts = []
    if facts.scalars:
        parts.append((facts.scalar_outs, _scalar_forces(sys, facts, x)))
    if facts.orientations:
        where = x.act, x.signals.ctrl, x.length, x.velocity
        torques = orientation_forces(sys, facts.orientations, *where)
        parts.append((facts.orientation_outs, concatenate(torques)))
    force = join_rows(parts, sys.nout)
    if all(actuators.enabled):
        return force
    return jnp.where(enabled_rows(sys, force), force, 0.0)


def enabled_rows(sys: System, like):
    actuators = sys.actuators
    pairs = zip(actuators.enabled, actuators.num_outputs)
    return per_row([on for on, count in pairs for _ in range(count)], like) > 0


def _scalar_forces(sys: System, facts: Laws, x: LawInputs):
    length, velocity = take((x.length, x.velocity), facts.scalar_outs)
    scalar = x._replace(length=length, velocity=velocity)
    parts = [
        (rows, _DRIVES[kind](sys, facts, rows, scalar, x))
        for kind, rows in facts.gains.items()
        if rows
    ]
    drive = join_rows(parts, len(facts.scalars))
    if len(facts.biases[Bias.AFFINE]) == len(facts.scalars):
        b = take(sys.actuators.bias, facts.scalars)
        return drive + b[:, 0] + b[:, 1] * length + b[:, 2] * velocity
    parts = [
        (rows, _BIASES[kind](sys, facts, rows, scalar, x))
        for kind, rows in facts.biases.items()
        if rows
    ]
    return drive + join_rows(parts, len(facts.scalars))


def law_inputs(sys: System, facts: Laws, rows, scalar: LawInputs, x: LawInputs):
    """Return the inputs of some actuators, with setpoints on circles unwound."""
    parts = [x.act, x.signals.ctrl]
    if x.signals.motors is not None:
        parts.append(x.signals.motors.voltage)
    values = take_or_zero(concatenate(parts), [facts.inputs[i] for i in rows])
    owners = [facts.scalars[i] for i in rows]
    return nearest_setpoints(sys, owners, values, take(scalar.length, rows))


def _affine_drive(sys, facts, rows, scalar, x):
    g = take(sys.actuators.gain, [facts.scalars[i] for i in rows])
    length, velocity = take((scalar.length, scalar.velocity), rows)
    gain = g[:, 0] + g[:, 1] * length + g[:, 2] * velocity
    return gain * law_inputs(sys, facts, rows, scalar, x)


def _muscle_drive(sys, facts, rows, scalar, x):
    law = muscle_gain(sys, facts, rows, scalar, active_force)
    return law * law_inputs(sys, facts, rows, scalar, x)


def muscle_gain(sys, facts, rows, x, function):
    muscles = sys.actuators.muscles
    index = [muscles.gain_rows[facts.scalars[i]] for i in rows]
    length, velocity = take((x.length, x.velocity), rows)
    return function(*take_muscles(muscles, x.muscles, index), length, velocity)


def take_muscles(muscles, scale, index):
    """Return the rows `index` of muscles."""
    kept = muscles
    return take(kept, index), take(scale, index)


def _motor_drive(sys, facts, rows, scalar, x):
    motors, places, own = law_motors(sys, facts, rows)
    inputs = x.signals.motors
    assert inputs is not None, "there are motors"
    gain = motor_gain(motors, places, inputs.resistance)
    return take(gain, own) * law_inputs(sys, facts, rows, scalar, x)


def law_motors(sys: System, facts: Laws, rows):
    """Return the motors, their places, and the motor of each of the rows."""
    motors = sys.actuators.motors
    assert motors is not None, "there are motors"
    places = motor_facts(sys.actuators.structure, motors.owners)
    return motors, places, [motors.owners.index(facts.scalars[i]) for i in rows]


def _pid_drive(sys, facts, rows, scalar, x):
    pids = sys.actuators.pids
    assert pids is not None, "there are PID servos"
    places = pid_facts(sys.actuators.structure, pids.owners)
    drive = pid_drive(sys, places, x.act, x.signals.ctrl, x.length)
    return take(drive, [pids.owners.index(facts.scalars[i]) for i in rows])


def _affine_bias(sys, facts, rows, scalar, x):
    b = take(sys.actuators.bias, [facts.scalars[i] for i in rows])
    length, velocity = take((scalar.length, scalar.velocity), rows)
    return b[:, 0] + b[:, 1] * length + b[:, 2] * velocity


def _muscle_bias(sys, facts, rows, scalar, x):
    muscles = sys.actuators.muscles
    index = [muscles.bias_rows[facts.scalars[i]] for i in rows]
    own = take_muscles(muscles, scalar.muscles, index)
    return passive_force(*own, take(scalar.length, rows))


def _motor_bias(sys, facts, rows, scalar, x):
    motors, places, own = law_motors(sys, facts, rows)
    inputs = x.signals.motors
    assert inputs is not None, "there are motors"
    emf = back_emf(motors, places, inputs.resistance, inputs.velocity)
    return take(emf, own)


_DRIVES = {
    Gain.AFFINE: _affine_drive,
    Gain.MUSCLE: _muscle_drive,
    Gain.DC_MOTOR: _motor_drive,
    Gain.PID: _pid_drive,
}
_BIASES = {
    Bias.AFFINE: _affine_bias,
    Bias.MUSCLE: _muscle_bias,
    Bias.DC_MOTOR: _motor_bias,
}


def clip_tendon_forces(sys: System, force):
    """Scale the forces of the actuators of a tendon so that their sum stays in the range
    of the tendon."""
    tendons, actuators = sys.tendons, sys.actuators
    owners = [
        k
        for k, kind in enumerate(actuators.transmissions)
        if kind is Transmission.TENDON
        and tendons.actuator_force_limited[actuators.targets[k][0]]
    ]
    if not owners:
        return force
    outs = addresses(actuators.structure).out
    index, pulled = [outs[k] for k in owners], [actuators.targets[k][0] for k in owners]
    own = take(force, index)
    total = accumulate(own, pulled, sys.ntendon)
    span = tendons.actuator_force_range
    bound = jnp.clip(total, span[:, 0], span[:, 1])
    over = total != bound
    scale = jnp.where(over, bound / jnp.where(over, total, 1.0), 1.0)
    return replace(force, index, own * take(scale, pulled))


def clip_forces(sys: System, force):
    """Keep forces in their ranges; for a servo of orientation this limits the length of
    the torque."""
    facts, actuators = laws_of(sys), sys.actuators
    if not any(actuators.force_limited):
        return force
    counts = actuators.num_outputs
    owners = [k for k, count in enumerate(counts) for _ in range(count)]
    limited = [actuators.force_limited[k] and counts[k] == 1 for k in owners]
    bounds = take(actuators.force_range, owners)
    new = clip_rows(force, bounds, tuple(limited))
    outs = addresses(actuators.structure).out
    rows = [k for k in facts.orientations if actuators.force_limited[k]]
    if not rows:
        return new
    index = [outs[k] + i for k in rows for i in range(3)]
    torque = take(force, index)
    torque = torque.reshape(len(rows), 3, *torque.shape[1:])
    norm = safe_sqrt(jnp.sum(torque * torque, axis=1, keepdims=True))
    most = take(actuators.force_range, rows)[:, 1:2]
    over = norm > most
    scale = jnp.where(over, most / jnp.where(over, norm, 1.0), 1.0)
    torque = (torque * scale).reshape(len(index), *force.shape[1:])
    kept = [i for i in range(sys.nout) if i not in index]
    return join_rows([(kept, take(new, kept)), (index, torque)], sys.nout)


def add_mechanical_forces(sys: System, force, act, length, velocity):
    """Add cogging and friction of DC motors."""
    motors = sys.actuators.motors
    if motors is None:
        return force
    facts = motor_facts(sys.actuators.structure, motors.owners)
    own = [
        i
        for i, k in enumerate(motors.owners)
        if sys.actuators.biases[k] is Bias.DC_MOTOR and sys.actuators.enabled[k]
    ]
    extra = mechanical_forces(motors, facts, length, velocity, act)
    return force + put(take(extra, own), [facts.outs[i] for i in own], sys.nout)
