"""A Go1 that follows the commands of a joystick."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.spatial import multiply, positive_part

from ._commands import Commands
from ._go1_reading import go1_model, Go1Reading, read_go1
from ._go1_rewards import effort, gait, JoystickWeights, posture, tracking
from ._pushes import Pushes, PushState
from ._task import (
    AbstractPlaygroundTask,
    converter,
    hold,
    index,
    noise,
    number,
    Observation,
    physics,
    weighted,
)


class JoystickNoise(eqx.Module):
    """Scales of the uniform noise of the observation.

    **Arguments:**

    - `joint_pos`, `joint_vel`: noise of joint angles, rad, and velocities, rad/s.
    - `gyro`, `gravity`, `linvel`: noise of the gyroscope, rad/s, the direction of gravity, and the
        velocity, m/s.
    """

    joint_pos: Float[Array, ""] = number(0.03)
    joint_vel: Float[Array, ""] = number(1.5)
    gyro: Float[Array, ""] = number(0.2)
    gravity: Float[Array, ""] = number(0.05)
    linvel: Float[Array, ""] = number(0.1)


class JoystickState(eqx.Module):
    """The state of `Go1Joystick`.

    **Arguments:**

    - `robot`: the state of the robot.
    - `key`: key of commands, pushes and noise to come.
    - `command`: forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `command_steps`: control steps until the next command.
    - `last_action`: the last action.
    - `air_time`: time since each foot touched the floor, s.
    - `swing_peak`: largest height of each foot since it left the floor, m.
    - `last_contact`: true if each foot touched the floor at the last step.
    - `push`: the pushes of the episode; None without `Go1Joystick.pushes`.
    """

    robot: State
    key: PRNGKeyArray
    command: Float[Array, "3"]
    command_steps: Int[Array, ""]
    last_action: Float[Array, " nu"]
    air_time: Float[Array, "4"]
    swing_peak: Float[Array, "4"]
    last_contact: Bool[Array, "4"]
    push: PushState | None


class Go1Joystick(AbstractPlaygroundTask):
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
    - `weights`, `noise`, `commands`: weights of the reward, scales of the noise, commands.
    - `pushes`: pushes of the trunk; None, the default, for none.
    - `tracking_sigma`: width $\sigma$ of the tracking terms, m$^2$/s$^2$ and
        rad$^2$/s$^2$.
    - `foot_height`: target height of a swing, m.
    - `soft_limit`: soft joint limits as a fraction of the range.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `Go1JoystickFlatTerrain`.
    """

    sys: System = eqx.field(converter=converter(go1_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    privileged: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.5)
    weights: JoystickWeights = eqx.field(default_factory=JoystickWeights)
    noise: JoystickNoise = eqx.field(default_factory=JoystickNoise)
    commands: Commands = eqx.field(default_factory=Commands)
    pushes: Pushes | None = None
    tracking_sigma: Float[Array, ""] = number(0.25)
    foot_height: Float[Array, ""] = number(0.1)
    soft_limit: Float[Array, ""] = number(0.95)

    @property
    def default_pose(self) -> Float[Array, " nu"]:
        """The joint angles of the keyframe `home`, rad."""
        return self.sys.keyframe("home").q[7:]

    @property
    def term_names(self) -> tuple[str, ...]:
        """The names of `JoystickWeights`, and `clip`."""
        return *vars(self.weights), "clip"

    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""
        key_place, key_turn, key_velocity = jr.split(key, 3)
        q = self.sys.keyframe("home").q
        half = 0.5 * jr.uniform(key_turn, (), q.dtype, -3.14, 3.14)
        zero = jnp.zeros_like(half)
        turn = jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)])
        quat = jnp.stack(multiply(tuple(q[3:7]), tuple(turn)))
        place = q[:2] + jr.uniform(key_place, (2,), q.dtype, -0.5, 0.5)
        velocity = jr.uniform(key_velocity, (6,), q.dtype, -0.5, 0.5)
        rest = jnp.zeros(self.sys.nv - 6, q.dtype)
        return jnp.concatenate([place, q[2:3], quat, q[7:]]), jnp.concatenate(
            [velocity, rest]
        )

    def begin(
        self, key: PRNGKeyArray, robot: State
    ) -> tuple[JoystickState, Observation]:
        """Start an episode in a state of the robot."""
        key, key_command, key_steps, key_push, key_noise = jr.split(key, 5)
        zeros = jnp.zeros(4, robot.q.dtype)
        push = None if self.pushes is None else self.pushes.first(key_push, self.dt)
        state = JoystickState(
            robot=robot,
            key=key,
            command=self.commands.first(key_command),
            command_steps=self.commands.steps(key_steps, self.dt),
            last_action=jnp.zeros(self.sys.nu, robot.q.dtype),
            air_time=zeros,
            swing_peak=zeros,
            last_contact=jnp.zeros(4, bool),
            push=push,
        )
        seen = read_go1(self.pipeline, self.sys, robot, self.default_pose)
        return state, self._observe(key_noise, state, seen, jnp.zeros_like(zeros[:3]))

    def advance(
        self, state: JoystickState, action: Float[Array, " nu"]
    ) -> tuple[
        JoystickState, Observation, dict[str, Float[Array, ""]], Bool[Array, ""]
    ]:
        """Take one control step."""
        keys = jr.split(state.key, 5)
        push, force, external = self._push(keys[1], state)
        ctrl = self.default_pose + self.action_scale * action
        robot = hold(self, state.robot, ctrl, external)
        seen = read_go1(self.pipeline, self.sys, robot, ctrl, external)
        fallen = seen.up[2] < 0.0
        landed = (state.air_time > 0.0) & (seen.contact | state.last_contact)
        moved = JoystickState(
            robot=robot,
            key=keys[0],
            command=state.command,
            command_steps=state.command_steps - 1,
            last_action=state.last_action,
            air_time=state.air_time + self.dt,
            swing_peak=jnp.maximum(state.swing_peak, seen.feet_height),
            last_contact=state.last_contact,
            push=push,
        )
        obs = self._observe(keys[2], moved, seen, force)
        terms = self._rewards(moved, seen, landed, fallen, action)
        return self._remember(keys[3:], moved, seen, action), obs, terms, fallen

    def _remember(
        self, keys, state: JoystickState, seen: Go1Reading, action
    ) -> JoystickState:
        """Return the state with the last action and contacts, and a new command if one
        is due."""
        due = state.command_steps <= 0
        command = jnp.where(
            due, self.commands.new(keys[0], state.command), state.command
        )
        steps = jnp.where(
            due, self.commands.steps(keys[1], self.dt), state.command_steps
        )
        return JoystickState(
            robot=state.robot,
            key=state.key,
            command=command,
            command_steps=steps,
            last_action=action,
            air_time=jnp.where(seen.contact, 0.0, state.air_time),
            swing_peak=jnp.where(seen.contact, 0.0, state.swing_peak),
            last_contact=seen.contact,
            push=state.push,
        )

    def _push(self, key, state: JoystickState):
        """Return the push after this step, its force on the trunk, N, and that force as
        an argument of the physics."""
        none = jnp.zeros(3, state.robot.q.dtype)
        if self.pushes is None or state.push is None:
            return None, none, None
        mass = jnp.sum(self.sys.links.mass)
        push, force = self.pushes.force(key, state.push, mass, self.dt)
        trunk = index(self.sys.links.names, "trunk", "link")
        external = jnp.zeros((self.sys.nlink, 6), none.dtype)
        return push, force, external.at[trunk, 3:].set(force)

    def _observe(
        self, key, state: JoystickState, seen: Go1Reading, force: Float[Array, "3"]
    ) -> Observation:
        keys, scales = jr.split(key, 5), self.noise
        angles, rates = state.robot.q[7:] - self.default_pose, state.robot.qd[6:]
        parts = [
            noise(keys[0], seen.velocity, scales.linvel),
            noise(keys[1], seen.gyro, scales.gyro),
            noise(keys[2], seen.gravity, scales.gravity),
            noise(keys[3], angles, scales.joint_pos),
            noise(keys[4], rates, scales.joint_vel),
            state.last_action,
            state.command,
        ]
        if not self.privileged:
            return jnp.concatenate(parts)
        flag = lambda x: jnp.ravel(x).astype(angles.dtype)
        pushing = jnp.zeros((), bool) if state.push is None else state.push.pushing
        exact = [
            *(seen.gyro, seen.accelerometer, seen.gravity, seen.velocity),
            *(seen.world_rate, angles, rates, seen.torque, flag(state.last_contact)),
            *(jnp.ravel(seen.feet_velocity), state.air_time, force, flag(pushing)),
        ]
        whole = jnp.concatenate([*parts, *exact])
        return {"state": jnp.concatenate(parts), "privileged_state": whole}

    def _rewards(
        self,
        state: JoystickState,
        seen: Go1Reading,
        landed: Bool[Array, "4"],
        fallen: Bool[Array, ""],
        action: Float[Array, " nu"],
    ) -> dict[str, Float[Array, ""]]:
        moving = jnp.sum(state.command**2) > 0.01**2
        limits = self.soft_limit * self.sys.joints.range[1:]
        angles, rates = state.robot.q[7:], state.robot.qd[6:]
        values = {
            **tracking(seen, state.command, self.tracking_sigma),
            **posture(angles, self.default_pose, limits, moving),
            **effort(seen.torque, rates, action, state.last_action),
            **gait(
                *(seen, state.air_time, state.swing_peak, landed, moving),
                self.foot_height,
            ),
            "termination": fallen.astype(angles.dtype),
        }
        terms = weighted(self.weights, values, self.dt)
        total = jnp.sum(jnp.stack(list(terms.values())))
        return {**terms, "clip": positive_part(-total)}


def go1_joystick_flat(**options: Any) -> Go1Joystick:
    """Create `Go1Joystick`. **Arguments:** its options."""
    return Go1Joystick(**options)
