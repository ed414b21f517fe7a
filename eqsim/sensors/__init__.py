"""Sensors: values measured at one state.

`sensor_values` computes all sensors of a robot, a group of kinds at a time: `_frame_sensors`,
`_joint_sensors`, `_subtrees` (momentum, interaction forces), `_contact_sensors`, and
`_distances` on the intersections of `_rays`. `sensor_inputs` is what they read: the record of a
step and the forces at its solution. Pipelines import this package.
"""
