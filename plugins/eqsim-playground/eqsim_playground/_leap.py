"""A LEAP hand that rotates a cube about the vertical axis, or to goal orientations."""

import xml.etree.ElementTree as ET
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, set_mocap, State, System
from eqsim.spatial import (
    clamp,
    exponential,
    multiply,
    quaternion_matrix,
    safe_sqrt,
    Vec3,
)

from ._models import add_force_sensors, edited_model
from ._task import (
    AbstractPlaygroundTask,
    hold,
    index,
    noise,
    number,
    Observation,
    of_model,
    physics,
    weight_names,
    weighted,
    with_sensors,
)


TIPS = "th_tip", "if_tip", "mf_tip", "rf_tip"
"""Names of the fingertips: thumb, index, middle and ring finger."""
_SCENE = "manipulation/leap_hand/xmls/scene_mjx_cube.xml"


def leap_model() -> System:
    """Return the right LEAP hand and the cube of Playground's `scene_mjx_cube.xml`.

    A sensor of the force of each actuator, named `<actuator>_force`, is added. The box
    that shows the goal is at its position in the keyframe `home`; fingers can touch it.
    """
    return edited_model(_SCENE, place_goal)


def leap_model_without_goal() -> System:
    """Return the same model, with the box that shows the goal far away."""
    return edited_model(_SCENE, hide_goal)


def place_goal(root: ET.Element) -> None:
    """Place the goal as in the keyframe `home`."""
    add_force_sensors(root)
    _goal(root).set("pos", _home(root).get("mpos", ""))


def hide_goal(root: ET.Element) -> None:
    """Place the goal far away."""
    add_force_sensors(root)
    _goal(root).set("pos", "-100 -100 -100")


def _goal(root: ET.Element) -> ET.Element:
    return next(x for x in root.iter("body") if x.get("name") == "goal")


def _home(root: ET.Element) -> ET.Element:
    return next(x for x in root.iter("key") if x.get("name") == "home")


class LeapReading(NamedTuple):
    """Sensor values of the hand and the cube.

    - `angles`, `rates`: angles and velocities of the joints of the hand, rad and rad/s.
    - `torque`: forces of the actuators, N m.
    - `tips`: positions of the fingertips in the frame of the palm, m.
    - `offset`: position of the palm minus that of the cube, m.
    - `cube`, `quat`: position, m, and orientation of the cube.
    - `cube_velocity`, `cube_rate`: velocity, m/s, and angular velocity of the cube in
        world axes, rad/s.
    """

    angles: Float[Array, "16"]
    rates: Float[Array, "16"]
    torque: Float[Array, "16"]
    tips: Float[Array, "12"]
    offset: Float[Array, "3"]
    cube: Float[Array, "3"]
    quat: Float[Array, "4"]
    cube_velocity: Float[Array, "3"]
    cube_rate: Float[Array, "3"]


def read_leap(
    pipeline: AbstractPipeline, sys: System, robot: State, ctrl: Float[Array, "16"]
) -> LeapReading:
    """Read the sensors of the hand in a state.

    **Raises:** `ValueError` if the robot lacks a sensor, or the pipeline does not
    support sensors.
    """
    values = with_sensors(pipeline).sensors(sys, robot, ctrl)
    names = sys.sensors.names
    read = lambda name: values[names[index(names, name, "sensor")]]
    forces = [read(f"{name}_force") for name in sys.actuators.names]
    cube = read("cube_position")
    return LeapReading(
        angles=robot.q[:16],
        rates=robot.qd[:16],
        torque=jnp.concatenate(forces),
        tips=jnp.concatenate([read(f"{tip}_position") for tip in TIPS]),
        offset=read("palm_position") - cube,
        cube=cube,
        quat=read("cube_orientation"),
        cube_velocity=read("cube_linvel"),
        cube_rate=read("cube_angvel"),
    )


def default_pose(sys: System) -> Float[Array, "16"]:
    """Return the joint angles of the hand in the keyframe `home`, rad."""
    return sys.keyframe("home").q[:16]


