r"""Places of actuators in `ctrl`, in `State.act` and among actuator forces; and servos:
setpoints on a circle, limited rates, PID, orientation.

MuJoCo documentation, *Computation*, "Actuation model"; `mj_fwdActuation`.
"""

import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..model import ActivationState, Control, System, Transmission
from ..model.actuator_parameters import ActuatorStructure
from ..model.arrays import concatenate, put, replace, take, take_or_zero
from ..spatial import clamp, exponential, logarithm, multiply, safe_sqrt, Vec3
from ..spatial.rotations import normalize4


# Places of the values of actuators.


class Addresses(NamedTuple):
    """The first control, activation and force of each actuator, and the last
    activation, -1 if there is none."""

    ctrl: tuple[int, ...]
    act: tuple[int, ...]
    last_act: tuple[int, ...]
    out: tuple[int, ...]


@ft.lru_cache(maxsize=256)
def addresses(structure: ActuatorStructure) -> Addresses:
    """Return where the numbers of each actuator stand."""
    ctrl, act, last, out = [], [], [], []
    num_ctrl = num_act = num_out = 0
    for kind, inputs, states in zip(
        structure.transmissions, structure.inputs, structure.states
    ):
        ctrl.append(num_ctrl)
        act.append(num_act)
        out.append(num_out)
        num_ctrl += len(inputs)
        num_act += len(states)
        num_out += 3 if kind is Transmission.ORIENTATION else 1
        last.append(num_act - 1 if states else -1)
    return Addresses(tuple(ctrl), tuple(act), tuple(last), tuple(out))


def state_index(
    structure: ActuatorStructure, owners: Sequence[int], state: ActivationState
) -> list[int]:
    """Return where the actuators keep a kind of activation, -1 for those without."""
    start = addresses(structure).act
    return [
        start[k] + structure.states[k].index(state)
        if state in structure.states[k]
        else -1
        for k in owners
    ]


def control_index(
    structure: ActuatorStructure, owners: Sequence[int], control: Control
) -> list[int]:
    """Return where the actuators read a kind of control, -1 for those without."""
    start = addresses(structure).ctrl
    return [
        start[k] + structure.inputs[k].index(control)
        if control in structure.inputs[k]
        else -1
        for k in owners
    ]


# Servos.


def periods(sys: System, index):
    r"""Compute the length of a full turn, $2\pi |\mathrm{gear}|$, of actuators on
    rotations."""
    actuators = sys.actuators
    outs = addresses(actuators.structure).out
    squares = []
    for k in index:
        start = 3 if actuators.transmissions[k] is Transmission.SITE else 0
        x, y, z = (actuators.gear[outs[k], start + i][None] for i in range(3))
        squares.append(x * x + y * y + z * z)
    return 2.0 * jnp.pi * safe_sqrt(jnp.concatenate(squares))


def wrap(error, period):
    """Return the equivalent of an error on a circle that is nearest to zero."""
    turns = error / jnp.where(period > 0.0, period, 1.0)
    whole = lax.round(turns, lax.RoundingMethod.AWAY_FROM_ZERO)
    return error - period * whole


def nearest_setpoints(sys: System, index, setpoint, length):
    """Replace the setpoints of those of the actuators `index` that wrap by the
    equivalent ones nearest to the length."""
    rows = [i for i, k in enumerate(index) if sys.actuators.wraps[k]]
    if not rows:
        return setpoint
    period = periods(sys, [index[i] for i in rows])
    here, target = take((length, setpoint), rows)
    return replace(setpoint, rows, here + wrap(target - here, period))


def limit_slew(setpoint, before, max_slew, dt):
    """Limit the rate of a setpoint. Returns the new setpoint and its rate."""
    reach = max_slew * dt
    limited = clamp(setpoint, before - reach, before + reach)
    return limited, (limited - before) / dt


def integral_rate(error, integral, bound):
    """Compute the rate of an integral of the error, which stops at its bound; no bound
    is 0."""
    low = jnp.where((bound > 0.0) & (integral <= -bound), 0.0, -jnp.inf)
    high = jnp.where((bound > 0.0) & (integral >= bound), 0.0, jnp.inf)
    return clamp(error, low, high)


