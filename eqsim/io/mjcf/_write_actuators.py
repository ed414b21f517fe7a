"""Writing of actuators as MJCF elements `general`."""

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np

from ...model import Activation, Actuators, Bias, Control, Gain, System, Transmission
from ._actuator_laws import law_parameters
from ._xml import add_element


# Group of disabled actuators.
_OFF = 1


def disabled_groups(sys: System) -> dict[str, Any]:
    """Return the option that disables actuators."""
    actuators = sys.actuators
    if not actuators.active or all(actuators.enabled):
        return {}
    return {"actuatorgroupdisable": _OFF}


def write_actuators(root: ET.Element, sys: System) -> None:
    """Add the actuators to a model."""
    part = ET.SubElement(root, "actuator")
    actuators = sys.actuators
    for k, name in enumerate(actuators.names):
        attributes = {
            "name": name,
            **_target(sys, k),
            **_laws(actuators, k),
            **_ranges(actuators, k),
            "gear": actuators.gear[actuators.out_starts[k]],
            "actearly": actuators.act_early[k],
        }
        if actuators.active and not actuators.enabled[k]:
            attributes["group"] = _OFF
        add_element(part, "general", attributes)


def _target(sys: System, k: int) -> dict[str, Any]:
    actuators = sys.actuators
    kind, (first, second) = actuators.transmissions[k], actuators.targets[k]
    if actuators.joints[k] >= 0:
        in_parent = kind is Transmission.JOINT_IN_PARENT
        return {"jointinparent" if in_parent else "joint": sys.joints.names[first]}
    if kind is Transmission.BODY:
        return {"body": (*sys.links.names, "world")[first]}
    if kind is Transmission.TENDON:
        return {"tendon": sys.tendons.names[first]}
    names = sys.sites.names
    if kind is Transmission.SLIDER_CRANK:
        assert actuators.crank_length is not None, "there are slider-cranks"
        length = actuators.crank_length[k]
        return {
            "cranksite": names[first],
            "slidersite": names[second],
            "cranklength": length,
        }
    if second < 0:
        return {"site": names[first]}
    return {"site": names[first], "refsite": names[second]}


def _laws(actuators: Actuators, k: int) -> dict[str, Any]:
    numbers = law_parameters(actuators, k)
    gain, bias = actuators.gains[k], actuators.biases[k]
    gaintype, biastype = gain.value, bias.value
    if gain is Gain.AFFINE and not np.any(actuators.gain[k, 1:]):
        gaintype = "fixed"
    if bias is Bias.AFFINE and gain is not Gain.PID and not np.any(actuators.bias[k]):
        biastype = "none"
    if gain is Gain.ORIENTATION:
        numbers["biasprm"][1] = -numbers["gainprm"][0]
    out = {
        "dyntype": actuators.activation[k].value,
        "gaintype": gaintype,
        "biastype": biastype,
        **numbers,
    }
    signals = actuators.inputs[k]
    if gain is Gain.ORIENTATION:
        out["input"] = signals[0].value
    elif Control.SIGNAL not in signals:
        out["input"] = " ".join(signal.value for signal in signals) or "none"
    if actuators.activation[k] is Activation.DC_MOTOR:
        out["actdim"] = len(actuators.states[k])
    if actuators.muscles is not None and k in actuators.muscles.owners:
        row = actuators.muscles.owners.index(k)
        out["lengthrange"] = actuators.muscles.length_range[row]
    return out


def _ranges(actuators: Actuators, k: int) -> dict[str, Any]:
    out: dict[str, Any] = {
        "forcelimited": actuators.force_limited[k],
        "forcerange": actuators.force_range[k],
    }
    signals, first = actuators.inputs[k], actuators.ctrl_starts[k]
    if actuators.gains[k] is Gain.PID:
        names = {Control.VELOCITY: "velrange", Control.FORCE: "ffrange"}
        for j, signal in enumerate(signals):
            if signal in names:
                limited = actuators.ctrl_limited[first + j]
                span = actuators.ctrl_range[first + j]
                out[names[signal]] = span if limited else [0.0, 0.0]
    shared = not signals or signals[0] not in (Control.VELOCITY, Control.FORCE)
    if signals and (shared or actuators.gains[k] is not Gain.PID):
        out["ctrllimited"] = actuators.ctrl_limited[first]
        out["ctrlrange"] = actuators.ctrl_range[first]
    if actuators.activation[k] is not Activation.NONE:
        out["actlimited"] = actuators.act_limited[k]
        out["actrange"] = actuators.act_range[k]
    for name in ("damping", "armature"):
        values = vars(actuators)[name]
        if values is not None:
            out[name] = values[k]
    if actuators.damping_poly is not None:
        linear = (
            np.zeros(1) if actuators.damping is None else actuators.damping[k : k + 1]
        )
        out["damping"] = np.concatenate([linear, actuators.damping_poly[k]])
    return out
