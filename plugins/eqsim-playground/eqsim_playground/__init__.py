"""Robots and tasks of MuJoCo Playground for eqsim."""

from ._commands import (
    AbstractCommands as AbstractCommands,
    Commands as Commands,
    UniformCommands as UniformCommands,
)
from ._go1_joystick import (
    go1_joystick_flat as go1_joystick_flat,
    go1_model as go1_model,
    Go1Joystick as Go1Joystick,
)
from ._go1_poses import (
    GetupWeights as GetupWeights,
    go1_footstand as go1_footstand,
    go1_getup as go1_getup,
    go1_handstand as go1_handstand,
    Go1Getup as Go1Getup,
    Go1Stand as Go1Stand,
    PoseState as PoseState,
    StandWeights as StandWeights,
)
from ._go1_rewards import JoystickWeights as JoystickWeights
from ._humanoid_rewards import (
    HumanoidTargets as HumanoidTargets,
    HumanoidWeights as HumanoidWeights,
)
from ._humanoids import (
    AbstractHumanoid as AbstractHumanoid,
    berkeley_humanoid_joystick_flat as berkeley_humanoid_joystick_flat,
    BerkeleyHumanoidJoystick as BerkeleyHumanoidJoystick,
    g1_joystick_flat as g1_joystick_flat,
    G1Joystick as G1Joystick,
    t1_joystick_flat as t1_joystick_flat,
    T1Joystick as T1Joystick,
)
from ._joystick import (
    AbstractJoystick as AbstractJoystick,
    GaitClock as GaitClock,
    GaitPhase as GaitPhase,
    JoystickState as JoystickState,
)
from ._leap_hand import (
    leap_model as leap_model,
    leap_model_without_goal as leap_model_without_goal,
    LeapReading as LeapReading,
    read_leap as read_leap,
)
from ._leap_reorient import (
    leap_cube_reorient as leap_cube_reorient,
    LeapReorient as LeapReorient,
    ReorientNoise as ReorientNoise,
    ReorientState as ReorientState,
    ReorientWeights as ReorientWeights,
)
from ._leap_rotate_z import (
    leap_cube_rotate_z as leap_cube_rotate_z,
    LeapRotateZ as LeapRotateZ,
    RotateState as RotateState,
    RotateWeights as RotateWeights,
)
from ._observation import JoystickNoise as JoystickNoise
from ._panda_pick_cube import (
    panda_model as panda_model,
    panda_pick_cube as panda_pick_cube,
    panda_pick_cube_orientation as panda_pick_cube_orientation,
    PandaPickCube as PandaPickCube,
    PickState as PickState,
    PickWeights as PickWeights,
)
from ._ppo import ppo_settings as ppo_settings
from ._pushes import (
    AbstractPushes as AbstractPushes,
    Kicks as Kicks,
    KickState as KickState,
    Pushes as Pushes,
    PushState as PushState,
)
from ._randomization import (
    random_berkeley_humanoid as random_berkeley_humanoid,
    random_g1 as random_g1,
    random_go1 as random_go1,
    random_t1 as random_t1,
    RandomLegged as RandomLegged,
)
from ._reading import (
    legged_model as legged_model,
    LeggedRobot as LeggedRobot,
    LeggedSensors as LeggedSensors,
    read_legged as read_legged,
)
from ._shaping import HumanoidShaping as HumanoidShaping
from ._task import AbstractPlaygroundTask as AbstractPlaygroundTask
