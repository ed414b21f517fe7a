"""A LEAP hand that rotates a cube about the vertical axis."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System

from ._leap_hand import (
    default_pose,
    leap_model_without_goal,
    LeapReading,
    random_hand,
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

    sys: System = eqx.field(converter=converter(leap_model_without_goal), default=None)
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


def leap_cube_rotate_z(**options: Any) -> LeapRotateZ:
    """Create `LeapRotateZ`. **Arguments:** its options."""
    return LeapRotateZ(**options)