class PIDFacts(NamedTuple):
    """Static places of PID servos: forces, controls and activations, -1 without."""

    owners: tuple[int, ...]
    outs: list[int]
    position: list[int]
    velocity: list[int]
    force: list[int]
    integral: list[int]


def pid_facts(structure: ActuatorStructure, owners) -> PIDFacts:
    """Return where PID servos keep their numbers."""
    outs = addresses(structure).out
    return PIDFacts(
        owners,
        [outs[k] for k in owners],
        control_index(structure, owners, Control.POSITION),
        control_index(structure, owners, Control.VELOCITY),
        control_index(structure, owners, Control.FORCE),
        state_index(structure, owners, ActivationState.INTEGRAL),
    )


def pid_integral(sys: System, facts: PIDFacts, act, ctrl, length):
    """Compute the rates of the integrals, of the servos that have one: their places in
    `State.act`, and the rates."""
    rows = [i for i, slot in enumerate(facts.integral) if slot >= 0]
    if not rows:
        return [], act[:0]
    pids, owners = sys.actuators.pids, [facts.owners[i] for i in rows]
    assert pids is not None, "there are PID servos"
    slots = [facts.integral[i] for i in rows]
    target = take(ctrl, [facts.position[i] for i in rows])
    here = take(length, [facts.outs[i] for i in rows])
    error = nearest_setpoints(sys, owners, target, here) - here
    return slots, integral_rate(error, take(act, slots), take(pids.max_integral, rows))


def pid_drive(sys: System, facts: PIDFacts, act, ctrl, length):
    """Compute the part of the force that depends on the controls and the integral; the
    rest is the affine bias."""
    actuators = sys.actuators
    assert actuators.pids is not None, "there are PID servos"
    bias = take(actuators.bias, facts.owners)
    target = take_or_zero(ctrl, facts.position)
    here = take(length, facts.outs)
    target = nearest_setpoints(sys, facts.owners, target, here)
    drive = -bias[:, 1] * target - bias[:, 2] * take_or_zero(ctrl, facts.velocity)
    drive = drive + take_or_zero(ctrl, facts.force)
    return drive + actuators.pids.integral_gain * take_or_zero(act, facts.integral)


class DiscretePIDFacts(NamedTuple):
    """Static places of discrete PID servos: forces; setpoints among activations and then
    controls; activations, -1 without."""

    outs: list[int]
    sources: list[int]
    signal: list[int]
    integral: list[int]
    slew: list[int]
    started: list[int]


def discrete_pid_facts(structure: ActuatorStructure, owners) -> DiscretePIDFacts:
    """Return where discrete PID servos keep their numbers."""
    at, state = addresses(structure), ActivationState
    num_act = sum(map(len, structure.states))
    slots = {
        each: state_index(structure, owners, each)
        for each in (state.SIGNAL, state.INTEGRAL, state.SLEW, state.STARTED)
    }
    direct = [num_act + at.ctrl[k] for k in owners]
    signal = slots[state.SIGNAL]
    sources = [own if own >= 0 else ctrl for own, ctrl in zip(signal, direct)]
    return DiscretePIDFacts([at.out[k] for k in owners], sources, *slots.values())


def discrete_pid(sys: System, facts: DiscretePIDFacts, act, ctrl, length):
    """Compute the setpoints, the errors and the forces of the integrals of discrete PID
    servos."""
    pids, dt = sys.actuators.discrete_pids, sys.dt[None]
    assert pids is not None, "there are discrete PID servos"
    target = take(concatenate([act, ctrl]), facts.sources)
    rows = [i for i, slot in enumerate(facts.slew) if slot >= 0]
    if rows:
        before = take(act, [facts.slew[i] for i in rows])
        free, speed = take(target, rows), take(pids.max_slew, rows)
        limited, _ = limit_slew(free, before, speed, dt)
        started = take(act, [facts.started[i] for i in rows]) > 0.0
        target = replace(target, rows, jnp.where(started, limited, free))
    error = target - take(length, facts.outs)
    rows = [i for i, slot in enumerate(facts.integral) if slot >= 0]
    if not rows:
        return target, error, jnp.zeros_like(error)
    total = take(act, [facts.integral[i] for i in rows]) + take(error, rows) * dt
    bound = take(pids.max_integral, rows)
    force = clamp(take(pids.integral, rows) * total, -bound, bound)
    return target, error, put(force, rows, len(facts.outs))


