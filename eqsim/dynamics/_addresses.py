"""Static places of actuators in `ctrl`, in `State.act`, and among actuator forces."""

import functools as ft
from collections.abc import Sequence
from typing import NamedTuple

from ..model import ActivationState, ActuatorStructure, Control, Transmission


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
