"""Base class of the joystick tasks: legged robots that follow velocity commands."""

import abc
import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import State
from eqsim.envs import (
    Deployment,
    ObservationPart,
    reflect_joints,
    Reflection,
    SignedPermutation,
)
from eqsim.model import Actuators, Joints
from eqsim.spatial import multiply

from ._drawn import AbstractCommands, AbstractPushes, is_moving, PushState
from ._legged import (
    JoystickNoise,
    legged_model,
    LeggedRobot,
    LeggedSensors,
    observed,
    read_legged,
    sensed,
)
from ._task import (
    AbstractPlaygroundTask,
    between,
    clipped,
    hold,
    index,
    number,
    Observation,
    weight_names,
    weighted,
)


# Names of `Deployment` for the parts of an observation that have other names here.
_DEPLOYED = {
    "velocity": "linear_velocity",
    "gyro": "angular_velocity",
    "angles": "joint_positions",
    "rates": "joint_velocities",
    # Playground observes before it remembers an action.
    "last_action": "previous_action",
}


class GaitPhase(eqx.Module):
    r"""Phases of the feet.

    **Arguments:**

    - `angle`: phase of each foot from $-\pi$ to $\pi$, rad. The foot lifts after $-\pi$,
        is highest at 0, and is on the floor at $\pi$.
    - `rate`: advance of the phases per control step, rad.
    """

    angle: Float[Array, " nfeet"]
    rate: Float[Array, ""]


