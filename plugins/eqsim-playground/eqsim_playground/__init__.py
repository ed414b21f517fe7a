"""Robots and tasks of MuJoCo Playground for eqsim."""

from ._commands import Commands as Commands
from ._go1_joystick import (
    go1_joystick_flat as go1_joystick_flat,
    Go1Joystick as Go1Joystick,
    JoystickNoise as JoystickNoise,
    JoystickState as JoystickState,
)
from ._go1_randomization import RandomGo1 as RandomGo1
from ._go1_reading import (
    go1_model as go1_model,
    Go1Reading as Go1Reading,
    read_go1 as read_go1,
)
from ._go1_rewards import JoystickWeights as JoystickWeights
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
from ._panda_pick_cube import (
    panda_model as panda_model,
    panda_pick_cube as panda_pick_cube,
    panda_pick_cube_orientation as panda_pick_cube_orientation,
    PandaPickCube as PandaPickCube,
    PickState as PickState,
    PickWeights as PickWeights,
)
from ._ppo import ppo_settings as ppo_settings
from ._pushes import Pushes as Pushes, PushState as PushState
from ._task import AbstractPlaygroundTask as AbstractPlaygroundTask
