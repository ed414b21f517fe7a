"""Activation dynamics, force laws of actuators, and the derivatives of forces by velocity.

Activation dynamics gives the rates of activations, and activations one step later. A force
law is gain times input plus bias.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics.coordinates import dof_joints
from ..model import Activation, ActivationState, Bias, Gain, System, Transmission
from ..model.actuator_parameters import ActuatorStructure
from ..model.arrays import (
    accumulate,
    concatenate,
    per_row,
    put,
    replace,
    take,
    take_or_zero,
)
from ..spatial import clamp, safe_sqrt
from .actuator_slots import (
    addresses,
    anchor_setpoints,
    discrete_pid,
    discrete_pid_facts,
    discrete_pid_rates,
    limit_slew,
    nearest_setpoints,
    orientation_forces,
    periods,
    pid_drive,
    pid_facts,
    pid_integral,
    state_index,
    wrap,
)
from .attached_models import join_activations, model_velocity_gain, ModelStates
from .motors import (
    active_force,
    active_force_rate,
    back_emf,
    friction_velocity_gain,
    mechanical_forces,
    motor_facts,
    motor_gain,
    motor_inputs,
    motor_rates,
    motor_velocity_gain,
    MotorInputs,
    muscle_activation_rate,
    MuscleScale,
    next_bristles,
    passive_force,
    TINY,
)


# Activations.


_LINEAR = (Activation.INTEGRATOR, Activation.FILTER, Activation.FILTER_EXACT)


class Signals(NamedTuple):
    """Inputs of force laws.

    - `ctrl`: controls within their ranges and slew rates, `(nu, *batch)`.
    - `rate`: rates of the activations, `(na, *batch)`.
    - `motors`: voltages and resistances of DC motors; None if there are none.
    """

    ctrl: Any
    rate: Any
    motors: MotorInputs | None


class LinearActivations(NamedTuple):
    """Static facts of integrators and filters: place in `State.act`, control,
    actuator, and whether it integrates."""

    slots: tuple[int, ...]
    controls: tuple[int, ...]
    owners: tuple[int, ...]
    integrates: tuple[bool, ...]


@ft.lru_cache(maxsize=256)
def _linear(structure: ActuatorStructure) -> LinearActivations:
    at, rows = addresses(structure), []
    for k, kind in enumerate(structure.activation):
        if kind in _LINEAR:
            integrates = kind is Activation.INTEGRATOR
            signals = [
                slot
                for slot, state in enumerate(structure.states[k], start=at.act[k])
                if state is ActivationState.SIGNAL
            ]
            rows += [
                (slot, at.ctrl[k] + i, k, integrates) for i, slot in enumerate(signals)
            ]
    return LinearActivations(*(tuple(row[i] for row in rows) for i in range(4)))


def signals(sys: System, act, ctrl, length, velocity) -> Signals:
    """Compute rates of activations, and controls as force laws read them.

    **Arguments:** `ctrl` within its ranges; `length` and `velocity` of the actuators.
    """
    actuators, structure = sys.actuators, sys.actuators.structure
    linear = _linear(structure)
    rates = []
    if linear.slots:
        rates.append((linear.slots, _linear_rate(sys, linear, act, ctrl)))
    if actuators.muscle_activations is not None:
        parameters = actuators.muscle_activations
        rates.append(_muscle_rates(structure, parameters, act, ctrl))
    ctrl, slews = _limited_slews(sys, act, ctrl)
    rates += slews
    if actuators.pids is not None:
        facts = pid_facts(structure, actuators.pids.owners)
        rates.append(pid_integral(sys, facts, act, ctrl, length))
    if actuators.discrete_pids is not None:
        facts = discrete_pid_facts(structure, actuators.discrete_pids.owners)
        rates.append(discrete_pid_rates(sys, facts, act, ctrl, length))
    inputs = None
    if actuators.motors is not None:
        motors = actuators.motors
        facts = motor_facts(structure, motors.owners)
        inputs = motor_inputs(motors, facts, act, ctrl, length, velocity)
        rates += motor_rates(motors, facts, inputs, act, ctrl)
    if not rates:
        return Signals(ctrl, jnp.zeros_like(act), inputs)
    slots = [slot for places, _ in rates for slot in places]
    rate = put(concatenate([values for _, values in rates]), slots, actuators.na)
    return Signals(ctrl, _of_enabled(sys, rate), inputs)


def _of_enabled(sys: System, rate):
    """Return rates that are zero where actuators are switched off."""
    if all(sys.actuators.enabled):
        return rate
    on = [
        enabled
        for enabled, states in zip(sys.actuators.enabled, sys.actuators.states)
        for _ in states
    ]
    return jnp.where(per_row(on, rate) > 0, rate, 0.0)


def _linear_rate(sys: System, linear: LinearActivations, act, ctrl):
    r"""Compute $\dot a$: the control for an integrator, $(u - a)/t$ for filters."""
    act = take(act, linear.slots)
    integrates = per_row(linear.integrates, act)
    ctrl = take(ctrl, linear.controls)
    time = take(sys.actuators.time_constant, linear.owners)
    filtered = (ctrl - act) / jnp.maximum(time, TINY)
    return integrates * ctrl + (1.0 - integrates) * filtered


def _muscle_rates(structure: ActuatorStructure, parameters, act, ctrl):
    at = addresses(structure)
    slots = [at.act[k] for k in parameters.owners]
    ctrl = take(ctrl, [at.ctrl[k] for k in parameters.owners])
    return slots, muscle_activation_rate(parameters, take(act, slots), ctrl)


def _limited_slews(sys: System, act, ctrl):
    """Limit the rates of setpoints. Returns controls, and a list of places and rates."""
    actuators, structure = sys.actuators, sys.actuators.structure
    at, rates = addresses(structure), []
    for family in (actuators.motors, actuators.pids):
        if family is None:
            continue
        slots = state_index(structure, family.owners, ActivationState.SLEW)
        rows = [i for i, slot in enumerate(slots) if slot >= 0]
        if not rows:
            continue
        owners, slots = [family.owners[i] for i in rows], [slots[i] for i in rows]
        controls = [at.ctrl[k] for k in owners]
        before, target = take(act, slots), take(ctrl, controls)
        turning = [i for i, k in enumerate(owners) if actuators.wraps[k]]
        if turning:
            period = periods(sys, [owners[i] for i in turning])
            last, aim = take((before, target), turning)
            target = replace(target, turning, last + wrap(aim - last, period))
        speed = take(family.max_slew, rows)
        target, rate = limit_slew(target, before, speed, sys.dt[None])
        ctrl = replace(ctrl, controls, target)
        rates.append((slots, rate))
    return ctrl, rates


class ExactActivations(NamedTuple):
    """Static facts of activations that are integrated exactly: per activation, whether
    it is, and where its time constant stands among those of all actuators and then of
    the motors."""

    exact: tuple[bool, ...]
    times: tuple[int, ...]


@ft.lru_cache(maxsize=256)
def _exact(structure: ActuatorStructure, motors: tuple[int, ...]) -> ExactActivations:
    exact, times = [], []
    for k, states in enumerate(structure.states):
        filters = structure.activation[k] is Activation.FILTER_EXACT
        for state in states:
            current = state is ActivationState.CURRENT
            exact.append(filters or current)
            count = len(structure.states)
            times.append(count + motors.index(k) if current else k)
    return ExactActivations(tuple(exact), tuple(times))


def _span(sys: System, act, dt):
    """Compute the time over which a rate acts in a step, per activation."""
    actuators, motors = sys.actuators, sys.actuators.motors
    owners = () if motors is None else motors.owners
    facts = _exact(actuators.structure, owners)
    if not any(facts.exact):
        return dt[None]
    times = actuators.time_constant
    if motors is not None:
        times = concatenate([times, motors.time_constant])
    time = jnp.maximum(take(times, facts.times), TINY)
    exact = per_row(facts.exact, act)
    return exact * time * -jnp.expm1(-dt[None] / time) + (1.0 - exact) * dt[None]


def next_activation(sys: System, act, rate, velocity):
    """Compute the activations one step later, within their ranges.

    **Arguments:**

    - `velocity`: velocity of each actuator, `(nout, *batch)`.
    """
    actuators, dt = sys.actuators, sys.dt
    new = act + rate * _span(sys, act, dt)
    kinds = [(k, x) for k, states in enumerate(actuators.states) for x in states]
    owners = [k for k, _ in kinds]
    limited = [
        actuators.act_limited[k]
        and actuators.activation[k] is not Activation.DC_MOTOR
        and state is not ActivationState.STARTED
        for k, state in kinds
    ]
    new = clip_rows(new, take(actuators.act_range, owners), tuple(limited))
    if actuators.motors is None:
        return new
    motors = actuators.motors
    facts = motor_facts(actuators.structure, motors.owners)
    rows = [i for i, slot in enumerate(facts.integral) if slot >= 0]
    if rows:
        slots, bound = (
            [facts.integral[i] for i in rows],
            take(motors.max_integral, rows),
        )
        bound = jnp.where(bound > 0.0, bound, jnp.inf)
        new = replace(new, slots, clamp(take(new, slots), -bound, bound))
    rows = [i for i, slot in enumerate(facts.bristle) if slot >= 0]
    if rows:
        speed = take(velocity, facts.outs)
        bristles = next_bristles(motors, facts, speed, act, dt[None])
        new = replace(new, [facts.bristle[i] for i in rows], take(bristles, rows))
    return new


def advance_activation(
    sys: System, act, rate, length, velocity, model_states: ModelStates
):
    """Compute the activations at the end of a step: `next_activation`, with integrated
    setpoints on rotations near the length, and the state variables of models.

    **Arguments:**

    - `rate`, `length`, `velocity`, `model_states`: fields of an `Actuation`.
    """
    if not sys.actuators.active:
        return act
    act, rate = act[: sys.actuators.na], rate[: sys.actuators.na]
    new = anchor_setpoints(sys, next_activation(sys, act, rate, velocity), length)
    return join_activations(new, model_states) if model_states else new


def clip_rows(values, bounds, limited: tuple[bool, ...]):
    """Clip the rows that are limited."""
    if not any(limited):
        return values
    clipped = clamp(values, bounds[:, 0], bounds[:, 1])
    return jnp.where(per_row(limited, values) > 0, clipped, values)


# Force laws.


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
    - `states`: state variables of attached models.
    """

    act: Any
    signals: Signals
    length: Any
    velocity: Any
    muscles: MuscleScale | None
    states: ModelStates


