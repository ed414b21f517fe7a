"""Reading of actuators and the parameters of their laws."""

import math
from typing import Any

import numpy as np

from ...actuators import Delay
from ...model import (
    Activation,
    ActivationState,
    Actuators,
    Bias,
    Control,
    DCMotors,
    DiscretePIDs,
    Gain,
    Keyframes,
    Muscles,
    PIDs,
    System,
    Transmission,
)
from ...model.actuator_parameters import MuscleActivations, velocity_gains
from ._table import as_tuple, DISCRETE_PID, LAWS, MUSCLE, read_fields
from .mujoco_names import (
    element_names,
    Flags,
    kind_names,
    plugin_number,
    plugin_settings,
)


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
        scaled=as_tuple(table[:, 2] < 0),
        length_range=model.actuator_lengthrange[model.actuator_outadr[owners]],
        range=table[:, :2],
        **{name: table[:, column] for column, name in enumerate(MUSCLE, start=2)},
    )


def _read_laws(model: Any, gains, activation) -> dict[str, Any]:
    """Read the parameters of laws by field of `Actuators`; None if no actuator has it."""
    classes: dict[str, tuple[Any, tuple, Any]] = {
        "muscle_activations": (MuscleActivations, activation, Activation.MUSCLE),
        "motors": (DCMotors, gains, Gain.DC_MOTOR),
        "pids": (PIDs, gains, Gain.PID),
    }
    out: dict[str, Any] = {}
    for law, (make, own, kind) in classes.items():
        owners = tuple(k for k, each in enumerate(own) if each is kind)
        numbers = {
            name: getattr(model, f"actuator_{array}")[list(owners), column]
            for name, (array, column) in LAWS[law].items()
        }
        out[law] = make(owners=owners, **numbers) if owners else None
    return out


def law_parameters(actuators: Actuators, k: int) -> dict[str, np.ndarray]:
    """Return MuJoCo's `gainprm`, `biasprm` and `dynprm` of an actuator."""
    arrays = {key: np.zeros(10) for key in ("gainprm", "biasprm", "dynprm")}
    arrays["gainprm"][:3] = actuators.gain[k]
    arrays["biasprm"][:3] = actuators.bias[k]
    arrays["dynprm"][0] = actuators.time_constant[k]
    muscles = actuators.muscles
    if muscles is not None:
        rows = {"gainprm": muscles.gain_rows[k], "biasprm": muscles.bias_rows[k]}
        for key, row in rows.items():
            if row >= 0:
                numbers = [getattr(muscles, name)[row] for name in MUSCLE]
                numbers[0] = -1.0 if muscles.scaled[row] else numbers[0]
                arrays[key][:9] = [*muscles.range[row], *numbers]
    for law, places in LAWS.items():
        own = getattr(actuators, law)
        if own is not None and k in own.owners:
            for name, (key, column) in places.items():
                arrays[key][column] = getattr(own, name)[own.owners.index(k)]
    return arrays


def read_actuators(model: Any, flags: Flags) -> Actuators:
    """Convert the actuators of a `mujoco.MjModel`."""
    # Fixed gains, absent biases and laws left out are affine ones with zero coefficients.
    laws, plugins = kind_names("mjtGain", model.actuator_gaintype), pid_plugins(model)
    laws = np.where(plugins, Gain.DISCRETE_PID.value, laws)
    affine = ("fixed", "none", "user")
    gains = tuple(Gain("affine" if x in affine else x) for x in laws)
    own = kind_names("mjtBias", model.actuator_biastype)
    biases = tuple(Bias("affine" if x in affine else x) for x in own)
    gain, bias = _affine(model, laws)
    fields = read_fields("actuator", model, flags)
    # MuJoCo ignores damping and armature of orientation servos.
    transmissions = kind_names("mjtTrn", model.actuator_trntype)
    servo = transmissions == "so3"
    for name in ("damping", "damping_poly", "armature"):
        if fields[name] is not None:
            fields[name][servo] = 0.0
            fields[name] = fields[name] if np.any(fields[name]) else None
    dynamics = kind_names("mjtDyn", model.actuator_dyntype)
    has_own = np.isin(dynamics, ["muscle", "dcmotor", "pid"])
    has_own |= np.isin(laws, ["dcmotor", "pid"])
    activation = tuple(map(Activation, dynamics))
    # MuJoCo's plugin clips controls whatever the flag is.
    clips = np.repeat(plugins & (dynamics == "none"), model.actuator_ctrlnum)
    lengths = model.actuator_cranklength
    return Actuators(
        names=element_names(model, "actuator"),
        transmissions=tuple(map(Transmission, transmissions)),
        targets=tuple(map(_target, transmissions, model.actuator_trnid.tolist())),
        gains=gains,
        biases=biases,
        activation=activation,
        inputs=tuple(_inputs(model, k, law) for k, law in enumerate(laws)),
        states=tuple(
            _pid_plugin_states(model, k, kind)
            if plugins[k]
            else _states(model, k, kind)
            for k, kind in enumerate(activation)
        ),
        wraps=as_tuple(wrapping_servos(model)),
        enabled=as_tuple(~idle_actuators(model, flags)),
        active=flags.actuation,
        has_velocity_gain=velocity_gains(gains, biases, gain, bias),
        ctrl_limited=as_tuple(
            model.actuator_ctrllimited.astype(bool) & (clips | flags.clampctrl)
        ),
        gear=model.actuator_gear,
        gain=gain,
        bias=bias,
        time_constant=np.where(has_own, 1.0, model.actuator_dynprm[:, 0]),
        ctrl_range=model.actuator_ctrlrange,
        crank_length=lengths if "slidercrank" in transmissions else None,
        muscles=read_muscles(model, gains, biases),
        discrete_pids=_read_pid_plugins(model, np.flatnonzero(plugins).tolist()),
        **_read_laws(model, gains, activation),
        **fields,
    )


