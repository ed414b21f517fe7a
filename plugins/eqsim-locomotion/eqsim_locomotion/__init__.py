"""Legged robots that follow velocity commands.

`_robots` describes robots by names and loads their files; `_commands` draws commands;
`_rewards` has the reward terms by name; `_velocity` is the task that puts them together.
"""

from ._commands import Commands as Commands
from ._rewards import Motion as Motion, TERMS as TERMS
from ._robots import (
    add_servos as add_servos,
    load_robot as load_robot,
    menagerie_file as menagerie_file,
    Robot as Robot,
    ROBOTS as ROBOTS,
)
from ._velocity import (
    a1_velocity as a1_velocity,
    anymal_c_velocity as anymal_c_velocity,
    apollo_velocity as apollo_velocity,
    barkour_velocity as barkour_velocity,
    berkeley_humanoid_velocity as berkeley_humanoid_velocity,
    g1_velocity as g1_velocity,
    go1_velocity as go1_velocity,
    go2_velocity as go2_velocity,
    h1_velocity as h1_velocity,
    op3_velocity as op3_velocity,
    spot_velocity as spot_velocity,
    t1_velocity as t1_velocity,
    VelocityState as VelocityState,
    VelocityTracking as VelocityTracking,
)
