"""Robots and tasks of MuJoCo Playground in eqsim."""

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