INTERPOLATIONS = {"previous": "zoh", "linear": "linear", "cubic": "cubic"}
"""Names of the interpolations of `Delay` in MJCF (`interp`), in MuJoCo's order."""


def with_delays(sys: System, model: Any, flags: Flags) -> System:
    """Attach the delays of actuators. MuJoCo reads controls of past time steps alone, so
    that a delay lasts at least one."""
    delays, settings = model.actuator_delay, model.actuator_history
    delayed = (delays > 0) & ~idle_actuators(model, flags) & ~ignores_delay(model)
    delayed &= model.actuator_ctrlnum == 1
    for samples, order in sorted({*map(tuple, settings[delayed].tolist())}):
        chosen = np.flatnonzero(delayed & np.all(settings == (samples, order), axis=1))
        least = np.maximum(delays[chosen], model.opt.timestep)
        own = [Delay(x, samples, [*INTERPOLATIONS][order]) for x in least]
        sys = sys.with_actuator_model([sys.actuators.names[k] for k in chosen], own)
    return sys


# The plugin `mujoco.pid`.


PID_PLUGIN = "mujoco.pid"
"""Name of the plugin."""
_SERVO = """
<worldbody><body><joint name="joint"/><geom size="1"/></body></worldbody>
<actuator><plugin plugin="mujoco.pid" instance="one" joint="joint"/></actuator>"""


def pid_plugins(model: Any) -> np.ndarray:
    """Return true for the actuators of the plugin `mujoco.pid`."""
    instances = model.actuator_plugin
    if not np.any(instances >= 0):
        return instances >= 0
    return (instances >= 0) & (
        model.plugin[instances] == plugin_number(PID_PLUGIN, _SERVO)
    )


def ignores_delay(model: Any) -> np.ndarray:
    """Return true for actuators whose plugin reads the control without its delay: those
    without activation."""
    dynamics = kind_names("mjtDyn", model.actuator_dyntype)
    return pid_plugins(model) & (dynamics == "none")


def _settings(model: Any, k: int) -> dict[str, str]:
    """Return the settings of the plugin of an actuator."""
    return plugin_settings(model, int(model.actuator_plugin[k]), DISCRETE_PID)


def pid_plugin_problem(model: Any, flags: Flags, k: int) -> str | None:
    """Return why an actuator with the plugin is not simulated; None if it is."""
    one = lambda enumeration, numbers: str(kind_names(enumeration, numbers[[k]])[0])
    dynamics = one("mjtDyn", model.actuator_dyntype)
    gain = one("mjtGain", model.actuator_gaintype)
    bias = one("mjtBias", model.actuator_biastype)
    if dynamics not in ("none", "integrator", "filter", "filterexact"):
        return f'dyntype="{dynamics}"'
    if (gain, bias) != ("fixed", "none"):
        return f'gaintype="{gain}" and biastype="{bias}" of its default class'
    if (model.actuator_ctrladr[k], model.actuator_outadr[k]) != (k, k):
        return "listed after actuators with several controls or forces, or no control"
    if flags.actuation and idle_actuators(model, flags)[k]:
        return "in a disabled group, where the plugin still exerts its force"
    for key, word in _settings(model, k).items():
        try:
            known = math.isfinite(float(word))
        except ValueError:
            known = False
        if not known:
            return f'{key}="{word}", which is not a finite number'
    return None


