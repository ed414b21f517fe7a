"""Activation dynamics: rates of activations, and activations one step later."""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..model import Activation, ActivationState, ActuatorStructure, System
from ..model._gather import concatenate, per_row, put, replace, take
from ._addresses import addresses, state_index
from ._dc_motor import (
    motor_facts,
    motor_inputs,
    motor_rates,
    MotorInputs,
    next_bristles,
)
from ._muscle import muscle_activation_rate, TINY
from ._servo import (
    anchor_setpoints,
    limit_slew,
    periods,
    pid_facts,
    pid_integral,
    wrap,
)


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
            rows += [
                (at.act[k] + i, at.ctrl[k] + i, k, integrates)
                for i in range(len(structure.states[k]))
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
    inputs = None
    if actuators.motors is not None:
        motors = actuators.motors
        facts = motor_facts(structure, motors.owners)
        inputs = motor_inputs(motors, facts, act, ctrl, length, velocity)
        rates += motor_rates(motors, facts, inputs, act, ctrl)
    if not rates:
        return Signals(ctrl, jnp.zeros_like(act), inputs)
    slots = [slot for places, _ in rates for slot in places]
    rate = put(concatenate([values for _, values in rates]), slots, sys.na)
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
    owners = [k for k, states in enumerate(actuators.states) for _ in states]
    limited = [
        actuators.act_limited[k] and actuators.activation[k] is not Activation.DC_MOTOR
        for k in owners
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
        new = replace(new, slots, jnp.clip(take(new, slots), -bound, bound))
    rows = [i for i, slot in enumerate(facts.bristle) if slot >= 0]
    if rows:
        speed = take(velocity, facts.outs)
        bristles = next_bristles(motors, facts, speed, act, dt[None])
        new = replace(new, [facts.bristle[i] for i in rows], take(bristles, rows))
    return new


def advance_activation(sys: System, act, rate, length, velocity):
    """Compute the activations at the end of a step: `next_activation`, with integrated
    setpoints on rotations near the length.

    **Arguments:**

    - `rate`, `length`, `velocity`: fields of an `Actuation`.
    """
    if not sys.actuators.active:
        return act
    return anchor_setpoints(sys, next_activation(sys, act, rate, velocity), length)


def clip_rows(values, bounds, limited: tuple[bool, ...]):
    """Clip the rows that are limited."""
    if not any(limited):
        return values
    clipped = jnp.clip(values, bounds[:, 0], bounds[:, 1])
    return jnp.where(per_row(limited, values) > 0, clipped, values)
