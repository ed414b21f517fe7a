"""A Go1 that follows commands, gets up, and stands on two legs."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.spatial import positive_part

from ._drawn import AbstractCommands, AbstractPushes, Commands, is_moving
from ._joystick import AbstractJoystick, JoystickStep, scattered
from ._legged import (
    JoystickNoise,
    legged_model,
    LeggedRobot,
    LeggedSensors,
    observed,
    read_legged,
    sensed,
)
from ._legged_rewards import (
    beyond,
    common_terms,
    effort,
    JoystickWeights,
    level,
    soft_limits,
    torques,
)
from ._task import (
    AbstractPlaygroundTask,
    acceleration,
    clipped,
    default_of,
    hold,
    number,
    Observation,
    of_model,
    physics,
    weight_names,
    weighted,
)


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
    sys: System = eqx.field(converter=of_model(go1_model), default=None)
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
        limits = self.soft_limit * self.sys.joints.range[1:]
        shared = common_terms(
            now,
            default=self.default_pose,
            limits=limits,
            sigma=self.tracking_sigma,
            height=self.foot_height,
            still=0.01,
        )
        off = state.robot.q[7:] - self.default_pose
        weight = jnp.tile(jnp.asarray([1.0, 1.0, 0.1], off.dtype), 4)
        speed2 = jnp.sum(seen.feet_velocity[:, :2] ** 2, axis=1)
        walking = {
            "feet_height": shared["feet_height"],
            "feet_slip": jnp.sum(jnp.where(seen.contact, speed2, 0.0)),
            "feet_air_time": jnp.sum(jnp.where(now.landed, state.air_time - 0.1, 0.0)),
        }
        moving = is_moving(state.command, 0.01)
        return {
            **shared,
            **level(seen),
            "pose": jnp.exp(-jnp.sum(weight * off**2)),
            "torques": torques(seen.torque),
            **{name: jnp.where(moving, x, 0.0) for name, x in walking.items()},
        }


_OBSERVATION = "gyro", "gravity", "angles", "rates", "last_action"
_PRIVILEGED = (
    *("gyro", "accelerometer", "velocity", "world_rate", "joints", "rates", "torque"),
    "imu_height",
)
GETUP = GO1._replace(
    scene="locomotion/go1/xmls/scene_mjx_fullcollisions_flat_terrain.xml",
    observation=_OBSERVATION,
    privileged=_PRIVILEGED,
)
STAND = GETUP._replace(
    scene="locomotion/go1/xmls/scene_mjx_flat_terrain.xml",
    observation=("velocity", *_OBSERVATION),
    fatal=tuple(
        f"{leg}_{part}_floor_found"
        for leg in ("fl", "fr")
        for part in ("calf1", "calf2", "thigh1", "thigh2", "thigh3", "hip")
    ),
)


class PoseState(eqx.Module):
    """The state of `Go1Getup` and `Go1Stand`.

    **Arguments:**

    - `robot`: the state of the robot.
    - `key`: key of the noise to come.
    - `ctrl`: the last targets of the servos, rad.
    - `last_action`, `earlier_action`: the last action, and that before it.
    """

    robot: State
    key: PRNGKeyArray
    ctrl: Float[Array, " nu"]
    last_action: Float[Array, " nu"]
    earlier_action: Float[Array, " nu"]


class AbstractGo1Pose(AbstractPlaygroundTask):
    """A Go1 that should reach a pose.

    Tasks differ in the description `about`, in what actions mean (`targets`), in the terms
    of the reward (`values`), and in the end of an episode (`ends`).
    """

    about: eqx.AbstractClassVar[LeggedRobot]
    privileged: eqx.AbstractVar[bool]
    action_scale: eqx.AbstractVar[Float[Array, ""]]
    noise: eqx.AbstractVar[JoystickNoise]
    soft_limit: eqx.AbstractVar[Float[Array, ""]]
    power_limit: eqx.AbstractVar[Float[Array, ""] | None]

    @abc.abstractmethod
    def targets(self, state: PoseState) -> Float[Array, " nu"]:
        """Return the angles to which scaled actions are added, rad."""

    @abc.abstractmethod
    def values(
        self, state: PoseState, seen: LeggedSensors, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights.

        **Arguments:**

        - `state`: the state of the task, with the new state of the robot and the targets of
            the step, but the last actions before it.
        - `seen`: sensor values in the new state.
        """

    @abc.abstractmethod
    def ends(self, seen: LeggedSensors) -> Bool[Array, ""]:
        """Return true if the episode terminates."""

    @property
    def default_pose(self) -> Float[Array, " nu"]:
        """The joint angles of the keyframe `home`, rad."""
        return self.sys.keyframe(self.about.keyframe).q[7:]

    @property
    def term_names(self) -> tuple[str, ...]:
        """The names of the weights that are not None, and `clip`."""
        return *weight_names(self.weights), "clip"

    def begin(self, key: PRNGKeyArray, robot: State) -> tuple[PoseState, Observation]:
        """Start an episode in a state of the robot."""
        key, key_noise = jr.split(key)
        zeros, ctrl = jnp.zeros(self.sys.nu, robot.q.dtype), robot.q[7:]
        state = PoseState(robot, key, ctrl, zeros, zeros)
        seen = read_legged(self.about, self.pipeline, self.sys, robot, ctrl)
        return state, self._observe(key_noise, state, seen)

    def advance(
        self, state: PoseState, action: Float[Array, " nu"]
    ) -> tuple[PoseState, Observation, dict[str, Float[Array, ""]], Bool[Array, ""]]:
        """Take one control step."""
        key, key_noise = jr.split(state.key)
        ctrl = self.targets(state) + self.action_scale * action
        robot = hold(self, state.robot, ctrl)
        seen = read_legged(self.about, self.pipeline, self.sys, robot, ctrl)
        earlier = state.last_action
        moved = PoseState(robot, key, ctrl, earlier, state.earlier_action)
        ended = self.ends(seen)
        if self.power_limit is not None:
            power = jnp.sum(jnp.abs(seen.torque * robot.qd[6:]))
            ended = ended | (power > self.power_limit)
        values = {
            **self.values(moved, seen, action),
            **acceleration(self, robot, ctrl),
            "termination": ended.astype(seen.torque.dtype),
        }
        terms = clipped(weighted(self.weights, values, self.dt))
        obs = self._observe(key_noise, moved, seen)
        return PoseState(robot, key, ctrl, action, earlier), obs, terms, ended

    def beyond_limits(self, robot: State) -> Float[Array, ""]:
        """Compute the term `dof_pos_limits`."""
        return beyond(
            robot.q[7:], soft_limits(self.sys.joints.range[1:], self.soft_limit)
        )

    def _observe(self, key, state: PoseState, seen: LeggedSensors) -> Observation:
        parts = {
            **sensed(seen, state.robot, self.default_pose),
            "last_action": state.last_action,
        }
        return observed(key, self.about, parts, self.noise, self.privileged)


