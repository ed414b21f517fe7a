"""Sensors: values measured at one state.

`_values` computes all sensors of a robot, a group of kinds at a time: `_frame_sensors`,
`_joint_sensors`, `_subtrees` (momentum, interaction forces), `_contact_sensors`, and
`_distances` on the intersections of `_rays`. `_inputs` is what they read: the record of a
step and the forces at its solution. Pipelines import this package.
"""

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
