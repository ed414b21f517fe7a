"""Muscles and DC motors: the actuators whose force laws are models of their own."""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..model import ActivationState, Control, DCMotors, Muscles
from ..model.actuator_parameters import ActuatorStructure, MuscleActivations
from ..model.arrays import per_row, replace, take, take_or_zero
from ..spatial import clamp
from .actuator_slots import addresses, control_index, integral_rate, state_index


# Muscles: active and passive force over length and velocity, and activation.
#
# MuJoCo documentation, *Modeling*, "Muscles"; `mju_muscleGain`, `mju_muscleBias`,
# `mju_muscleDynamics`. Time constants after Millard, Uchida, Seth and Delp, *Flexing
# computational muscle*, 2013.


TINY = 1e-15


class MuscleScale(NamedTuple):
    """Peak force, and optimal length, of each row of `Muscles`."""

    force: Any
    optimal_length: Any


def muscle_scale(muscles: Muscles, unit_accelerations) -> MuscleScale:
    """Compute peak forces and optimal lengths.

    **Arguments:**

    - `unit_accelerations`: norm of the joint accelerations that a unit force causes at
        the reference coordinates, for each row that is scaled; see
        `muscle_scales`.
    """
    force, scaled = muscles.force, np.flatnonzero(muscles.scaled)
    if len(scaled):
        auto = take(muscles.scale, scaled) / jnp.maximum(unit_accelerations, TINY)
        force = replace(force, scaled, auto)
    length = muscles.length_range[:, 1] - muscles.length_range[:, 0]
    span = muscles.range[:, 1] - muscles.range[:, 0]
    return MuscleScale(force, length / jnp.maximum(span, TINY))


def _normal_length(muscles: Muscles, scale: MuscleScale, length):
    start = length - muscles.length_range[:, 0]
    return muscles.range[:, 0] + start / jnp.maximum(scale.optimal_length, TINY)


def active_force(muscles: Muscles, scale: MuscleScale, length, velocity):
    r"""Compute $-F_0 F_L F_V$, the force at full activation."""
    x = _normal_length(muscles, scale, length)
    speed = _max_speed(muscles, scale)
    curve = _length_curve(x, muscles.shortest, muscles.longest)
    return -scale.force * curve * _velocity_curve(muscles, velocity / speed)


def active_force_rate(muscles: Muscles, scale: MuscleScale, length, velocity):
    """Compute the derivative of `active_force` by the velocity."""
    x = _normal_length(muscles, scale, length)
    speed = _max_speed(muscles, scale)
    curve = _length_curve(x, muscles.shortest, muscles.longest)
    v, y = velocity / speed, muscles.max_lengthening - 1.0
    lengthening = 2.0 * (y - v) / jnp.maximum(y, TINY)
    slope = jnp.where(v <= 0.0, 2.0 * (v + 1.0), lengthening)
    slope = jnp.where((v <= -1.0) | (v > y), 0.0, slope)
    return -scale.force * curve * slope / speed


def passive_force(muscles: Muscles, scale: MuscleScale, length):
    r"""Compute $-F_0 F_P$: zero up to the optimal length, then quadratic, then linear."""
    x = _normal_length(muscles, scale, length)
    middle = 0.5 * (1.0 + muscles.longest)
    width = jnp.maximum(middle - 1.0, TINY)
    stretch, beyond = (x - 1.0) / width, (x - middle) / width
    curve = jnp.where(x <= middle, 0.5 * stretch * stretch, 0.5 + beyond)
    return -scale.force * muscles.max_passive * jnp.where(x <= 1.0, 0.0, curve)


def _max_speed(muscles: Muscles, scale: MuscleScale):
    return jnp.maximum(scale.optimal_length * muscles.max_speed, TINY)


def _length_curve(x, shortest, longest):
    """Compute $F_L$: one at length 1, zero outside, of four parabolas."""
    rise, fall = 0.5 * (shortest + 1.0), 0.5 * (1.0 + longest)
    outer = lambda y, width: 0.5 * (y / jnp.maximum(width, TINY)) ** 2
    inner = lambda y, width: 1.0 - 0.5 * (y / jnp.maximum(width, TINY)) ** 2
    left = jnp.where(
        x <= rise, outer(x - shortest, rise - shortest), inner(1.0 - x, 1.0 - rise)
    )
    right = jnp.where(
        x <= fall, inner(x - 1.0, fall - 1.0), outer(longest - x, longest - fall)
    )
    inside = (shortest <= x) & (x <= longest)
    return jnp.where(inside, jnp.where(x <= 1.0, left, right), 0.0)


