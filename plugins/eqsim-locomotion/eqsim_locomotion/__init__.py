"""Legged robots that follow velocity commands, and humanoids that track motions.

`_robots` describes robots by names and loads their files. `_legged` has what the tasks share:
commands, servos, observations, reports; `_rewards` has the reward terms by name. `_velocity` is
the task of following commands. `_motion` loads a reference, `_tracking` is the task of tracking
it, `_adaptive_starts` starts its episodes where the robot fails. `_tasks` has the tasks of each
robot.
"""

from ._adaptive_starts import (
    AdaptiveStarts as AdaptiveStarts,
    AdaptiveStartsState as AdaptiveStartsState,
)
from ._legged import Commands as Commands
from ._motion import (
    load_motion as load_motion,
    ReferenceMotion as ReferenceMotion,
    squats as squats,
)
from ._rewards import (
    LinkStates as LinkStates,
    Motion as Motion,
    TERMS as TERMS,
    TRACKING_TERMS as TRACKING_TERMS,
    TrackingStep as TrackingStep,
)
from ._robots import (
    add_servos as add_servos,
    load_robot as load_robot,
    menagerie_file as menagerie_file,
    Robot as Robot,
    ROBOTS as ROBOTS,
)
from ._tasks import (
    a1_velocity as a1_velocity,
    a1_velocity_rough as a1_velocity_rough,
    anymal_c_velocity as anymal_c_velocity,
    anymal_c_velocity_rough as anymal_c_velocity_rough,
    apollo_velocity as apollo_velocity,
    apollo_velocity_rough as apollo_velocity_rough,
    barkour_velocity as barkour_velocity,
    barkour_velocity_rough as barkour_velocity_rough,
    berkeley_humanoid_velocity as berkeley_humanoid_velocity,
    berkeley_humanoid_velocity_rough as berkeley_humanoid_velocity_rough,
    g1_motion as g1_motion,
    g1_velocity as g1_velocity,
    g1_velocity_rough as g1_velocity_rough,
    go1_velocity as go1_velocity,
    go1_velocity_rough as go1_velocity_rough,
    go2_velocity as go2_velocity,
    go2_velocity_rough as go2_velocity_rough,
    h1_motion as h1_motion,
    h1_velocity as h1_velocity,
    h1_velocity_rough as h1_velocity_rough,
    motion_tracking as motion_tracking,
    op3_velocity as op3_velocity,
    op3_velocity_rough as op3_velocity_rough,
    rough_terrain as rough_terrain,
    rough_velocity as rough_velocity,
    spot_velocity as spot_velocity,
    spot_velocity_rough as spot_velocity_rough,
    t1_motion as t1_motion,
    t1_velocity as t1_velocity,
    t1_velocity_rough as t1_velocity_rough,
)
from ._tracking import (
    MotionTracking as MotionTracking,
    TrackingState as TrackingState,
)
from ._velocity import (
    VelocityState as VelocityState,
    VelocityTracking as VelocityTracking,
)