def discrete_pid_rates(sys: System, facts: DiscretePIDFacts, act, ctrl, length):
    """Compute the rates of the integrals, of the setpoints and of the marks of the first
    step: their places in `State.act`, and the rates."""
    pids, dt = sys.actuators.discrete_pids, sys.dt[None]
    assert pids is not None, "there are discrete PID servos"
    target, _, force = discrete_pid(sys, facts, act, ctrl, length)
    gain = jnp.where(pids.integral == 0.0, 1.0, pids.integral)
    values = force / gain, target, jnp.ones_like(target)
    slots, rates = [], [act[:0]]
    for places, value in zip((facts.integral, facts.slew, facts.started), values):
        rows = [i for i, slot in enumerate(places) if slot >= 0]
        own = [places[i] for i in rows]
        slots += own
        rates.append((take(value, rows) - take(act, own)) / dt)
    return slots, concatenate(rates)


def _rotation_target(sys: System, k: int, act, ctrl):
    """Return the quaternion that an orientation servo aims at."""
    at = addresses(sys.actuators.structure)
    entry = lambda x, start, i: x[start + i][None]
    if Control.QUATERNION in sys.actuators.inputs[k]:
        return normalize4([entry(ctrl, at.ctrl[k], i) for i in range(4)])
    if sys.actuators.states[k]:
        return exponential(Vec3(*(entry(act, at.act[k], i) for i in range(3))))
    return exponential(Vec3(*(entry(ctrl, at.ctrl[k], i) for i in range(3))))


def orientation_forces(sys: System, index, act, ctrl, length, velocity) -> list[Any]:
    r"""Compute the three torques of each orientation servo,
    $k_p \log(q^{-1} q_\mathrm{target}) + b_0 - k_v \dot\ell$, in a list."""
    torques, outs = [], addresses(sys.actuators.structure).out
    for k in index:
        three = lambda x: [x[outs[k] + i][None] for i in range(3)]
        w, x, y, z = exponential(Vec3(*three(length)))
        error = logarithm(
            multiply((w, -x, -y, -z), _rotation_target(sys, k, act, ctrl))
        )
        gain, bias = sys.actuators.gain[k, 0], sys.actuators.bias[k]
        torques += [
            gain * e + bias[0] + bias[2] * v for e, v in zip(error, three(velocity))
        ]
    return torques


def anchor_setpoints(sys: System, act, length):
    """Replace integrated setpoints on rotations by equivalent ones near the length, so
    that they stay bounded."""
    actuators = sys.actuators
    facts = actuators.structure
    at, rows = addresses(facts), []
    for k, wraps in enumerate(actuators.wraps):
        if wraps and actuators.states[k] and facts.activation[k].value == "integrator":
            rows.append(k)
    if rows:
        slots = [at.last_act[k] for k in rows]
        here = take(length, [at.out[k] for k in rows])
        target = nearest_setpoints(sys, rows, take(act, slots), here)
        act = replace(act, slots, target)
    for k, kind in enumerate(facts.transmissions):
        if kind is Transmission.ORIENTATION and facts.states[k]:
            slots = range(at.act[k], at.act[k] + 3)
            act = replace(act, slots, _bounded_rotation(take(act, slots)))
    return act


def _bounded_rotation(vector):
    r"""Shorten a rotation vector of more than $\pi$ by whole turns."""
    angle = safe_sqrt(jnp.sum(vector * vector, axis=0, keepdims=True))
    large = angle > jnp.pi
    scale = wrap(angle, 2.0 * jnp.pi) / jnp.where(large, angle, 1.0)
    return jnp.where(large, vector * scale, vector)