def _velocity_curve(muscles: Muscles, v):
    """Compute $F_V$: zero at -1, one at rest, `max_lengthening` beyond."""
    most = muscles.max_lengthening
    y = most - 1.0
    lengthening = most - (y - v) ** 2 / jnp.maximum(y, TINY)
    curve = jnp.where(v <= 0.0, (v + 1.0) ** 2, lengthening)
    return jnp.where(v <= -1.0, 0.0, jnp.where(v > y, most, curve))


def muscle_activation_rate(parameters: MuscleActivations, act, ctrl):
    r"""Compute $\dot a = (u - a)/\tau$."""
    level = 0.5 + 1.5 * clamp(act, 0.0, 1.0)
    rise, fall = parameters.rise * level, parameters.fall / level
    excess = clamp(ctrl, 0.0, 1.0) - act
    width = parameters.smoothing
    smooth = width >= TINY
    x = excess / jnp.where(smooth, width, 1.0) + 0.5
    x = clamp(x, 0.0, 1.0)
    blend = x**3 * (3.0 * x * (2.0 * x - 5.0) + 10.0)
    switch = jnp.where(excess < 0.0, fall, rise)
    time = jnp.where(smooth, fall + (rise - fall) * blend, switch)
    return excess / jnp.maximum(time, TINY)


# DC motors: circuit, controller, temperature, cogging, LuGre friction.
#
# MuJoCo documentation, XML reference, "dcmotor"; `mj_fwdActuation`. Friction: Canudas de
# Wit, Olsson, Åström and Lischinsky, *A new model for control of systems with friction*,
# 1995.


class MotorFacts(NamedTuple):
    """Static places of DC motors: forces, controls and activations, -1 without.

    - `controlled`: true if a controller computes a voltage.
    """

    outs: tuple[int, ...]
    position: tuple[int, ...]
    velocity: tuple[int, ...]
    force: tuple[int, ...]
    voltage: tuple[int, ...]
    controlled: tuple[bool, ...]
    integral: tuple[int, ...]
    temperature: tuple[int, ...]
    bristle: tuple[int, ...]
    current: tuple[int, ...]


@ft.lru_cache(maxsize=256)
def motor_facts(structure: ActuatorStructure, owners: tuple[int, ...]) -> MotorFacts:
    """Return where DC motors keep their numbers."""
    outs = addresses(structure).out
    control = lambda kind: tuple(control_index(structure, owners, kind))
    state = lambda kind: tuple(state_index(structure, owners, kind))
    position, velocity = control(Control.POSITION), control(Control.VELOCITY)
    force = control(Control.FORCE)
    return MotorFacts(
        outs=tuple(outs[k] for k in owners),
        position=position,
        velocity=velocity,
        force=force,
        voltage=control(Control.VOLTAGE),
        controlled=tuple(max(row) >= 0 for row in zip(position, velocity, force)),
        integral=state(ActivationState.INTEGRAL),
        temperature=state(ActivationState.TEMPERATURE),
        bristle=state(ActivationState.BRISTLE),
        current=state(ActivationState.CURRENT),
    )


class MotorInputs(NamedTuple):
    """Inputs of motors, one row per motor, `(nmotor, *batch)`.

    - `length`, `velocity`: values of each actuator.
    - `voltage`: at the terminals.
    - `resistance`: at the present temperature.
    - `bounded`: true if the voltage of a controller is at its bound.
    - `current_rate`: unbounded rate of each motor with a current.
    """

    length: Any
    velocity: Any
    voltage: Any
    resistance: Any
    bounded: Any
    current_rate: Any