class GaitClock(eqx.Module):
    r"""The rhythm in which two feet alternate.

    **Arguments:**

    - `frequency`: range of the frequency of an episode, Hz.
    - `rests`: true to hold the phases at $\pi$ while the command is shorter than 0.01.
    """

    frequency: Float[Array, "2"] = number((1.25, 1.5))
    rests: bool = eqx.field(static=True, default=False)

    def first(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> GaitPhase:
        """Draw the frequency of an episode; `dt` is the control step, s."""
        rate = 2.0 * jnp.pi * dt * between(key, self.frequency)
        return GaitPhase(jnp.asarray([0.0, jnp.pi], rate.dtype), rate)

    def next(self, phase: GaitPhase, command: Float[Array, "3"]) -> GaitPhase:
        """Return the phases one control step later."""
        turned = phase.angle + phase.rate + jnp.pi
        angle = jnp.fmod(turned, 2.0 * jnp.pi) - jnp.pi
        if self.rests:
            angle = jnp.where(is_moving(command, 0.01), angle, jnp.pi)
        return GaitPhase(angle, phase.rate)


class JoystickState(eqx.Module):
    """The state of a joystick task.

    **Arguments:**

    - `robot`: the state of the robot.
    - `key`: key of commands, pushes and noise to come.
    - `command`: forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `command_steps`: control steps until the next command.
    - `last_action`: the last action.
    - `air_time`: time since each foot touched the floor, s.
    - `swing_peak`: largest height of each foot since it left the floor, m.
    - `last_contact`: true if each foot touched the floor at the last step.
    - `push`: the pushes of the episode; None without `pushes`.
    - `phase`: phases of the feet; None without `clock`.
    """

    robot: State
    key: PRNGKeyArray
    command: Float[Array, "3"]
    command_steps: Int[Array, ""]
    last_action: Float[Array, " nu"]
    air_time: Float[Array, " nfeet"]
    swing_peak: Float[Array, " nfeet"]
    last_contact: Bool[Array, " nfeet"]
    push: Any = None
    phase: GaitPhase | None = None


class JoystickStep(NamedTuple):
    """Quantities of one control step, from which reward terms and the observation are
    computed.

    - `state`: the state of the task, with the new state of the robot, but the command,
        last action, last contact and phases during the step.
    - `seen`: sensor values in the new state.
    - `ctrl`: targets of the servos, rad.
    - `external`: external wrenches during the step, if any.
    - `action`: the action of the step.
    - `force`: force of a push, N.
    - `landed`: true for feet that touch for the first time after a swing.
    - `terminated`: true if the episode ends.
    """

    state: JoystickState
    seen: LeggedSensors
    ctrl: Float[Array, " nu"]
    external: Float[Array, "nlink 6"] | None
    action: Float[Array, " nu"]
    force: Float[Array, "3"]
    landed: Bool[Array, " nfeet"]
    terminated: Bool[Array, ""]


class AbstractJoystick(AbstractPlaygroundTask):
    """A legged robot that follows velocity commands.

    Tasks differ in the description `about`, in the terms of the reward (`values`), and in
    the values of their fields.
    """

    about: eqx.AbstractClassVar[LeggedRobot]
    privileged: eqx.AbstractVar[bool]
    action_scale: eqx.AbstractVar[Float[Array, ""]]
    joint_scale: eqx.AbstractVar[Float[Array, "2"]]
    noise: eqx.AbstractVar[JoystickNoise]
    commands: eqx.AbstractVar[AbstractCommands]
    pushes: eqx.AbstractVar[AbstractPushes | None]
    clock: eqx.AbstractVar[GaitClock | None]

    @abc.abstractmethod
    def values(self, now: JoystickStep) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms before weights."""

    @property
    def start(self) -> Float[Array, " nq"]:
        """The coordinates of the keyframe of the task."""
        return self.sys.keyframe(self.about.keyframe).q

    @property
    def default_pose(self) -> Float[Array, " nu"]:
        """The joint angles of the keyframe, rad."""
        return self.start[7:]

    @property
    def term_names(self) -> tuple[str, ...]:
        """The names of the weights that are not None, and `clip` if the reward is
        clipped."""
        return *weight_names(self.weights), *(("clip",) if self.about.clipped else ())

    def reflection(self) -> Reflection:
        """Return the reflection of observations and actions, for the robot of Playground's
        file."""
        joints = _reflected_joints(self.about)
        scalar = SignedPermutation((0,), (1,))
        vector = SignedPermutation((0, 1, 2), (1, -1, 1))
        pseudovector = SignedPermutation((0, 1, 2), (-1, 1, -1))
        pairs = len(self.about.feet) // 2
        feet = _swapped_sides(pairs, scalar)
        known = {
            "velocity": vector,
            "gravity": vector,
            "gyro": pseudovector,
            "command": SignedPermutation((0, 1, 2), (1, -1, -1)),
            "phase": SignedPermutation.join([feet, feet]),
            "accelerometer": vector,
            "world_rate": pseudovector,
            "height": scalar,
            "imu_height": scalar,
            "contact": feet,
            "last_contact": feet,
            "air_time": feet,
            "feet_velocity": _swapped_sides(pairs, vector),
            "force": vector,
            "pushing": scalar,
        }
        joined = lambda names: SignedPermutation.join(
            [known.get(x, joints) for x in names]
        )
        state = joined(self.about.observation)
        if not self.privileged:
            return Reflection(state, joints)
        exact = SignedPermutation.join([state, joined(self.about.privileged)])
        return Reflection({"state": state, "privileged_state": exact}, joints)

    def deployment(self) -> Deployment:
        """Return what a controller outside the simulator needs to know; the policy reads
        `state`."""
        nu, actuators, joints = self.sys.nu, self.sys.actuators, self.sys.joints
        listed = lambda x: tuple(float(value) for value in x)
        sizes = {name: nu for name in ("angles", "rates", "last_action")}
        sizes["phase"] = 2 * len(self.about.feet)
        limits = _upper_limits(actuators), _upper_limits(joints)[1:]
        return Deployment(
            root=self.sys.links.names[0],
            joints=joints.names[1:],
            default_pose=listed(self.default_pose),
            action_scale=listed(jnp.broadcast_to(self.action_scale, (nu,))),
            stiffness=listed(-actuators.bias[:, 1]),
            damping=listed(-actuators.bias[:, 2]),
            torque_limit=listed(np.minimum(*limits)),
            period=float(self.dt),
            observation=tuple(
                ObservationPart(_DEPLOYED.get(name, name), sizes.get(name, 3))
                for name in self.about.observation
            ),
            imu=self.about.imu,
            joint_damping=listed(joints.damping[6:]),
            target_range=_target_range(actuators),
            rests=self.clock is not None and self.clock.rests,
        )

    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""
        key_place, key_joints = jr.split(key)
        q, qd = scattered(key_place, self.start, self.sys.nv)
        factors = between(key_joints, self.joint_scale, q[7:].shape)
        return jnp.concatenate([q[:7], q[7:] * factors]), qd

    def begin(
        self, key: PRNGKeyArray, robot: State
    ) -> tuple[JoystickState, Observation]:
        """Start an episode in a state of the robot."""
        keys, dtype = jr.split(key, 6), robot.q.dtype
        zeros, still = jnp.zeros(len(self.about.feet), dtype), jnp.zeros(3, dtype)
        action = jnp.zeros(self.sys.nu, dtype)
        no = jnp.zeros(zeros.shape, bool)
        pushes, clock = self.pushes, self.clock
        state = JoystickState(
            robot=robot,
            key=keys[0],
            command=self.commands.first(keys[1]),
            command_steps=self.commands.steps(keys[2], self.dt),
            last_action=action,
            air_time=zeros,
            swing_peak=zeros,
            last_contact=no,
            push=None if pushes is None else pushes.first(keys[3], self.dt),
            phase=None if clock is None else clock.first(keys[5], self.dt),
        )
        ctrl = robot.q[7:]
        seen = read_legged(self.about, self.pipeline, self.sys, robot, ctrl)
        fallen = jnp.zeros((), bool)
        now = JoystickStep(state, seen, ctrl, None, action, still, no, fallen)
        return state, self.observe(keys[4], now)

    def advance(
        self, state: JoystickState, action: Float[Array, " nu"]
    ) -> tuple[
        JoystickState, Observation, dict[str, Float[Array, ""]], Bool[Array, ""]
    ]:
        """Take one control step."""
        keys = jr.split(state.key, 5)
        now = self._take_step(keys[:2], state, action)
        terms = weighted(self.weights, self.values(now), self.dt)
        terms = clipped(terms) if self.about.clipped else terms
        new = self._remember(keys[3:], now)
        return new, self.observe(keys[2], now), terms, now.terminated

    def observe(self, key: PRNGKeyArray, now: JoystickStep) -> Observation:
        """Return the observation at the end of a control step."""
        state, seen = now.state, now.seen
        flag = lambda x: jnp.ravel(x).astype(self.sys.dt.dtype)
        # Only forces last for a time.
        push = state.push if isinstance(state.push, PushState) else None
        parts = {
            **sensed(seen, state.robot, self.default_pose),
            "command": state.command,
            "last_action": state.last_action,
            "last_contact": flag(state.last_contact),
            "air_time": state.air_time,
            "force": now.force,
            "pushing": flag(jnp.zeros((), bool) if push is None else push.pushing),
        }
        if state.phase is not None:
            angle = state.phase.angle
            parts["phase"] = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)])
        return observed(key, self.about, parts, self.noise, self.privileged)

    def _take_step(self, keys, state: JoystickState, action) -> JoystickStep:
        """Move the robot for one control step."""
        push, robot, force = self._push(keys[1], state)
        external = None
        if force is not None:
            trunk = index(self.sys.links.names, self.about.trunk, "link")
            external = jnp.zeros((self.sys.nlink, 6), force.dtype)
            external = external.at[trunk, 3:].set(force)
        ctrl = self.default_pose + self.action_scale * action
        robot = hold(self, robot, ctrl, external)
        seen = read_legged(self.about, self.pipeline, self.sys, robot, ctrl, external)
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
            phase=state.phase,
        )
        return JoystickStep(
            state=moved,
            seen=seen,
            ctrl=ctrl,
            external=external,
            action=action,
            force=jnp.zeros(3, robot.q.dtype) if force is None else force,
            landed=(state.air_time > 0.0) & (seen.contact | state.last_contact),
            terminated=(seen.up[2] < 0.0) | seen.found(self.about.fatal),
        )

    def _push(self, key, state: JoystickState):
        """Return the pushes after this step, the state of the robot after an impulse, and
        the force on the trunk, N, if any."""
        if self.pushes is None or state.push is None:
            return None, state.robot, None
        mass = jnp.sum(self.sys.links.mass)
        return self.pushes.apply(key, state.push, state.robot, mass, self.dt)

    def _remember(self, keys, now: JoystickStep) -> JoystickState:
        """Return the state with the last action and contacts, the next phases, and a new
        command if one is due."""
        state, touching = now.state, now.seen.contact
        due = state.command_steps <= 0
        command = self.commands.new(keys[0], state.command)
        steps = self.commands.steps(keys[1], self.dt)
        phase = state.phase
        if self.clock is not None and phase is not None:
            phase = self.clock.next(phase, state.command)
        return JoystickState(
            robot=state.robot,
            key=state.key,
            command=jnp.where(due, command, state.command),
            command_steps=jnp.where(due, steps, state.command_steps),
            last_action=now.action,
            air_time=jnp.where(touching, 0.0, state.air_time),
            swing_peak=jnp.where(touching, 0.0, state.swing_peak),
            last_contact=touching,
            push=state.push,
            phase=phase,
        )


def _upper_limits(limited: Actuators | Joints) -> np.ndarray:
    """Return the largest force of actuators, or on joints; infinite without a limit."""
    upper = limited.force_range
    largest = np.inf if upper is None else np.asarray(upper)[:, 1]
    return np.where(limited.force_limited, largest, np.inf)


def _target_range(actuators: Actuators) -> tuple[tuple[float, float], ...]:
    """Return the ranges of the targets; none if no actuator has one."""
    limited = np.asarray(actuators.ctrl_limited)
    if not limited.any():
        return ()
    wide = np.array([-1e6, 1e6])
    rows = np.where(limited[:, None], np.asarray(actuators.ctrl_range), wide)
    return tuple((float(low), float(high)) for low, high in rows)


def scattered(
    key: PRNGKeyArray, q: Float[Array, " nq"], nv: int
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Draw x and y from -0.5 m to 0.5 m about those of `q`, any heading, and velocities of
    the root from -0.5 to 0.5 in each entry, m/s and rad/s."""
    key_place, key_turn, key_velocity = jr.split(key, 3)
    half = 0.5 * jr.uniform(key_turn, (), q.dtype, -3.14, 3.14)
    zero = jnp.zeros_like(half)
    turn = jnp.cos(half), zero, zero, jnp.sin(half)
    quat = jnp.stack(multiply(tuple(q[3:7]), turn))
    place = q[:2] + jr.uniform(key_place, (2,), q.dtype, -0.5, 0.5)
    velocity = jr.uniform(key_velocity, (6,), q.dtype, -0.5, 0.5)
    rest = jnp.zeros(nv - 6, q.dtype)
    return jnp.concatenate([place, q[2:3], quat, q[7:]]), jnp.concatenate(
        [velocity, rest]
    )


@ft.cache
def _reflected_joints(about: LeggedRobot) -> SignedPermutation:
    with jax.ensure_compile_time_eval():
        sys = legged_model(about)
        q = sys.keyframe(about.keyframe).q
        return reflect_joints(sys, q, sys.joints.names[1:])


def _swapped_sides(pairs: int, each: SignedPermutation) -> SignedPermutation:
    """Return the reflection of values of feet, which alternate between sides."""
    size = len(each.index)
    foot = np.arange(2 * pairs)[:, None] ^ 1
    index = size * foot + np.array(each.index)
    return SignedPermutation(np.ravel(index), each.sign * 2 * pairs)