def law_forces(sys: System, x: LawInputs):
    """Compute forces `(nout, *batch)`, before ranges."""
    facts, actuators = laws_of(sys), sys.actuators
    parts = []
    if facts.scalars:
        parts.append((facts.scalar_outs, _scalar_forces(sys, facts, x)))
    if facts.orientations:
        torques = orientation_forces(
            sys, facts.orientations, x.act, x.signals.ctrl, x.length, x.velocity
        )
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


def _discrete_pid_drive(sys, facts, rows, scalar, x):
    pids = sys.actuators.discrete_pids
    assert pids is not None, "there are discrete PID servos"
    places = discrete_pid_facts(sys.actuators.structure, pids.owners)
    _, error, integral = discrete_pid(sys, places, x.act, x.signals.ctrl, x.length)
    rate = take_or_zero(x.signals.rate, places.signal) - take(x.velocity, places.outs)
    drive = pids.proportional * error + pids.derivative * rate + integral
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
    Gain.DISCRETE_PID: _discrete_pid_drive,
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
    bound = clamp(total, span[:, 0], span[:, 1])
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


# Derivatives of actuator forces by their velocities, $\partial f/\partial\dot\ell$, for
# implicit integration.


def law_velocity_gain(sys: System, x: LawInputs, force, tau):
    r"""Compute $\partial f/\partial\dot\ell$: see `velocity_gain`.

    **Arguments:**

    - `force`: forces to which ranges apply.
    - `tau`: joint forces of all actuators.
    """
    facts, actuators = laws_of(sys), sys.actuators
    parts = []
    if facts.scalars:
        parts.append((facts.scalar_outs, _scalar_velocity_gain(sys, facts, x)))
    if facts.orientations:
        gains = [actuators.bias[k, 2][None] for k in facts.orientations for _ in "xyz"]
        gain = concatenate(gains) + jnp.zeros_like(take(force, facts.orientation_outs))
        parts.append((facts.orientation_outs, gain))
    gain = join_rows(parts, sys.nout)
    gain = jnp.where(_saturated(sys, facts, x, force), 0.0, gain)
    if facts.gains[Gain.DC_MOTOR]:
        # Ranges do not limit friction.
        gain = gain + _friction_gain(sys, facts, gain)
    gain = gain * _below_tendon_ranges(sys, x)
    if sys.actuator_models:
        ctrl, total = x.signals.ctrl, force
        if actuators.motors is not None:
            total = add_mechanical_forces(sys, force, x.act, x.length, x.velocity)
        gain = model_velocity_gain(
            sys, x.states, ctrl, total, gain, x.length, x.velocity
        )
    gain = gain * _below_joint_ranges(sys, tau)
    return (
        gain
        if all(actuators.enabled)
        else jnp.where(enabled_rows(sys, gain), gain, 0.0)
    )


