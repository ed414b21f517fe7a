"""Robots and tasks of MuJoCo Playground for eqsim."""

from ._drawn import (
    AbstractCommands as AbstractCommands,
    AbstractPushes as AbstractPushes,
    Commands as Commands,
    Kicks as Kicks,
    KickState as KickState,
    Pushes as Pushes,
    PushState as PushState,
    random_berkeley_humanoid as random_berkeley_humanoid,
    random_g1 as random_g1,
    random_go1 as random_go1,
    random_t1 as random_t1,
    RandomLegged as RandomLegged,
    UniformCommands as UniformCommands,
)
from ._go1 import (
    GetupWeights as GetupWeights,
    go1_footstand as go1_footstand,
    go1_getup as go1_getup,
    go1_handstand as go1_handstand,
    go1_joystick_flat as go1_joystick_flat,
    go1_model as go1_model,
    Go1Getup as Go1Getup,
    Go1Joystick as Go1Joystick,
    Go1Stand as Go1Stand,
    PoseState as PoseState,
    StandWeights as StandWeights,
)
from ._humanoids import (
    AbstractHumanoid as AbstractHumanoid,
    berkeley_humanoid_joystick_flat as berkeley_humanoid_joystick_flat,
    BerkeleyHumanoidJoystick as BerkeleyHumanoidJoystick,
    g1_joystick_flat as g1_joystick_flat,
    G1Joystick as G1Joystick,
    HumanoidShaping as HumanoidShaping,
    t1_joystick_flat as t1_joystick_flat,
    T1Joystick as T1Joystick,
)
from ._joystick import (
    AbstractJoystick as AbstractJoystick,
    GaitClock as GaitClock,
    GaitPhase as GaitPhase,
    JoystickState as JoystickState,
)
from ._leap import (
    leap_cube_reorient as leap_cube_reorient,
    leap_cube_rotate_z as leap_cube_rotate_z,
    leap_model as leap_model,
    leap_model_without_goal as leap_model_without_goal,
    LeapReading as LeapReading,
    LeapReorient as LeapReorient,
    LeapRotateZ as LeapRotateZ,
    read_leap as read_leap,
    ReorientNoise as ReorientNoise,
    ReorientState as ReorientState,
    ReorientWeights as ReorientWeights,
    RotateState as RotateState,
    RotateWeights as RotateWeights,
)
from ._legged import (
    JoystickNoise as JoystickNoise,
    legged_model as legged_model,
    LeggedRobot as LeggedRobot,
    LeggedSensors as LeggedSensors,
    read_legged as read_legged,
)
from ._legged_rewards import (
    HumanoidTargets as HumanoidTargets,
    HumanoidWeights as HumanoidWeights,
    JoystickWeights as JoystickWeights,
)
from ._panda_pick_cube import (
    panda_model as panda_model,
    panda_pick_cube as panda_pick_cube,
    panda_pick_cube_orientation as panda_pick_cube_orientation,
    PandaPickCube as PandaPickCube,
    PickState as PickState,
    PickWeights as PickWeights,
)
from ._ppo import ppo_settings as ppo_settings
from ._task import AbstractPlaygroundTask as AbstractPlaygroundTask