def random_hand(
    sys: System, key: PRNGKeyArray, spread: Float[Array, ""]
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Draw an initial state: angles with normal noise, within the range of the servos,
    and the cube above the palm in any orientation; at rest.

    **Arguments:**

    - `spread`: standard deviation of the angles, rad.
    """
    key_hand, key_place, key_turn = jr.split(key, 3)
    angles = default_pose(sys)
    low, high = sys.actuators.ctrl_range.T
    noise = spread * jr.normal(key_hand, angles.shape, angles.dtype)
    place = sys.keyframe("home").q[16:19]
    place = place + jr.uniform(key_place, (3,), place.dtype, -0.01, 0.01)
    quat = random_quaternion(key_turn, place.dtype)
    q = jnp.concatenate([jnp.clip(angles + noise, low, high), place, quat])
    return q, jnp.zeros(sys.nv, q.dtype)


def random_quaternion(key: PRNGKeyArray, dtype) -> Float[Array, "4"]:
    """Draw a uniformly distributed orientation.

    ??? cite "Reference"
        Shoemake, *Uniform random rotations*, 1992.
    """
    u, v, w = jr.uniform(key, (3,), dtype)
    one, two = 2.0 * jnp.pi * v, 2.0 * jnp.pi * w
    a, b = jnp.sqrt(1.0 - u), jnp.sqrt(u)
    parts = a * jnp.sin(one), a * jnp.cos(one), b * jnp.sin(two), b * jnp.cos(two)
    return jnp.stack(parts)


class RotateWeights(eqx.Module):
    r"""Weights of the terms of the reward of `LeapRotateZ`.

    - `angvel`: angular velocity of the cube about the vertical, rad/s
    - `linvel`: sum of the absolute velocities of the cube, m/s
    - `pose`: $|q - q_0|^2$ of the angles of the hand and those of `home`
    - `torques`: $\sum_j \tau_j^2$
    - `energy`: $\sum_j |\dot q_j| |\tau_j|$
    - `termination`: 1 if the cube has fallen
    - `action_rate`: $|a - a'|^2$ of the action and the last one
    """

    angvel: Float[Array, ""] = number(1.0)
    linvel: Float[Array, ""] = number(0.0)
    pose: Float[Array, ""] = number(0.0)
    torques: Float[Array, ""] = number(0.0)
    energy: Float[Array, ""] = number(0.0)
    termination: Float[Array, ""] = number(-100.0)
    action_rate: Float[Array, ""] = number(0.0)


class RotateState(eqx.Module):
    """The state of `LeapRotateZ`.

    **Arguments:**

    - `robot`: the state of hand and cube.
    - `key`: key for the next noise.
    - `last_action`: the last action.
    - `history`: observations of the last steps, the latest first.
    """

    robot: State
    key: PRNGKeyArray
    last_action: Float[Array, "16"]
    history: Float[Array, " nstate"]


class LeapRotateZ(AbstractPlaygroundTask):
    r"""A LEAP hand that rotates a cube about the vertical axis (Playground:
    `LeapCubeRotateZAxis`).

    Observation, `state`, 32 entries for each step of the history: joint angles with
    noise, and the action before the last one. With `privileged` it is a dictionary with
    `state` and `privileged_state`, 105 entries: the latest 32, then without noise
    angles, velocities and torques of the joints, positions of the fingertips, position
    of the palm minus that of the cube, orientation, angular velocity and velocity of
    the cube.

    Reward: the sum of the weighted terms of `RotateWeights` times the control step.

    Action: the servo targets are the angles $q_0 + s\,a$, with the angles $q_0$ of
    `home`.

    Initial state: angles of `home` with normal noise; the cube up to 1 cm from its
    position there in each direction, in any orientation; at rest. The episode
    terminates if the center of the cube is below -0.05 m.

    **Arguments:**

    - `sys`: the robot; by default that of `leap_model_without_goal()`.
    - `pipeline`: the physics; must be `Generalized`, the default.
    - `frame_skip`: time steps per control step.
    - `privileged`: true to observe `privileged_state` as well.
    - `history`: number of observed steps.
    - `action_scale`: scale $s$ of actions, rad.
    - `weights`: weights of the reward.
    - `joint_noise`: scale of the uniform noise of angles, rad.
    - `spread`: standard deviation of the initial angles, rad.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `LeapCubeRotateZAxis`.
    """

    sys: System = eqx.field(converter=of_model(leap_model_without_goal), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    privileged: bool = eqx.field(static=True, default=False)
    history: int = eqx.field(static=True, default=1)
    action_scale: Float[Array, ""] = number(0.6)
    weights: RotateWeights = eqx.field(default_factory=RotateWeights)
    joint_noise: Float[Array, ""] = number(0.05)
    spread: Float[Array, ""] = number(0.1)

    @property
    def term_names(self) -> tuple[str, ...]:
        """The names of the weights that are not None."""
        return weight_names(self.weights)

    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""
        return random_hand(self.sys, key, self.spread)

    def begin(self, key: PRNGKeyArray, robot: State) -> tuple[RotateState, Observation]:
        """Start an episode in a state of the robot."""
        key, key_noise = jr.split(key)
        past = jnp.zeros(32 * self.history, robot.q.dtype)
        state = RotateState(robot, key, jnp.zeros_like(robot.q[:16]), past)
        seen = read_leap(self.pipeline, self.sys, robot, robot.q[:16])
        return self._observe(key_noise, state, seen)

    def advance(
        self, state: RotateState, action: Float[Array, " nu"]
    ) -> tuple[RotateState, Observation, dict[str, Float[Array, ""]], Bool[Array, ""]]:
        """Take one control step."""
        key, key_noise = jr.split(state.key)
        ctrl = default_pose(self.sys) + self.action_scale * action
        robot = hold(self, state.robot, ctrl)
        seen = read_leap(self.pipeline, self.sys, robot, ctrl)
        fallen = seen.cube[2] < -0.05
        new = RotateState(robot, key, state.last_action, state.history)
        new, obs = self._observe(key_noise, new, seen)
        terms = self._rewards(state, seen, fallen, action)
        new = RotateState(robot, key, action, new.history)
        return new, obs, terms, fallen

    def _observe(
        self, key, state: RotateState, seen: LeapReading
    ) -> tuple[RotateState, Observation]:
        """Return the state with the observation in its history, and the observation."""
        angles = noise(key, seen.angles, self.joint_noise)
        latest = jnp.concatenate([angles, state.last_action])
        past = jnp.concatenate([latest, state.history[:-32]])
        state = RotateState(state.robot, state.key, state.last_action, past)
        if not self.privileged:
            return state, past
        exact = [
            *(latest, seen.angles, seen.rates, seen.torque, seen.tips, seen.offset),
            *(seen.quat, seen.cube_rate, seen.cube_velocity),
        ]
        return state, {"state": past, "privileged_state": jnp.concatenate(exact)}

    def _rewards(
        self, state: RotateState, seen: LeapReading, fallen: Bool[Array, ""], action
    ) -> dict[str, Float[Array, ""]]:
        off = seen.angles - default_pose(self.sys)
        values = {
            "angvel": seen.cube_rate[2],
            "linvel": jnp.sum(jnp.abs(seen.cube_velocity)),
            "pose": jnp.sum(off**2),
            "torques": jnp.sum(seen.torque**2),
            "energy": jnp.sum(jnp.abs(seen.rates) * jnp.abs(seen.torque)),
            "termination": fallen.astype(off.dtype),
            "action_rate": jnp.sum((action - state.last_action) ** 2),
        }
        return weighted(self.weights, values, self.dt)


leap_cube_rotate_z = LeapRotateZ


class ReorientWeights(eqx.Module):
    r"""Weights of the terms of the reward of `LeapReorient`.

    With $t(x; b, m)$, 1 up to $x = b$, then falling by 0.9 over $m$, and at least 0; the angle
    $\phi$ between cube and goal and the distance $d$ of cube and palm:

    - `orientation`: $t(\phi; 0.2, \pi)$
    - `position`: $t(d; 0.02, 0.05)$
    - `termination`: 1 if the cube has fallen
    - `hand_pose`: $|q - q_0|^2$ of the angles of the hand and those of `home`
    - `action_rate`: $|a - a'|^2 + |a - 2 a' + a''|^2$ of the action and the last two
    - `joint_vel`: $\sum_j (\dot q_j / 4)^2$
    - `energy`: $\sum_j |\dot q_j| |\tau_j|$
    """

    orientation: Float[Array, ""] = number(5.0)
    position: Float[Array, ""] = number(0.5)
    termination: Float[Array, ""] = number(-100.0)
    hand_pose: Float[Array, ""] = number(-0.5)
    action_rate: Float[Array, ""] = number(-0.001)
    joint_vel: Float[Array, ""] = number(0.0)
    energy: Float[Array, ""] = number(-0.001)


class ReorientNoise(eqx.Module):
    """Scales of the noise of the observation.

    **Arguments:**

    - `joint_pos`: uniform noise of angles, rad.
    - `cube_pos`: uniform noise of the place of the cube, m.
    - `cube_ori`: standard deviation of each entry of its quaternion.
    """

    joint_pos: Float[Array, ""] = number(0.05)
    cube_pos: Float[Array, ""] = number(0.02)
    cube_ori: Float[Array, ""] = number(0.1)


class ReorientState(eqx.Module):
    """The state of `LeapReorient`.

    **Arguments:**

    - `robot`: the state of hand and cube.
    - `key`: key for the next goals and noise.
    - `ctrl`: servo targets, rad.
    - `last_action`, `action_before`: the last two actions.
    - `goal`: the goal orientation.
    - `goal_rate`: angular velocity of the goal in its axes, rad/s.
    """

    robot: State
    key: PRNGKeyArray
    ctrl: Float[Array, "16"]
    last_action: Float[Array, "16"]
    action_before: Float[Array, "16"]
    goal: Float[Array, "4"]
    goal_rate: Float[Array, "3"]


class LeapReorient(AbstractPlaygroundTask):
    r"""A LEAP hand that rotates a cube to one goal orientation after another
    (Playground: `LeapCubeReorient`).

    Observation, `state`, 57 entries: joint angles, joint angles minus servo targets,
    position of the palm minus that of the cube, the last two rows of the rotation from
    goal to cube, all with noise; and the action before the last one. With `privileged`
    it is a dictionary with `state` and `privileged_state`, 128 entries: the same, then
    without noise angles and velocities of the joints, positions of the fingertips, palm
    minus cube, rotation from goal to cube, velocity and angular velocity of the cube,
    and 12 zeros in place of Playground's pushes, which are disabled in Playground as
    well.

    Reward: the sum of the weighted terms of `ReorientWeights` times the control step,
    and of `success`, 100 in each step in which the angle is below 0.1 rad.

    Action: a change of the servo targets, $s\,a$; targets stay in their range.

    The goal rotates after a success, with an initial angular velocity from 1 rad/s to 5
    rad/s in each entry, which decreases by a fifth in each step; each step rotates it
    for twice the control step.

    Initial state: angles of `home` with normal noise; the cube up to 1 cm from its
    position there in each direction; cube and goal in any orientation; at rest. The
    episode terminates if the center of the cube is below -0.05 m.

    **Arguments:**

    - `sys`: the robot; by default that of `leap_model()`.
    - `pipeline`: the physics; must be `Generalized`, the default.
    - `frame_skip`: time steps per control step.
    - `privileged`: true to observe `privileged_state` as well.
    - `action_scale`: scale $s$ of actions, rad.
    - `weights`, `noise`: weights of the reward, scales of the noise.
    - `success_angle`: largest angle of a success, rad.
    - `success_reward`: reward of a success.
    - `spread`: standard deviation of the initial angles, rad.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `LeapCubeReorient`.
    """

    sys: System = eqx.field(converter=of_model(leap_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.5)
    weights: ReorientWeights = eqx.field(default_factory=ReorientWeights)
    noise: ReorientNoise = eqx.field(default_factory=ReorientNoise)
    success_angle: Float[Array, ""] = number(0.1)
    success_reward: Float[Array, ""] = number(100.0)
    spread: Float[Array, ""] = number(0.1)

    @property
    def term_names(self) -> tuple[str, ...]:
        """The names of the weights that are not None, and `success`."""
        return *weight_names(self.weights), "success"

    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""
        return random_hand(self.sys, key, self.spread)

    def begin(
        self, key: PRNGKeyArray, robot: State
    ) -> tuple[ReorientState, Observation]:
        """Start an episode in a state of the robot."""
        key, key_goal, key_noise = jr.split(key, 3)
        ctrl = robot.q[:16]
        state = ReorientState(
            robot=robot,
            key=key,
            ctrl=ctrl,
            last_action=jnp.zeros_like(ctrl),
            action_before=jnp.zeros_like(ctrl),
            goal=random_quaternion(key_goal, ctrl.dtype),
            goal_rate=jnp.zeros(3, ctrl.dtype),
        )
        seen = read_leap(self.pipeline, self._with(state.goal), robot, ctrl)
        return state, self._observe(key_noise, state, seen)

    def advance(
        self, state: ReorientState, action: Float[Array, " nu"]
    ) -> tuple[
        ReorientState, Observation, dict[str, Float[Array, ""]], Bool[Array, ""]
    ]:
        """Take one control step."""
        key, key_noise, key_goal = jr.split(state.key, 3)
        low, high = self.sys.actuators.ctrl_range.T
        ctrl = clamp(state.ctrl + self.action_scale * action, low, high)
        sys = self._with(state.goal)
        robot = hold(self, state.robot, ctrl, sys=sys)
        seen = read_leap(self.pipeline, sys, robot, ctrl)
        where = lambda s: (s.robot, s.key, s.ctrl)
        moved = eqx.tree_at(where, state, (robot, key, ctrl))
        obs = self._observe(key_noise, moved, seen)
        fallen = seen.cube[2] < -0.05
        angle = rotation_angle(seen.quat, state.goal)
        success = angle < self.success_angle
        terms = self._rewards(moved, seen, angle, success, fallen, action)
        drawn = jr.uniform(key_goal, (3,), state.goal_rate.dtype, 1.0, 5.0)
        rate = jnp.where(success, drawn, 0.8 * state.goal_rate)
        turn = exponential(Vec3(*(rate * (2.0 * self.dt))))
        goal = jnp.stack(multiply(tuple(state.goal), turn))
        goal = goal / jnp.sqrt(jnp.sum(goal**2))
        where = lambda s: (s.last_action, s.action_before, s.goal, s.goal_rate)
        new = (action, state.last_action, goal, rate)
        return eqx.tree_at(where, moved, new), obs, terms, fallen

    def _with(self, goal: Float[Array, "4"]) -> System:
        """Return the robot with the goal in its scene."""
        return set_mocap(self.sys, "goal", quat=goal)

    def _observe(self, key, state: ReorientState, seen: LeapReading) -> Observation:
        keys = jr.split(key, 3)
        angles = noise(keys[0], seen.angles, self.noise.joint_pos)
        # Noise is symmetric: noise of the cube is noise of the difference.
        offset = noise(keys[1], seen.offset, self.noise.cube_pos)
        blur = self.noise.cube_ori * jr.normal(keys[2], (4,), seen.quat.dtype)
        quat = seen.quat + blur
        quat = quat / safe_sqrt(jnp.sum(quat**2))
        parts = [
            *(angles, angles - state.ctrl, offset, _rows(quat, state.goal)),
            state.last_action,
        ]
        observed = jnp.concatenate(parts)
        if not self.privileged:
            return observed
        exact = [
            *(observed, seen.angles, seen.rates, seen.tips, seen.offset),
            *(_rows(seen.quat, state.goal), seen.cube_velocity, seen.cube_rate),
            jnp.zeros(12, observed.dtype),
        ]
        return {"state": observed, "privileged_state": jnp.concatenate(exact)}

    def _rewards(
        self, state: ReorientState, seen: LeapReading, angle, success, fallen, action
    ) -> dict[str, Float[Array, ""]]:
        off = seen.angles - default_pose(self.sys)
        away = safe_sqrt(jnp.sum(seen.offset**2))
        change = action - state.last_action
        bend = action - 2.0 * state.last_action + state.action_before
        values = {
            "orientation": _near(angle, 0.2, jnp.pi),
            "position": _near(away, 0.02, 0.05),
            "termination": fallen.astype(off.dtype),
            "hand_pose": jnp.sum(off**2),
            "action_rate": jnp.sum(change**2) + jnp.sum(bend**2),
            "joint_vel": jnp.sum((seen.rates / 4.0) ** 2),
            "energy": jnp.sum(jnp.abs(seen.rates) * jnp.abs(seen.torque)),
        }
        earned = jnp.where(success, self.success_reward, 0.0)
        return {**weighted(self.weights, values, self.dt), "success": earned}


def rotation_angle(one: Float[Array, "4"], two: Float[Array, "4"]) -> Float[Array, ""]:
    r"""Return the angle between two orientations, from 0 to $\pi$, rad."""
    turn = _difference(one, two)
    real, imag = jnp.abs(turn[0]), safe_sqrt(jnp.sum(turn[1:] ** 2))
    return 2.0 * jnp.arctan2(imag, real)


def _difference(one: Float[Array, "4"], two: Float[Array, "4"]) -> Float[Array, "4"]:
    """Return the rotation from the second orientation to the first one, in the
    world."""
    w, x, y, z = two
    return jnp.stack(multiply(tuple(one), (w, -x, -y, -z)))


def _rows(one: Float[Array, "4"], two: Float[Array, "4"]) -> Float[Array, "6"]:
    """Return the last two rows of that rotation."""
    return jnp.stack(quaternion_matrix(_difference(one, two)))[3:]


def _near(x: Float[Array, ""], bound: float, margin: float) -> Float[Array, ""]:
    """Return 1 up to a bound, then a linear decrease by 0.9 over a margin, and at least
    0."""
    return jnp.clip(1.0 - 0.9 * jnp.maximum(x - bound, 0.0) / margin, 0.0, 1.0)


leap_cube_reorient = LeapReorient