def _read_pid_plugins(model: Any, owners: list[int]) -> DiscretePIDs | None:
    if not owners:
        return None
    default = {"imax": math.inf}
    rows = [_settings(model, k) for k in owners]
    numbers = {
        name: np.array([float(row.get(key, default.get(key, 0.0))) for row in rows])
        for key, name in DISCRETE_PID.items()
    }
    # Without an integral there is nothing to bound.
    numbers["max_integral"][numbers["integral"] == 0] = math.inf
    return DiscretePIDs(owners=tuple(owners), **numbers)


def _pid_plugin_states(
    model: Any, k: int, kind: Activation
) -> tuple[ActivationState, ...]:
    own, state = _settings(model, k), ActivationState
    slews = "slewmax" in own
    present = (
        (state.INTEGRAL, float(own.get("ki", 0.0)) != 0),
        (state.SLEW, slews),
        (state.STARTED, slews),
        (state.SIGNAL, kind is not Activation.NONE),
    )
    return tuple(each for each, on in present if on)


def mujoco_activations(actuators: Actuators) -> list[int]:
    """Return the places in `State.act` of MuJoCo's activations: of all states but the
    marks of the first step, for which MuJoCo reads the time."""
    states = [state for own in actuators.states for state in own]
    return [i for i, x in enumerate(states) if x is not ActivationState.STARTED]


def read_keyframes(model: Any, flags: Flags, actuators: Actuators) -> Keyframes:
    """Convert the keyframes of a `mujoco.MjModel`."""
    fields = read_fields("key", model, flags)
    started = (model.key_time > 0).astype(float)[:, None]
    act = np.tile(started, (1, actuators.na))
    act[:, mujoco_activations(actuators)] = fields["act"]
    return Keyframes(names=element_names(model, "key"), **fields | {"act": act})


def _affine(model: Any, gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read affine gains and biases; zeros for laws with other parameters."""
    gain = np.array(model.actuator_gainprm[:, :3])
    bias = np.array(model.actuator_biasprm[:, :3])
    biases = kind_names("mjtBias", model.actuator_biastype)
    gain[gains != "affine", 1:] = 0
    gain[~np.isin(gains, ["fixed", "affine", "so3"])] = 0
    bias[biases == "so3", 1] = 0
    bias[~np.isin(biases, ["affine", "so3"])] = 0
    return gain, bias


def _target(kind: str, ids: list[int]) -> tuple[int, int]:
    first, second = ids
    if kind == "body":
        return first - 1, -1
    return first, second if kind in ("site", "slidercrank", "so3") else -1


def _inputs(model: Any, k: int, law: str) -> tuple[Control, ...]:
    spec, count = int(model.actuator_ctrlspec[k]), int(model.actuator_ctrlnum[k])
    if law == "so3":
        return ((Control.QUATERNION if count == 4 else Control.ROTATION),) * count
    if law not in ("pid", "dcmotor"):
        return (Control.SIGNAL,) * count
    order = (Control.POSITION, Control.VELOCITY, Control.FORCE, Control.VOLTAGE)
    return tuple(control for bit, control in enumerate(order) if spec & (1 << bit))


def _states(model: Any, k: int, kind: Activation) -> tuple[ActivationState, ...]:
    count, state = int(model.actuator_actnum[k]), ActivationState
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


def wrapping_servos(model: Any) -> np.ndarray:
    """Return true for servos whose setpoint MuJoCo wraps (`wrapPeriod`)."""
    m = model
    gains = kind_names("mjtGain", m.actuator_gaintype)
    biases = kind_names("mjtBias", m.actuator_biastype)
    direct = np.isin(kind_names("mjtDyn", m.actuator_dyntype), ["none", "integrator"])
    servo = (gains == "fixed") & (biases == "affine") & direct
    servo &= m.actuator_gainprm[:, 0] == -m.actuator_biasprm[:, 1]
    servo |= gains == "pid"
    transmissions = kind_names("mjtTrn", m.actuator_trntype)
    on_joint = np.isin(transmissions, ["joint", "jointinparent"])
    joints = np.append(kind_names("mjtJoint", m.jnt_type), "none")
    on_ball = joints[np.where(on_joint, m.actuator_trnid[:, 0], -1)] == "ball"
    gear = m.actuator_gear[m.actuator_outadr]
    on_site = (transmissions == "site") & (m.actuator_trnid[:, 1] >= 0)
    turns = on_site & ~np.any(gear[:, :3], axis=1) & np.any(gear[:, 3:], axis=1)
    return servo & ((on_ball & np.any(gear[:, :3], axis=1)) | turns)


def idle_actuators(model: Any, flags: Flags) -> np.ndarray:
    """Return true for disabled actuators: all, or those of disabled groups."""
    # Groups outside 0..30 cannot be disabled.
    group = model.actuator_group
    off = (model.opt.disableactuator >> np.clip(group, 0, 30)) & 1
    return ((group >= 0) & (group <= 30) & (off == 1)) | (not flags.actuation)