class GetupWeights(eqx.Module):
    r"""Weights of the terms of `Go1Getup`.

    With the direction $g$ of gravity in the axes of the IMU and $g_0 = (0, 0, -1)$, the height
    $z$ of the IMU and its target $z_0$, $u = 1$ if $|g - g_0|^2 < 0.01$, $m = 1$ if also
    $z > z_0 - 0.005$, else 0, joint angles $q$ and their default $q_0$, and the actions $a$,
    $a'$, $a''$ of the last three steps:

    - `orientation`: $\exp(-2 |g - g_0|^2)$
    - `torso_height`: $\exp(\min(z, z_0)) - 1$
    - `posture`: $u \exp(-\tfrac{1}{2} |q - q_0|^2)$
    - `stand_still`: $m \exp(-\tfrac{1}{2} |a|^2)$
    - `action_rate`: $|a - a'|^2 + |a - 2 a' + a''|^2$
    - `dof_pos_limits`: $\sum_j$ distance of $q_j$ beyond its soft limits
    - `torques`: $|\tau| + \sum_j |\tau_j|$
    - `dof_acc`: $|\ddot q|^2$; None to leave it out
    - `dof_vel`: $\sum_j \max(|\dot q_j| - 2 \pi, 0)^2$
    - `termination`: 1 if the episode terminates; None, the default, to leave it out
    """

    orientation: Float[Array, ""] = number(1.0)
    torso_height: Float[Array, ""] = number(1.0)
    posture: Float[Array, ""] = number(1.0)
    stand_still: Float[Array, ""] = number(1.0)
    action_rate: Float[Array, ""] = number(-0.001)
    dof_pos_limits: Float[Array, ""] = number(-0.1)
    torques: Float[Array, ""] = number(-1e-5)
    dof_acc: Float[Array, ""] | None = number(-2.5e-7)
    dof_vel: Float[Array, ""] = number(-0.1)
    termination: Float[Array, ""] | None = number(None)


