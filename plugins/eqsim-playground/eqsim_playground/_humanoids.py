"""Humanoids that follow the commands of a joystick."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv, AbstractPipeline, ResetOptions, System, Timestep
from eqsim.spatial import positive_part, quaternion_matrix, safe_sqrt
from eqsim.wrappers import AbstractStateless, Lifetime

from ._drawn import AbstractCommands, AbstractPushes, is_moving, Kicks, UniformCommands
from ._joystick import AbstractJoystick, GaitClock, JoystickState, JoystickStep
from ._legged import JoystickNoise, legged_model, LeggedRobot
from ._legged_rewards import (
    common_terms,
    HumanoidTargets,
    HumanoidWeights,
    level,
    phase_height,
    soft_limits,
)
from ._task import acceleration, default_of, index, number, of_model, physics


_SIDES = "left", "right"
_OBSERVATION = (
    *("velocity", "gyro", "gravity", "command", "angles", "rates", "last_action"),
    "phase",
)
_PRIVILEGED = (
    *("gyro", "accelerometer", "gravity", "velocity", "world_rate", "angles", "rates"),
    *("height", "torque", "contact", "feet_velocity", "air_time"),
)
_FEET_COLLISION = "left_foot_right_foot_found"
_HANDS = "left_hand_left_thigh_found", "right_hand_right_thigh_found"
G1 = LeggedRobot(
    scene="locomotion/g1/xmls/scene_mjx_feetonly_flat_terrain.xml",
    keyframe="knees_bent",
    trunk="torso_link",
    imu="imu_in_pelvis",
    suffix="_pelvis",
    up="upvector_torso",
    feet=("left_foot", "right_foot"),
    contacts=(("left_foot_floor_found",), ("right_foot_floor_found",)),
    observation=_OBSERVATION,
    privileged=_PRIVILEGED,
    clipped=False,
    fatal=(
        *("right_foot_left_foot_found", "left_foot_right_shin_found"),
        "right_foot_left_shin_found",
    ),
    hips=tuple(f"{s}_hip_{axis}_joint" for s in _SIDES for axis in ("roll", "yaw")),
    knees=tuple(f"{s}_knee_joint" for s in _SIDES),
)
T1 = LeggedRobot(
    scene="locomotion/t1/xmls/scene_mjx_feetonly_flat_terrain.xml",
    keyframe="home",
    trunk="Trunk",
    imu="imu",
    suffix="",
    up="upvector",
    feet=("left_foot", "right_foot"),
    contacts=tuple(
        tuple(f"{side}_foot_{k}_floor_found" for k in range(1, 5)) for side in _SIDES
    ),
    observation=_OBSERVATION,
    privileged=_PRIVILEGED,
    clipped=True,
    hips=tuple(
        f"{s}_Hip_{axis}" for s in ("Left", "Right") for axis in ("Roll", "Yaw")
    ),
    knees=("Left_Knee_Pitch", "Right_Knee_Pitch"),
)
BERKELEY = LeggedRobot(
    scene="locomotion/berkeley_humanoid/xmls/scene_mjx_feetonly_flat_terrain.xml",
    keyframe="home",
    trunk="torso",
    imu="imu",
    suffix="",
    up="upvector",
    feet=("l_foot", "r_foot"),
    contacts=(("l_foot1_floor_found",), ("r_foot1_floor_found",)),
    observation=_OBSERVATION,
    privileged=_PRIVILEGED,
    clipped=True,
    hips=("LL_HR", "LL_HAA", "LR_HR", "LR_HAA"),
    knees=("LL_KFE", "LR_KFE"),
)


class AbstractHumanoid(AbstractJoystick):
    """A humanoid that follows velocity commands.

    Observation, `state`: velocity and angular velocity of the IMU in its axes, direction of
    gravity in them, the command, joint angles minus those of the keyframe, joint
    velocities, the last action, cosines and sines of the phases of both feet. Noise is
    added to all but command, action and phases. With `privileged` it is a dictionary with
    `state` and `privileged_state`: the same, then without noise gyroscope, accelerometer,
    gravity, velocity, angular velocity in the world, joint angles and velocities, the height
    of the root; torques, contacts, velocities of the feet, and their air times.

    Action: the servo targets are the angles $q_0 + s\\,a$, with the angles $q_0$ of the
    keyframe.

    Initial state: the keyframe, with x and y from -0.5 m to 0.5 m, any heading, joint angles
    times factors in `joint_scale`, and velocities of the root from -0.5 to 0.5 in each entry,
    m/s and rad/s. The episode terminates if the trunk is upside down.
    """

    weights: eqx.AbstractVar[HumanoidWeights]
    targets: eqx.AbstractVar[HumanoidTargets]
    pose_weights: eqx.AbstractVar[Float[Array, " nu"]]

    def __check_init__(self):
        if not isinstance(self.clock, GaitClock):
            raise ValueError(
                f"`clock` of a humanoid must be a `GaitClock`, got {self.clock!r}."
            )

    def shared_values(self, now: JoystickStep) -> dict[str, Float[Array, ""]]:
        """Compute the terms that humanoids share, before weights; see
        `HumanoidWeights`."""
        state, seen, targets = now.state, now.seen, self.targets
        assert state.phase is not None
        robot, height = state.robot, targets.foot_height
        limits = soft_limits(self.sys.joints.range[1:], targets.soft_limit)
        off = robot.q[7:] - self.default_pose
        least, most = targets.air_time
        # The smaller one of time and limit.
        flight = (most - least) - positive_part(most - state.air_time)
        lift = seen.feet_height - phase_height(state.phase.angle, height)
        slip = safe_sqrt(jnp.sum(seen.world_velocity[:2] ** 2))
        return {
            **common_terms(
                now,
                default=self.default_pose,
                limits=limits,
                sigma=targets.tracking_sigma,
                height=height,
                still=targets.still,
            ),
            "base_height": (robot.q[2] - targets.base_height) ** 2,
            "torques": jnp.sum(jnp.abs(seen.torque)),
            "feet_air_time": jnp.sum(jnp.where(now.landed, flight, 0.0)),
            "feet_slip": slip * jnp.sum(seen.contact.astype(slip.dtype)),
            "feet_phase": jnp.exp(-jnp.sum(lift**2) / targets.phase_width),
            "pose": jnp.sum(self.pose_weights * off**2),
            "alive": jnp.ones((), off.dtype),
            "joint_deviation_knee": jnp.sum(self.deviation(now, self.about.knees)),
            **acceleration(self, robot, now.ctrl, now.external),
        }

    def masked_values(
        self, now: JoystickStep, shared: dict[str, Float[Array, ""]]
    ) -> dict[str, Float[Array, ""]]:
        """Compute terms that count only for some commands, before weights."""
        command, targets = now.state.command, self.targets
        walks = is_moving(command, targets.still)
        hips = jnp.sum(self.deviation(now, self.about.hips))
        return {
            "feet_air_time": jnp.where(walks, shared["feet_air_time"], 0.0),
            "joint_deviation_hip": jnp.where(
                jnp.abs(command[1]) > targets.lateral, hips, 0.0
            ),
        }

    def deviation(
        self, now: JoystickStep, names: tuple[str, ...]
    ) -> Float[Array, " n"]:
        """Return how far joints are from the default pose, rad."""
        known = self.sys.joints.names
        places = np.array([index(known, name, "joint") - 1 for name in names])
        return jnp.abs(now.state.robot.q[7:] - self.default_pose)[places]


class G1Joystick(AbstractHumanoid):
    r"""A Unitree G1 that follows velocity commands (Playground: `G1JoystickFlatTerrain`).

    Observations, actions and initial states are those of `AbstractHumanoid` (103 and 216
    entries), with the IMU of the pelvis and the keyframe `knees_bent`; the trunk is the
    torso. The episode also terminates if a foot touches the other foot or shin.

    Reward: the sum of the weighted terms of `HumanoidWeights` times the control step. With
    the velocities $v$ of the pelvis and $v'$, $\omega'$ of the torso in the world, and the
    vertical axis $u$ of the torso:

    - `lin_vel_z`: $v_z^2 + v_z'^2$; `ang_vel_xy`: $|\omega_{xy}'|^2$
    - `orientation`: $|u - u_0|^2$
    - `feet_phase` counts while the command is longer than 0.01, or horizontal velocity or
        yaw rate of the pelvis are larger than 0.1
    - `joint_deviation_hip` counts twice while the lateral command is larger than 0.1 m/s,
        else four times: Playground multiplies a column of deviations by a row of weights
    - `collision`: 1 if a hand touches a thigh
    - `contact_force`: $\sum_i \max(|f_{iz}| - f_+, 0)$, with the forces at the ankles

    **Arguments:**

    - `sys`: the robot; by default that of Playground's file.
    - `pipeline`: the physics; must be `Generalized`, the default.
    - `frame_skip`: time steps per control step.
    - `privileged`: true to observe `privileged_state` as well.
    - `action_scale`: scale $s$ of actions, rad.
    - `joint_scale`: range of the factor of each initial joint angle.
    - `weights`, `targets`: weights of the reward, targets and thresholds of its terms.
    - `noise`, `commands`: scales of the noise, commands.
    - `pushes`: `Kicks`, `Pushes`, or None.
    - `clock`: the rhythm of the feet.
    - `pose_weights`: weights $w$ of the joints in `pose`.
    - `upright`: vertical axis $u_0$ of the torso.
    - `hip_factors`: factors of `joint_deviation_hip`, for large lateral commands and others.
    - `max_contact_force`: $f_+$, N.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `G1JoystickFlatTerrain`.
    """

    about: ClassVar[LeggedRobot] = G1
    sys: System = eqx.field(converter=of_model(lambda: legged_model(G1)), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.5)
    joint_scale: Float[Array, "2"] = number((0.5, 1.5))
    weights: HumanoidWeights = default_of(
        HumanoidWeights,
        tracking_ang_vel=0.75,
        orientation=-2.0,
        stand_still=-1.0,
        termination=-100.0,
        pose=-0.1,
        collision=-0.1,
        contact_force=-0.01,
    )
    targets: HumanoidTargets = default_of(HumanoidTargets, foot_height=0.15, still=0.01)
    noise: JoystickNoise = default_of(JoystickNoise)
    commands: AbstractCommands = default_of(UniformCommands)
    pushes: AbstractPushes | None = default_of(Kicks)
    clock: GaitClock | None = default_of(GaitClock)
    pose_weights: Float[Array, " nu"] = number((1.0,) * 29)
    upright: Float[Array, "3"] = number((0.073, 0.0, 1.0))
    hip_factors: Float[Array, "2"] = number((2.0, 4.0))
    max_contact_force: Float[Array, ""] = number(500.0)

    def values(self, now: JoystickStep) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights."""
        seen, command, targets = now.seen, now.state.command, self.targets
        shared, read = self.shared_values(now), seen.sensors
        velocity, rate = seen.world_velocity, seen.world_rate
        moving = is_moving(velocity[:2], 0.1) | (jnp.abs(rate[2]) > 0.1)
        moving = moving | is_moving(command, 0.01)
        aside, along = self.hip_factors
        hips = jnp.where(command[1] > targets.lateral, aside, along)
        force = jnp.stack([read[f"{side}_foot_force"][2] for side in _SIDES])
        return {
            **shared,
            "lin_vel_z": velocity[2] ** 2 + read["global_linvel_torso"][2] ** 2,
            "ang_vel_xy": jnp.sum(read["global_angvel_torso"][:2] ** 2),
            "orientation": jnp.sum((seen.up - self.upright) ** 2),
            "feet_phase": jnp.where(moving, shared["feet_phase"], 0.0),
            "joint_deviation_hip": hips * jnp.sum(self.deviation(now, G1.hips)),
            "collision": seen.found(_HANDS).astype(force.dtype),
            "contact_force": jnp.sum(
                positive_part(jnp.abs(force) - self.max_contact_force)
            ),
        }


