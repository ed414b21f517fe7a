"""Values of all sensors of a robot, as a dictionary by name."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from ..dynamics.algorithms import kinetic_energy_of, potential_energy_of
from ..model import Cutoff, SENSOR_FACTS, SensorKind, System
from ..model.arrays import take
from ..model.sensor_kinds import Stage
from ..spatial.clamps import at_least, at_most
from ._contact_sensors import CONTACT_SENSORS
from ._distances import DISTANCE_SENSORS, RAY_SENSORS
from ._frame_sensors import FRAME_SENSORS
from ._joint_sensors import ACTUATOR_SENSORS, JOINT_SENSORS, TENDON_SENSORS
from ._subtrees import INTERACTION_SENSORS, SUBTREE_SENSORS
from .sensor_inputs import SensorInputs


def potential_energies(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the potential energy, `(n, 1, *batch)`."""
    return jnp.stack(len(chosen) * [potential_energy_of(sys, now.data.q)[None]])


def kinetic_energies(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the kinetic energy, `(n, 1, *batch)`."""
    return jnp.stack(
        len(chosen) * [kinetic_energy_of(sys, now.data.q, now.data.qd)[None]]
    )


def clocks(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return the time, `(n, 1, *batch)`."""
    return jnp.stack(len(chosen) * [now.time[None] + jnp.zeros_like(now.data.q[:1])])


GLOBAL_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.POTENTIAL_ENERGY: potential_energies,
    SensorKind.KINETIC_ENERGY: kinetic_energies,
    SensorKind.CLOCK: clocks,
}


_FUNCTIONS: dict[SensorKind, Callable] = {
    **JOINT_SENSORS,
    **TENDON_SENSORS,
    **ACTUATOR_SENSORS,
    **FRAME_SENSORS,
    **INTERACTION_SENSORS,
    **CONTACT_SENSORS,
    **RAY_SENSORS,
    **DISTANCE_SENSORS,
    **SUBTREE_SENSORS,
    **GLOBAL_SENSORS,
}

_ACTUATED = (
    *ACTUATOR_SENSORS,
    SensorKind.JOINT_ACTUATOR_FORCE,
    SensorKind.TENDON_ACTUATOR_FORCE,
)


def needs_solution(sys: System) -> bool:
    """Test if a sensor uses the solution of the equations of motion."""
    stages = (SENSOR_FACTS[kind].stage for kind in sys.sensors.kinds)
    return any(stage is Stage.ACCELERATION for stage in stages)


def needs_contacts(sys: System) -> bool:
    """Test if a sensor reports contacts."""
    return any(kind in CONTACT_SENSORS for kind in sys.sensors.kinds)


def needs_actuators(sys: System) -> bool:
    """Test if a sensor uses the actuators."""
    return any(kind in _ACTUATED for kind in sys.sensors.kinds)


def sensor_values(sys: System, now: SensorInputs) -> dict[str, Any]:
    """Compute the values of all sensors, `(size, *batch)` each (batch axes last).

    Only quantities that the sensors of this robot read are computed.
    """
    sensors = sys.sensors
    values: dict[int, Any] = {}
    for kind in dict.fromkeys(sensors.kinds):
        chosen = [k for k, own in enumerate(sensors.kinds) if own is kind]
        found = _FUNCTIONS[kind](sys, now, chosen)
        for row, k in enumerate(chosen):
            values[k] = _cut(sys, k, found[row])
    return {name: values[k] for k, name in enumerate(sensors.names)}


def _cut(sys: System, sensor: int, value):
    """Apply the cutoff of a sensor."""
    bound = SENSOR_FACTS[sys.sensors.kinds[sensor]].cutoff
    if bound is Cutoff.NONE or not sys.sensors.limited[sensor]:
        return value
    cutoff = take(sys.sensors.cutoff, [sensor])
    value = at_most(value, cutoff)
    return value if bound is Cutoff.ABOVE else at_least(value, -cutoff)