def motor_inputs(motors: DCMotors, facts: MotorFacts, act, ctrl, length, velocity):
    """Compute voltages and resistances."""
    length, velocity = take((length, velocity), facts.outs)
    voltage = take_or_zero(ctrl, facts.voltage)
    bounded = jnp.zeros_like(velocity, bool)
    if any(facts.controlled):
        torque = motors.proportional * (take_or_zero(ctrl, facts.position) - length)
        rate = take_or_zero(ctrl, facts.velocity) - velocity
        torque = torque + motors.derivative * rate + take_or_zero(ctrl, facts.force)
        torque = torque + motors.integral * take_or_zero(act, facts.integral)
        constant = motors.torque_constant
        per_torque = motors.resistance / jnp.where(constant > 0.0, constant, 1.0)
        control = per_torque * torque + constant * velocity
        most = jnp.where(motors.max_voltage > 0.0, motors.max_voltage, jnp.inf)
        bounded = jnp.abs(control) >= most
        control = clamp(control, -most, most)
        voltage = voltage + jnp.where(_column(facts.controlled, control), control, 0.0)
    resistance = _resistance(motors, facts, act)
    rate = None
    if max(facts.current) >= 0:
        current = _stationary_current(motors, voltage, resistance, velocity)
        rate = _free_current_rate(motors, facts, current, act)
    return MotorInputs(length, velocity, voltage, resistance, bounded, rate)


def _column(marks, like):
    return per_row(marks, like) > 0


def _has(slots, like):
    return _column([slot >= 0 for slot in slots], like)


def _resistance(motors: DCMotors, facts: MotorFacts, act):
    resistance = motors.resistance
    if max(facts.temperature) < 0:
        return resistance
    warm = take_or_zero(act, facts.temperature) + motors.ambient_temperature
    change = motors.temperature_coefficient * (warm - motors.reference_temperature)
    return resistance * jnp.where(_has(facts.temperature, change), 1.0 + change, 1.0)


def motor_rates(motors: DCMotors, facts: MotorFacts, inputs: MotorInputs, act, ctrl):
    """Compute rates of activations. Returns a list of places and rates."""
    rates = []
    for slots, rate in (
        (facts.integral, lambda: _integral_rate(motors, facts, inputs, act, ctrl)),
        (facts.temperature, lambda: _temperature_rate(motors, facts, inputs, act)),
        (facts.bristle, lambda: bristle_rate(motors, facts, inputs.velocity, act)),
        (facts.current, lambda: _current_rate(motors, inputs)),
    ):
        rows = [i for i, slot in enumerate(slots) if slot >= 0]
        if rows:
            like = inputs.velocity
            full = jnp.broadcast_to(rate(), like.shape)
            rates.append(([slots[i] for i in rows], take(full, rows)))
    return rates


def _integral_rate(motors, facts, inputs, act, ctrl):
    error = take_or_zero(ctrl, facts.position) - inputs.length
    return integral_rate(error, take_or_zero(act, facts.integral), motors.max_integral)


def _stationary_current(motors, voltage, resistance, velocity):
    driving = voltage - motors.torque_constant * velocity
    return driving / jnp.maximum(resistance, TINY)


def _temperature_rate(motors, facts, inputs, act):
    _, velocity, voltage, resistance, *_ = inputs
    current = _stationary_current(motors, voltage, resistance, velocity)
    stateful = _has(facts.current, current)
    current = jnp.where(stateful, take_or_zero(act, facts.current), current)
    own = _has(facts.temperature, current)
    capacitance = jnp.where(own, motors.thermal_capacitance, 1.0)
    resistance = jnp.where(own, motors.thermal_resistance, 1.0)
    warm = take_or_zero(act, facts.temperature)
    heat = inputs.resistance * current * current
    return (heat - warm / resistance) / capacitance


def _free_current_rate(motors, facts, current, act):
    """Compute rates of currents that tend to stationary ones, without their bound."""
    time = jnp.where(_has(facts.current, current), motors.time_constant, 1.0)
    now = take_or_zero(act, facts.current)
    return (current - now) / jnp.maximum(time, TINY)


def _most_current_rate(motors):
    return jnp.where(motors.max_current_rate > 0.0, motors.max_current_rate, jnp.inf)


def _current_rate(motors, inputs: MotorInputs):
    most = _most_current_rate(motors)
    return clamp(inputs.current_rate, -most, most)