class T1Joystick(AbstractHumanoid):
    r"""A Booster T1 that follows velocity commands (Playground: `T1JoystickFlatTerrain`).

    Observations (85 and 180 entries), actions and initial states are those of
    `AbstractHumanoid`, with the keyframe `home`.

    Reward: the sum of the weighted terms of `HumanoidWeights` times the control step,
    clipped from below at 0. The term `clip` is the difference made by clipping. With
    velocities $v$, $\omega$ of the IMU in its axes, its vertical axis $u$, and the lateral
    distance $d$ of the feet:

    - `lin_vel_z`: $v_z^2$; `ang_vel_xy`: $|\omega_{xy}|^2$; `orientation`: $|u_{xy}|^2$
    - `feet_air_time` counts for commands longer than 0.1
    - `joint_deviation_hip` counts while the lateral command is larger than 0.1 m/s
    - `collision`: 1 if the feet touch each other
    - `feet_distance`: $d_0 - d$, between 0 and $d_+$

    **Arguments:** those of `G1Joystick` up to `pose_weights`, and

    - `feet_distance`: $d_0$ and $d_+$, m.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `T1JoystickFlatTerrain`.
    """

    about: ClassVar[LeggedRobot] = T1
    sys: System = eqx.field(converter=of_model(lambda: legged_model(T1)), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(1.0)
    joint_scale: Float[Array, "2"] = number((0.5, 1.5))
    weights: HumanoidWeights = default_of(
        HumanoidWeights,
        alive=0.25,
        joint_deviation_hip=-0.1,
        dof_vel=0.0,
        collision=-1.0,
        feet_distance=-1.0,
    )
    targets: HumanoidTargets = default_of(HumanoidTargets, base_height=0.665)
    noise: JoystickNoise = default_of(JoystickNoise)
    commands: AbstractCommands = default_of(
        UniformCommands, (-1.0, -0.8, -1.0), (1.0, 0.8, 1.0)
    )
    pushes: AbstractPushes | None = default_of(Kicks, (0.1, 1.0))
    clock: GaitClock | None = default_of(GaitClock, (1.25, 1.75), rests=True)
    pose_weights: Float[Array, " nu"] = number(
        (1.0, 1.0, *(0.1, 1.0, 1.0, 1.0) * 2, 1.0, *(0.01, 1.0, 1.0) * 4)
    )
    feet_distance: Float[Array, "2"] = number((0.2, 0.1))

    def values(self, now: JoystickStep) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights."""
        seen, shared = now.seen, self.shared_values(now)
        left, right = seen.feet_position[:, :2]
        # Horizontal direction to the left of the robot.
        ahead = seen.sensors["forwardvector"][:2]
        aside = jnp.stack([-ahead[1], ahead[0]])
        apart = jnp.abs((left - right) @ aside) / safe_sqrt(jnp.sum(ahead**2))
        least, most = self.feet_distance
        lacking = positive_part(least - apart)
        return {
            **shared,
            **self.masked_values(now, shared),
            "lin_vel_z": seen.velocity[2] ** 2,
            "ang_vel_xy": jnp.sum(seen.gyro[:2] ** 2),
            "orientation": jnp.sum(seen.up[:2] ** 2),
            "dof_vel": jnp.sum(now.state.robot.qd[6:] ** 2),
            "collision": seen.found((_FEET_COLLISION,)).astype(apart.dtype),
            "feet_distance": most - positive_part(most - lacking),
        }


class BerkeleyHumanoidJoystick(AbstractHumanoid):
    r"""A Berkeley Humanoid that follows velocity commands (Playground:
    `BerkeleyHumanoidJoystickFlatTerrain`).

    Observations (52 and 114 entries), actions and initial states are those of
    `AbstractHumanoid`, with the keyframe `home`.

    Reward: the sum of the weighted terms of `HumanoidWeights` times the control step,
    clipped from below at 0. The term `clip` is the difference made by clipping. With the
    velocities $v$, $\omega$ of the IMU in the world, and its vertical axis $u$:

    - `lin_vel_z`: $v_z^2$; `ang_vel_xy`: $|\omega_{xy}|^2$; `orientation`: $|u_{xy}|^2$
    - `feet_air_time` counts for commands longer than 0.1
    - `joint_deviation_hip` counts while the lateral command is larger than 0.1 m/s

    **Arguments:** those of `G1Joystick` up to `pose_weights`.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `BerkeleyHumanoidJoystickFlatTerrain`.
    """

    about: ClassVar[LeggedRobot] = BERKELEY
    sys: System = eqx.field(
        converter=of_model(lambda: legged_model(BERKELEY)), default=None
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.5)
    joint_scale: Float[Array, "2"] = number((0.5, 1.5))
    weights: HumanoidWeights = default_of(
        HumanoidWeights, torques=-2.5e-5, action_rate=-0.01, termination=-1.0
    )
    targets: HumanoidTargets = default_of(
        HumanoidTargets, tracking_sigma=0.5, foot_height=0.1
    )
    noise: JoystickNoise = default_of(
        JoystickNoise, joint_pos=(0.03, 0.03, 0.03, 0.05, 0.08, 0.03) * 2
    )
    commands: AbstractCommands = default_of(
        UniformCommands, (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0)
    )
    pushes: AbstractPushes | None = default_of(Kicks)
    clock: GaitClock | None = default_of(GaitClock)
    pose_weights: Float[Array, " nu"] = number((1.0, 1.0, 0.01, 0.01, 1.0, 1.0) * 2)

    def values(self, now: JoystickStep) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights."""
        shared = self.shared_values(now)
        return {
            **shared,
            **self.masked_values(now, shared),
            **level(now.seen),
        }


class HumanoidShaping(AbstractStateless):
    r"""A humanoid of Playground with additional reward terms, for training only. Evaluate
    policies in the task itself.

    Published rewards hardly tell a robot that stands from one that steps, as
    `tracking_lin_vel` vanishes far from the command. With the command $c$, the velocity $v$
    of the root in its axes, and for each foot $i$ phase $\phi_i$ and contact $k_i$, the terms
    times weight and control step are:

    - `progress`: $\min(c_{xy} \cdot v_{xy} / |c_{xy}|,\; |c_{xy}|)$
    - `gait`: share of the feet that touch the floor exactly if $|\phi_i| > \pi / 2$, or
        touch it if the command is to stand
    - `fall`: 1 if the episode terminates; not multiplied by the control step

    The episode also terminates if the vertical component of the vertical axis of the root
    is less than `upright`, or the root is lower than `height`. The observation, including
    its reflection, is that of the task.

    **Arguments:**

    - `env`: a humanoid of Playground.
    - `progress`, `gait`, `fall`: weights of the terms.
    - `upright`: least vertical component of the axis.
    - `height`: least height of the root, m.

    **Raises:** `TypeError` if `env` is not such a humanoid.
    """

    env: AbstractEnv
    progress: Float[Array, ""] = number(1.5)
    gait: Float[Array, ""] = number(1.0)
    fall: Float[Array, ""] = number(-1.0)
    upright: Float[Array, ""] = number(0.5)
    height: Float[Array, ""] = number(0.45)

    # Outside an auto-reset, it would see the state of the next episode.
    lifetime = Lifetime.EPISODE

    def __check_init__(self):
        if not isinstance(self.env, AbstractHumanoid):
            raise TypeError(
                "`HumanoidShaping` must wrap a humanoid of Playground, such as "
                f"`T1Joystick`, got `{type(self.env).__name__}`. Wrap it first."
            )

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[JoystickState, Timestep]:
        """Reset the task; all terms are zero."""
        state, timestep = self.env.reset(key, options)
        zero = jnp.zeros_like(timestep.reward)
        terms = {**timestep.terms, "progress": zero, "gait": zero, "fall": zero}
        return state, dataclasses.replace(timestep, terms=terms)

    def step(
        self, state: JoystickState, action: Float[Array, " nu"]
    ) -> tuple[JoystickState, Timestep]:
        """Take one control step of the task, and add the terms."""
        command = state.command
        state, timestep = self.env.step(state, action)
        assert state.phase is not None
        q, qd = state.robot.q, state.robot.qd
        m = quaternion_matrix((q[3], q[4], q[5], q[6]))
        ahead = m.xx * qd[0] + m.yx * qd[1] + m.zx * qd[2]
        aside = m.xy * qd[0] + m.yy * qd[1] + m.zy * qd[2]
        speed = safe_sqrt(jnp.sum(command[:2] ** 2))
        along = command[0] * ahead + command[1] * aside
        along = along / jnp.where(speed > 0.0, speed, 1.0)
        stands = ~is_moving(command, self.env.targets.still)
        stance = (jnp.abs(state.phase.angle) > 0.5 * jnp.pi) | stands
        agrees = jnp.mean(stance == state.last_contact, dtype=q.dtype)
        fallen = timestep.terminated | (m.zz < self.upright) | (q[2] < self.height)
        added = {
            "progress": self.progress
            * self.dt
            * (speed - positive_part(speed - along)),
            "gait": self.gait * self.dt * agrees,
            "fall": self.fall * fallen.astype(q.dtype),
        }
        return state, dataclasses.replace(
            timestep,
            reward=timestep.reward + jnp.sum(jnp.stack(list(added.values()))),
            terminated=fallen,
            terms={**timestep.terms, **added},
        )


# Names of entry points.
g1_joystick_flat = G1Joystick
t1_joystick_flat = T1Joystick
berkeley_humanoid_joystick_flat = BerkeleyHumanoidJoystick