class Go1Getup(AbstractGo1Pose):
    r"""A Go1 that gets up after a fall (Playground: `Go1Getup`).

    Observation, `state`, 42 entries: gyroscope, direction of gravity in the axes of the IMU,
    joint angles minus those of the keyframe `home`, joint velocities, all with noise, and the
    last action. With `privileged` it is a dictionary with `state` and `privileged_state`, 91
    entries: the same, then without noise gyroscope, accelerometer, velocity, angular velocity
    in the world, joint angles and velocities, torques, and the height of the IMU.

    Reward: the sum of the weighted terms of `GetupWeights` times the control step, clipped
    from below at 0. The term `clip` is the difference made by clipping.

    Action: the servo targets are the joint angles at the start of the step plus $s\,a$.

    Initial state: with probability `drop`, a fall from 0.5 m with any orientation and joint
    angles within their range, else `home`; both with velocities of the trunk from -0.5 to 0.5
    in each entry, m/s and rad/s, and after a time to settle. Playground truncates episodes
    after 300 control steps.

    **Arguments:**

    - `sys`: the robot; by default that of Playground's file, of which all parts touch the floor.
    - `pipeline`: the physics; must be `Generalized`, the default.
    - `frame_skip`: time steps per control step.
    - `settle_steps`: time steps of the physics before an episode.
    - `privileged`: true to observe `privileged_state` as well.
    - `action_scale`: scale $s$ of actions, rad.
    - `weights`, `noise`: weights of the reward, scales of the noise.
    - `drop`: probability of a fall.
    - `height`: target height $z_0$ of the IMU, m.
    - `soft_limit`: soft joint limits as a fraction of the range, about its center.
    - `power_limit`: mechanical power above which the episode terminates, W; None: none.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `Go1Getup`.
    """

    about: ClassVar[LeggedRobot] = GETUP
    sys: System = eqx.field(
        converter=of_model(lambda: legged_model(GETUP)), default=None
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    settle_steps: int = eqx.field(static=True, default=125)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.5)
    weights: GetupWeights = default_of(GetupWeights)
    noise: JoystickNoise = default_of(JoystickNoise)
    drop: Float[Array, ""] = number(0.6)
    height: Float[Array, ""] = number(0.275)
    soft_limit: Float[Array, ""] = number(0.95)
    power_limit: Float[Array, ""] | None = number(None)

    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""
        key_drop, key_turn, key_joints, key_velocity = jr.split(key, 4)
        home = self.sys.keyframe(self.about.keyframe).q
        low, high = self.sys.joints.range[1:].T
        quat = jr.normal(key_turn, (4,), home.dtype)
        quat = quat / jnp.linalg.norm(quat)
        joints = low + (high - low) * jr.uniform(key_joints, low.shape, home.dtype)
        place = jnp.asarray([0.0, 0.0, 0.5], home.dtype)
        fall = jnp.concatenate([place, quat, joints])
        q = jnp.where(jr.bernoulli(key_drop, self.drop), fall, home)
        qd = jnp.zeros(self.sys.nv, q.dtype)
        qd = qd.at[:6].set(jr.uniform(key_velocity, (6,), q.dtype, -0.5, 0.5))
        robot = self.pipeline.init(self.sys, q, qd)
        robot = hold(self, robot, q[7:], length=self.settle_steps)
        return robot.q, robot.qd

    def targets(self, state: PoseState) -> Float[Array, " nu"]:
        """Return the present joint angles, rad."""
        return state.robot.q[7:]

    def ends(self, seen: LeggedSensors) -> Bool[Array, ""]:
        """Return false: episodes end by `power_limit` only."""
        return jnp.zeros((), bool)

    def values(
        self, state: PoseState, seen: LeggedSensors, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights, see `GetupWeights`."""
        robot = state.robot
        rates, last = robot.qd[6:], state.last_action
        down = jnp.asarray([0.0, 0.0, -1.0], rates.dtype)
        tilt = jnp.sum((down - seen.gravity) ** 2)
        lacking = positive_part(self.height - seen.imu_position[2])
        upright = tilt < 0.01
        tall = upright & (lacking < 0.005)
        pose = jnp.exp(-0.5 * jnp.sum((robot.q[7:] - self.default_pose) ** 2))
        bend = action - 2.0 * last + state.earlier_action
        fast = positive_part(jnp.abs(rates) - 2.0 * jnp.pi)
        return {
            "orientation": jnp.exp(-2.0 * tilt),
            "torso_height": jnp.exp(self.height - lacking) - 1.0,
            "posture": jnp.where(upright, pose, 0.0),
            "stand_still": jnp.where(tall, jnp.exp(-0.5 * jnp.sum(action**2)), 0.0),
            "action_rate": jnp.sum((action - last) ** 2) + jnp.sum(bend**2),
            "torques": torques(seen.torque),
            "dof_pos_limits": self.beyond_limits(robot),
            "dof_vel": jnp.sum(fast**2),
        }


class StandWeights(eqx.Module):
    r"""Weights of the terms of `Go1Stand`.

    With the height $z$ of the IMU and its target $z_0$, its forward axis $f$ and the target
    $f_0$:

    - `height`: $\exp(\min(z, z_0) - z_0)$
    - `orientation`: $(\tfrac{1}{2} + \tfrac{1}{2} f \cdot f_0)^2$
    - `contact`: 1 if a foot touches the floor
    - `action_rate`: $|a - a'|^2$
    - `termination`: 1 if the episode terminates
    - `dof_pos_limits`: $\sum_j$ distance of $q_j$ beyond its soft limits
    - `torques`: $|\tau|^2$
    - `pose`: $\sum_j w_j (q_j - q_{0j})^2$, with the joint angles $q_0$ of `home`
    - `stay_still`: $v_x^2 + v_y^2 + \omega_z^2$ of the trunk
    - `energy`: $\sum_j |\dot q_j| |\tau_j|$
    - `dof_acc`: $|\ddot q|^2$. Playground's weight is zero; the default is None, as the term
        takes one more solution of the equations of motion.
    """

    height: Float[Array, ""] = number(1.0)
    orientation: Float[Array, ""] = number(1.0)
    contact: Float[Array, ""] = number(-0.1)
    action_rate: Float[Array, ""] = number(0.0)
    termination: Float[Array, ""] = number(0.0)
    dof_pos_limits: Float[Array, ""] = number(-0.5)
    torques: Float[Array, ""] = number(0.0)
    pose: Float[Array, ""] = number(-0.1)
    stay_still: Float[Array, ""] = number(0.0)
    energy: Float[Array, ""] = number(0.0)
    dof_acc: Float[Array, ""] | None = number(None)


class Go1Stand(AbstractGo1Pose):
    r"""A Go1 that stands on its front legs (Playground: `Go1Handstand`) or rear legs
    (`Go1Footstand`).

    Observation, `state`, 45 entries: velocity and angular velocity of the IMU in its axes,
    direction of gravity in them, joint angles minus those of the keyframe `home`, joint
    velocities, all with noise, and the last action. With `privileged` it is a dictionary with
    `state` and `privileged_state`, 94 entries, as that of `Go1Getup`.

    Reward: the sum of the weighted terms of `StandWeights` times the control step, clipped from
    below at 0. The term `clip` is the difference made by clipping.

    Action: the servo targets are those of the last step plus $s\,a$.

    Initial state: `home`, with x and y from -0.5 m to 0.5 m, any heading, and velocities of the
    trunk from -0.5 to 0.5 in each entry, m/s and rad/s; with probability `crouch`, the keyframe
    `pre_recovery` at rest. The episode terminates if the vertical component of the vertical
    axis of the trunk is less than -0.25, or a hip, thigh or calf of the front legs touches the
    floor, in both tasks as in Playground. Playground truncates episodes after 500 control
    steps.

    **Arguments:** those of `Go1Getup` up to `noise`, without `settle_steps`, and

    - `crouch`: probability of a start at `pre_recovery`.
    - `height`: target height $z_0$ of the IMU, m.
    - `forward`: target $f_0$ of the forward axis.
    - `pose_weights`: weights $w$ of the joints in `pose`.
    - `soft_limit`, `power_limit`: see `Go1Getup`.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `Go1Handstand`, `Go1Footstand`.
    """

    about: ClassVar[LeggedRobot] = STAND
    sys: System = eqx.field(
        converter=of_model(lambda: legged_model(STAND)), default=None
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.3)
    weights: StandWeights = default_of(StandWeights)
    noise: JoystickNoise = default_of(JoystickNoise, joint_pos=0.01)
    crouch: Float[Array, ""] = number(0.0)
    height: Float[Array, ""] = number(0.55)
    forward: Float[Array, "3"] = number((0.0, 0.0, -1.0))
    pose_weights: Float[Array, " nu"] = number((0.0,) * 6 + (1.0,) * 6)
    soft_limit: Float[Array, ""] = number(0.9)
    power_limit: Float[Array, ""] | None = number(None)

    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""
        key_crouch, key_place = jr.split(key)
        low = jr.bernoulli(key_crouch, self.crouch)
        home, crouch = (self.sys.keyframe(x).q for x in ("home", "pre_recovery"))
        start = jnp.where(low, crouch, home)
        q, qd = scattered(key_place, start, self.sys.nv)
        return q, jnp.where(low, 0.0, qd)

    def targets(self, state: PoseState) -> Float[Array, " nu"]:
        """Return the last targets, rad."""
        return state.ctrl

    def ends(self, seen: LeggedSensors) -> Bool[Array, ""]:
        """Return true if the robot is upside down, or its front legs touch the floor."""
        return (seen.up[2] < -0.25) | seen.found(self.about.fatal)

    def values(
        self, state: PoseState, seen: LeggedSensors, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights, see `StandWeights`."""
        q, qd = state.robot.q, state.robot.qd
        lacking = positive_part(self.height - seen.imu_position[2])
        along = seen.sensors["forwardvector"] @ self.forward
        off = q[7:] - self.default_pose
        return {
            "height": jnp.exp(-lacking),
            "orientation": (0.5 + 0.5 * along) ** 2,
            "contact": jnp.any(seen.contact).astype(q.dtype),
            **effort(seen.torque, qd[6:], action, state.last_action),
            "torques": jnp.sum(seen.torque**2),
            "dof_pos_limits": self.beyond_limits(state.robot),
            "pose": jnp.sum(self.pose_weights * off**2),
            "stay_still": jnp.sum(qd[:2] ** 2) + qd[5] ** 2,
        }


# Names of entry points.
go1_joystick_flat, go1_getup, go1_handstand = Go1Joystick, Go1Getup, Go1Stand


def go1_footstand(**options: Any) -> Go1Stand:
    """Create `Go1Stand` on the rear legs. **Arguments:** its options."""
    rear = {
        "height": 0.53,
        "forward": (0.0, 0.0, 1.0),
        "pose_weights": (1.0,) * 6 + (0.0,) * 6,
    }
    return Go1Stand(**{**rear, **options})
