"""A LEAP hand that rotates a cube to a goal orientation."""

from typing import Any

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

from ._leap_hand import (
    default_pose,
    leap_model,
    LeapReading,
    random_hand,
    random_quaternion,
    read_leap,
)
from ._task import (
    AbstractPlaygroundTask,
    converter,
    hold,
    noise,
    number,
    Observation,
    physics,
    weight_names,
    weighted,
)


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

    sys: System = eqx.field(converter=converter(leap_model), default=None)
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


def leap_cube_reorient(**options: Any) -> LeapReorient:
    """Create `LeapReorient`. **Arguments:** its options."""
    return LeapReorient(**options)
