"""Sensors: values measured at one state.

`sensor_values` computes all sensors of a robot, a group of kinds at a time: `_frame_sensors`,
`_joint_sensors`, `_subtrees` (momentum, interaction forces), `_contact_sensors`, and
`_distances` on the intersections of `_rays` and `_ray_casts`. `sensor_inputs` is what they
read: the record of a step and the forces at its solution. `_ray_casts` also has functions for
rays and height scans of your own. Pipelines import this package.
"""

from ._ray_casts import (
    cast_rays as cast_rays,
    grid_pattern as grid_pattern,
    height_scan as height_scan,
    pinhole_pattern as pinhole_pattern,
    RayHits as RayHits,
    ring_pattern as ring_pattern,
)
