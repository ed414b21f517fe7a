"""Sensors: values measured at one state."""

from ._inputs import (
    AppliedWrenches as AppliedWrenches,
    LimitForces as LimitForces,
    SensorInputs as SensorInputs,
    SolvedForces as SolvedForces,
)
from ._values import (
    needs_actuators as needs_actuators,
    needs_contacts as needs_contacts,
    needs_solution as needs_solution,
    sensor_values as sensor_values,
)