def _scalar_velocity_gain(sys: System, facts: Laws, x: LawInputs):
    actuators = sys.actuators
    owners = facts.scalars
    velocity = take(x.velocity, facts.scalar_outs)
    scalar = x._replace(length=take(x.length, facts.scalar_outs), velocity=velocity)
    zero = jnp.zeros_like(velocity)
    total = zero
    rows = facts.biases[Bias.AFFINE]
    if rows:
        gain = take(actuators.bias, [owners[i] for i in rows])[:, 2]
        total = total + put(gain + take(zero, rows), rows, len(owners))
    rows = facts.gains[Gain.AFFINE]
    if rows:
        slope = take(actuators.gain, [owners[i] for i in rows])[:, 2]
        slope = slope * law_inputs(sys, facts, rows, scalar, x)
        total = total + put(slope, rows, len(owners))
    rows = facts.gains[Gain.MUSCLE]
    if rows:
        slope = muscle_gain(sys, facts, rows, scalar, active_force_rate)
        slope = slope * law_inputs(sys, facts, rows, scalar, x)
        total = total + put(slope, rows, len(owners))
    rows = facts.gains[Gain.DC_MOTOR]
    if rows:
        motors, places, own = law_motors(sys, facts, rows)
        driven = [actuators.biases[k] is Bias.DC_MOTOR for k in motors.owners]
        assert x.signals.motors is not None, "there are motors"
        gain = motor_velocity_gain(
            motors, places, x.signals.motors, driven, sys.dt[None]
        )
        gain = take(gain + jnp.zeros_like(take(x.velocity, places.outs)), own)
        total = total + put(gain, rows, len(owners))
    return total


