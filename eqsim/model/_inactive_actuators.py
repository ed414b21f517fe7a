"""Parameters of actuators without influence on the motion."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from ._inactive_rules import beyond, rows, Rule
from ._kinds import (
    Activation,
    ActivationState,
    Bias,
    Control,
    Gain,
    JointKind,
    Transmission,
)
from ._system import System


def actuators(sys: System) -> Iterator[Rule]:
    """Yield rules of actuators, muscles, DC motors and PID servos."""
    actuators = sys.actuators
    for name, limited in (
        ("ctrl", actuators.ctrl_limited),
        ("force", actuators.force_limited),
        ("act", actuators.act_limited),
    ):
        off = rows([not flag for flag in limited])
        yield Rule(f"actuators.{name}_range", off, f"Actuators.{name}_limited is False")
    filters = (Activation.FILTER, Activation.FILTER_EXACT)
    marks = [kind not in filters for kind in actuators.activation]
    yield Rule("actuators.time_constant", rows(marks), "the actuator has no filter")
    marks = [not states for states in actuators.states]
    yield Rule("actuators.act_range", rows(marks), "the actuator has no activation")
    marks = [kind is Activation.DC_MOTOR for kind in actuators.activation]
    reason = "the states of a DC motor have bounds of their own"
    yield Rule("actuators.act_range", rows(marks), reason)
    off = [not enabled for enabled in actuators.enabled]
    for name in ("gain", "bias", "force_range"):
        yield Rule(f"actuators.{name}", rows(off), "the actuator is disabled")
    marks = [kind is not Transmission.SLIDER_CRANK for kind in actuators.transmissions]
    yield Rule("actuators.crank_length", rows(marks), "the actuator has no crank")
    marks = [
        joint == -1 and kind is not Transmission.TENDON or count > 1
        for joint, kind, count in zip(
            actuators.joints, actuators.transmissions, actuators.num_outputs
        )
    ]
    reason = "the actuator does not act on a joint or tendon with one force"
    fields = ("damping", "damping_poly", "armature")
    for name in [name for name in fields if vars(actuators)[name] is not None]:
        yield Rule(f"actuators.{name}", rows(marks), reason)
    yield from _force_laws(sys)
    yield from _motors(sys)
    yield from _pids(sys)


def _force_laws(sys: System) -> Iterator[Rule]:
    actuators = sys.actuators
    kinds = [
        sys.joints.kinds[joint] if joint >= 0 else None for joint in actuators.joints
    ]
    own = {Transmission.SITE: 6, Transmission.ORIENTATION: 0, Transmission.BODY: 0}
    read = [
        own.get(transmission, 1 if kind is None else kind.nv)
        for transmission, kind in zip(actuators.transmissions, kinds)
    ]
    read = [n for n, count in zip(read, actuators.num_outputs) for _ in range(count)]
    reason = "the transmission has fewer directions"
    yield Rule("actuators.gear", beyond(read, 6), reason)
    ends = zip(kinds, actuators.transmissions, actuators.targets)
    marks = [
        kind is JointKind.FREE
        or transmission is Transmission.BODY
        or (transmission is Transmission.SITE and reference == -1)
        for kind, transmission, (_, reference) in ends
    ]
    lengthless = np.outer(marks, [False, True, False])
    reason = "the force law has other parameters"
    for name, laws, others in (
        ("gain", actuators.gains, (Gain.MUSCLE, Gain.DC_MOTOR, Gain.PID)),
        ("bias", actuators.biases, (Bias.MUSCLE, Bias.DC_MOTOR)),
    ):
        yield Rule(f"actuators.{name}", lengthless, "the transmission has no length")
        yield Rule(f"actuators.{name}", rows([law in others for law in laws]), reason)
    turns = [gain is Gain.ORIENTATION for gain in actuators.gains]
    yield Rule("actuators.gain", np.outer(turns, [False, True, True]), reason)
    turns = [bias is Bias.ORIENTATION for bias in actuators.biases]
    yield Rule("actuators.bias", np.outer(turns, [False, True, False]), reason)
    if actuators.muscles is not None:
        scaled = rows(actuators.muscles.scaled)
        yield Rule("actuators.muscles.force", scaled, "the peak force is scaled")
        yield Rule("actuators.muscles.scale", ~scaled, "the peak force is given")


# Parameters of DC motors that are used only with a controller, and with one of their
# states.
_CONTROLLER = ("proportional", "integral", "derivative", "max_voltage")
_READ_WITH = {
    ActivationState.SLEW: ("max_slew",),
    ActivationState.INTEGRAL: ("integral", "max_integral"),
    ActivationState.TEMPERATURE: (
        *("temperature_coefficient", "reference_temperature", "ambient_temperature"),
        *("thermal_resistance", "thermal_capacitance"),
    ),
    ActivationState.BRISTLE: (
        *("bristle_stiffness", "bristle_damping", "coulomb_friction"),
        *("static_friction", "stribeck_velocity"),
    ),
    ActivationState.CURRENT: ("time_constant", "max_current_rate"),
}


def _motors(sys: System) -> Iterator[Rule]:
    actuators, motors = sys.actuators, sys.actuators.motors
    if motors is None:
        return
    controls = {Control.POSITION, Control.VELOCITY, Control.FORCE}
    marks = [not controls & set(actuators.inputs[k]) for k in motors.owners]
    for name in _CONTROLLER:
        yield Rule(
            f"actuators.motors.{name}", rows(marks), "the motor has no controller"
        )
    for state, names in _READ_WITH.items():
        marks = [state not in actuators.states[k] for k in motors.owners]
        reason = f"the motor has no state {state.value!r}"
        for name in names:
            yield Rule(f"actuators.motors.{name}", rows(marks), reason)
    silent = rows([actuators.biases[k] is not Bias.DC_MOTOR for k in motors.owners])
    off = rows([not actuators.enabled[k] for k in motors.owners])
    mechanical = ("cogging", "cogging_periods", "cogging_phase", "bristle_damping")
    for name in mechanical:
        reason = "the actuator has another bias"
        yield Rule(f"actuators.motors.{name}", silent, reason)
    # As in MuJoCo, bristles of a disabled motor follow its velocity.
    moving = set(_READ_WITH[ActivationState.BRISTLE]) - {"bristle_damping"}
    for field in dataclasses.fields(motors):
        if field.name not in {"owners", "max_integral", *moving}:
            path = f"actuators.motors.{field.name}"
            yield Rule(path, off, "the actuator is disabled")


def _pids(sys: System) -> Iterator[Rule]:
    actuators, pids = sys.actuators, sys.actuators.pids
    if pids is None:
        return
    off = rows([not actuators.enabled[k] for k in pids.owners])
    for state, name in (
        (ActivationState.INTEGRAL, "integral_gain"),
        (ActivationState.SLEW, "max_slew"),
    ):
        marks = [state not in actuators.states[k] for k in pids.owners]
        reason = f"the servo has no state {state.value!r}"
        yield Rule(f"actuators.pids.{name}", rows(marks), reason)
        yield Rule(f"actuators.pids.{name}", off, "the actuator is disabled")
    reason = "it only says when the integral stops"
    yield Rule("actuators.pids.max_integral", True, reason)
