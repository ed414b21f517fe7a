"""A Go1 that follows the commands of a joystick."""

from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from eqsim import AbstractPipeline, System

from ._commands import AbstractCommands, Commands, is_moving
from ._go1_rewards import gait, JoystickWeights, level, posture, torques
from ._joystick import AbstractJoystick, JoystickStep
from ._joystick_rewards import effort, tracking
from ._observation import JoystickNoise
from ._pushes import AbstractPushes
from ._reading import legged_model, LeggedRobot
from ._task import converter, number, physics


FEET = "FR", "FL", "RR", "RL"
"""Names of the feet: front and rear, right and left."""

GO1 = LeggedRobot(
    scene="locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml",
    keyframe="home",
    trunk="trunk",
    imu="imu",
    suffix="",
    up="upvector",
    feet=FEET,
    contacts=tuple((f"{foot}_floor_found",) for foot in FEET),
    observation=(
        *("velocity", "gyro", "gravity", "angles", "rates", "last_action", "command"),
    ),
    privileged=(
        *("gyro", "accelerometer", "gravity", "velocity", "world_rate", "angles"),
        *("rates", "torque", "last_contact", "feet_velocity", "air_time", "force"),
        "pushing",
    ),
    clipped=True,
)


def go1_model() -> System:
    """Return the Go1 of Playground's flat terrain, of which only the feet touch the
    floor.

    A sensor of the force of each actuator, named `<actuator>_force`, is added.
    """
    return legged_model(GO1)


class Go1Joystick(AbstractJoystick):
    r"""A Go1 that follows velocity commands (Playground: `Go1JoystickFlatTerrain`).

    Observation, `state`, 48 entries: velocity and angular velocity of the IMU in its
    axes, direction of gravity in them, joint angles minus those of the keyframe `home`,
    joint velocities, all with noise; the action before the last one, and the command.
    With `privileged` it is a dictionary with `state` and `privileged_state`, 123
    entries: the same, then without noise gyroscope, accelerometer, gravity, velocity,
    angular velocity in the world, joint angles and velocities; torques, last contacts,
    velocities of the feet, their air times, the force of a push, and 1 while a push
    acts.

    Reward: the sum of the weighted terms of `JoystickWeights` times the control step,
    clipped from below at 0. The term `clip` is the difference made by clipping.

    Action: the servo targets are the angles $q_0 + s\,a$, with the angles $q_0$ of
    `home`.

    Initial state: `home`, with x and y from -0.5 m to 0.5 m, any heading, and the
    velocity of the trunk from -0.5 to 0.5 in each entry, m/s and rad/s. The episode
    terminates if the trunk is upside down.

    **Arguments:**

    - `sys`: the robot; by default that of `go1_model()`.
    - `pipeline`: the physics; must be `Generalized`, the default.
    - `frame_skip`: time steps per control step.
    - `privileged`: true to observe `privileged_state` as well.
    - `action_scale`: scale $s$ of actions, rad.
    - `joint_scale`: range of the factor of each initial joint angle.
    - `weights`, `noise`, `commands`: weights of the reward, scales of the noise, commands.
    - `pushes`: pushes of the trunk, `Pushes` or `Kicks`; None, the default, for none.
    - `tracking_sigma`: width $\sigma$ of the tracking terms, m$^2$/s$^2$ and
        rad$^2$/s$^2$.
    - `foot_height`: target height of a swing, m.
    - `soft_limit`: soft joint limits as a fraction of the range.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `Go1JoystickFlatTerrain`.
    """

    about: ClassVar[LeggedRobot] = GO1
    sys: System = eqx.field(converter=converter(go1_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.5)
    joint_scale: Float[Array, "2"] = number((1.0, 1.0))
    weights: JoystickWeights = eqx.field(default_factory=JoystickWeights)
    noise: JoystickNoise = eqx.field(default_factory=JoystickNoise)
    commands: AbstractCommands = eqx.field(default_factory=Commands)
    pushes: AbstractPushes | None = None
    clock: None = eqx.field(init=False, default=None)
    tracking_sigma: Float[Array, ""] = number(0.25)
    foot_height: Float[Array, ""] = number(0.1)
    soft_limit: Float[Array, ""] = number(0.95)

    def values(self, now: JoystickStep) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights, see `JoystickWeights`."""
        state, seen = now.state, now.seen
        moving = is_moving(state.command, 0.01)
        limits = self.soft_limit * self.sys.joints.range[1:]
        angles, rates = state.robot.q[7:], state.robot.qd[6:]
        return {
            **tracking(seen, state.command, self.tracking_sigma),
            **level(seen),
            **posture(angles, self.default_pose, limits, moving),
            **effort(seen.torque, rates, now.action, state.last_action),
            "torques": torques(seen.torque),
            **gait(
                *(seen, state.air_time, state.swing_peak, now.landed, moving),
                self.foot_height,
            ),
            "termination": now.terminated.astype(angles.dtype),
        }


def go1_joystick_flat(**options: Any) -> Go1Joystick:
    """Create `Go1Joystick`. **Arguments:** its options."""
    return Go1Joystick(**options)