def _friction_gain(sys: System, facts: Laws, like):
    rows = facts.gains[Gain.DC_MOTOR]
    motors, places, own = law_motors(sys, facts, rows)
    gain = friction_velocity_gain(motors, places)
    gain = take(gain + jnp.zeros_like(take(like, places.outs)), own)
    return put(gain, [facts.scalar_outs[row] for row in rows], sys.nout)


def _saturated(sys: System, facts: Laws, x: LawInputs, force):
    """Return which forces are at the ends of their ranges."""
    actuators = sys.actuators
    counts = actuators.num_outputs
    owners = [k for k, count in enumerate(counts) for _ in range(count)]
    limited = per_row([actuators.force_limited[k] for k in owners], force) > 0
    bounds = take(actuators.force_range, owners)
    over = (force <= bounds[:, 0]) | (force >= bounds[:, 1])
    if facts.orientations:
        index = facts.orientation_outs
        # Compare torques before they are scaled to the bound: afterwards, rounding decides.
        torque = take(law_forces(sys, x), index)
        torque = torque.reshape(len(index) // 3, 3, *torque.shape[1:])
        square = jnp.sum(torque * torque, axis=1)
        most = take(actuators.force_range, facts.orientations)[:, 1]
        triple = [i for i in range(len(facts.orientations)) for _ in range(3)]
        large = take(square >= most * most, triple)
        kept = [i for i in range(sys.nout) if i not in index]
        over = join_rows([(kept, take(over, kept)), (index, large)], sys.nout)
    return limited & over


def _below_joint_ranges(sys: System, tau):
    """Return 0 for actuators of joints of which the total force is at the end of its
    range, else 1."""
    joints, actuators = sys.joints, sys.actuators
    chosen = [
        (out, joint)
        for out, joint in zip(actuators.out_starts, actuators.joints)
        if joint >= 0 and joints.force_limited[joint]
    ]
    if joints.force_range is None or not chosen:
        return 1.0
    dofs = [joints.v_starts[joint] for _, joint in chosen]
    owners = [dof_joints(joints.kinds)[dof] for dof in dofs]
    return _below(sys, take(tau, dofs), take(joints.force_range, owners), chosen)


def _below_tendon_ranges(sys: System, x: LawInputs):
    """Return 0 for actuators of tendons of which the total force is at the end of its
    range, else 1."""
    tendons, actuators = sys.tendons, sys.actuators
    outs = addresses(actuators.structure).out
    chosen = [
        (outs[k], actuators.targets[k][0])
        for k, kind in enumerate(actuators.transmissions)
        if kind is Transmission.TENDON
        and tendons.actuator_force_limited[actuators.targets[k][0]]
    ]
    if not chosen:
        return 1.0
    pulled = [tendon for _, tendon in chosen]
    own = take(law_forces(sys, x), [out for out, _ in chosen])
    total = take(accumulate(own, pulled, sys.ntendon), pulled)
    return _below(sys, total, take(tendons.actuator_force_range, pulled), chosen)


def _below(sys: System, total, span, chosen: list[tuple[int, int]]):
    """Return 1 for all forces but those `chosen` whose total leaves its range."""
    inside = (total > span[:, 0]) & (total < span[:, 1])
    inside = inside.astype(total.dtype)
    index = [out for out, _ in chosen]
    kept = [out for out in range(sys.nout) if out not in index]
    ones = jnp.ones((len(kept), *inside.shape[1:]), inside.dtype)
    return put(concatenate([inside, ones]), [*index, *kept], sys.nout)