def _bristle_decay(motors, velocity):
    r"""Compute $-\sigma_0 |v| / g(v)$, $g = F_C + (F_S - F_C) e^{-(v/v_S)^2}$."""
    ratio = velocity / jnp.maximum(motors.stribeck_velocity, TINY)
    # Beyond this the exponential is zero, and the square may overflow.
    ratio = clamp(ratio, -40.0, 40.0)
    excess = motors.static_friction - motors.coulomb_friction
    level = motors.coulomb_friction + excess * jnp.exp(-ratio * ratio)
    return -motors.bristle_stiffness * jnp.abs(velocity) / jnp.maximum(level, TINY)


def bristle_rate(motors: DCMotors, facts: MotorFacts, velocity, act):
    """Compute the rates of the bristles, one row per motor."""
    deflection = take_or_zero(act, facts.bristle)
    return _bristle_decay(motors, velocity) * deflection + velocity


def next_bristles(motors: DCMotors, facts: MotorFacts, velocity, act, dt):
    """Compute the bristles one step later, exact at constant velocity."""
    decay = _bristle_decay(motors, velocity) * dt
    small = jnp.abs(decay) < 1e-4
    safe = jnp.where(small, 1.0, decay)
    series = 1.0 + decay * (0.5 + decay * (1 / 6 + decay * (1 / 24)))
    share = jnp.where(small, series, jnp.expm1(safe) / safe)
    deflection = take_or_zero(act, facts.bristle)
    return jnp.exp(decay) * deflection + dt * share * velocity


def motor_gain(motors: DCMotors, facts: MotorFacts, resistance):
    """Compute the force per ampere, of motors with a current, and per volt."""
    constant = motors.torque_constant
    per_volt = constant / jnp.maximum(resistance, TINY)
    return jnp.where(_has(facts.current, per_volt), constant, per_volt)


def back_emf(motors: DCMotors, facts: MotorFacts, resistance, velocity):
    """Compute the force of the back-EMF, of motors without a current: in others it acts
    on the current."""
    gain = motor_gain(motors, facts, resistance)
    force = -gain * motors.torque_constant * velocity
    return jnp.where(_has(facts.current, force), 0.0, force)


def mechanical_forces(motors: DCMotors, facts: MotorFacts, length, velocity, act):
    """Compute cogging and friction, which no force range limits."""
    length, velocity = take((length, velocity), facts.outs)
    angle = motors.cogging_periods * length + motors.cogging_phase
    force = motors.cogging * jnp.sin(angle)
    if max(facts.bristle) < 0:
        return force
    rate = bristle_rate(motors, facts, velocity, act)
    deflection = take_or_zero(act, facts.bristle)
    friction = motors.bristle_stiffness * deflection + motors.bristle_damping * rate
    return force - jnp.where(_has(facts.bristle, friction), friction, 0.0)


def motor_velocity_gain(
    motors: DCMotors, facts: MotorFacts, inputs: MotorInputs, back_driven, dt
):
    """Compute derivatives of motor forces by the velocity as MuJoCo takes them for
    implicit integration, without friction (`mjd_actuator_vel`).

    **Arguments:**

    - `resistance`: at the present temperature.
    - `back_driven`: true for motors whose bias is the back-EMF.
    """
    constant = motors.torque_constant
    resistance = jnp.maximum(inputs.resistance, TINY)
    safe = jnp.where(constant > 0.0, constant, 1.0)
    control = -motors.derivative * motors.resistance / safe + constant
    control = jnp.where(_column(facts.controlled, control), control, 0.0)
    control = jnp.where(inputs.bounded, 0.0, control)
    emf = constant * constant / resistance
    direct = constant * control / resistance
    direct = direct - jnp.where(_column(back_driven, emf), emf, 0.0)
    time = jnp.maximum(motors.time_constant, TINY)
    share = -jnp.expm1(-dt / time)
    rate = direct
    if inputs.current_rate is not None:
        slow = constant * (control - constant) * share / resistance
        limited = jnp.abs(inputs.current_rate) >= _most_current_rate(motors)
        slow = jnp.where(limited, 0.0, slow)
        rate = jnp.where(_has(facts.current, slow), slow, direct)
    return rate


def friction_velocity_gain(motors: DCMotors, facts: MotorFacts):
    """Compute derivatives of the friction of motors by the velocity, without the change
    of the decay of bristles (`mjd_actuator_vel`)."""
    damping = motors.bristle_damping
    return -jnp.where(_has(facts.bristle, damping), damping, 0.0)
