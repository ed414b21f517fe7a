"""The task of following velocity commands, for any legged robot."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from eqsim import (
    AbstractPipeline,
    Generalized,
    ResetOptions,
    State,
    System,
    Timestep,
)
from eqsim.bridges import check_count, check_key
from eqsim.envs import (
    check_action,
    Deployment,
    ObservationPart,
    reflect_joints,
    Reflection,
    same_robot_options,
    SignedPermutation,
)
from eqsim.kinematics import forward, forward_velocity
from eqsim.model import GeomKind
from eqsim.model.arrays import as_array
from eqsim.pipelines import Contacts, Solved
from eqsim.sensors import grid_pattern, height_scan
from eqsim.spatial import multiply, positive_part, quaternion_matrix
from eqsim.terrain import ground_height, TerrainGrid

from ._legged import (
    AbstractLegged,
    as_arrays,
    check_term,
    check_torque_limits,
    Commands,
    default_frame_skip,
    per_entry,
    with_noise,
)
from ._rewards import Motion, TERMS
from ._robots import (
    by_joint,
    check_known,
    default_pose,
    find_names,
    find_robot,
    load_robot,
    Names,
    Robot,
)


WEIGHTS = {
    "track_velocity": 1.5,
    "track_yaw_rate": 0.75,
    "progress": 1.5,
    "vertical_velocity": -1.0,
    "tilt_rate": -0.25,
    "tilt": -8.0,
    "pose": -0.1,
    "torques": -0.08,
    "joint_acceleration": -1e-7,
    "action_rate": -0.01,
    "air_time": 0.5,
    "alternation": 1.0,
    "slip": -0.05,
    "joint_limits": -1.0,
    "stand_still": -0.2,
    "fallen": -450.0,
}
"""Default weights of the reward terms of `VelocityTracking`, per second."""

NOISE = {
    "linear_velocity": 0.1,
    "angular_velocity": 0.2,
    "gravity": 0.05,
    "joint_positions": 0.03,
    "joint_velocities": 1.5,
    "height_scan": 0.01,
}
"""Default half widths of the uniform noise of observations."""

OBSERVATION = (
    *("linear_velocity", "angular_velocity", "gravity", "command"),
    *("joint_positions", "joint_velocities", "last_action"),
)
PARTS = (*OBSERVATION, "height_scan")
SCALES = {"joint_velocities": 0.05, "angular_velocity": 0.25}


class VelocityState(eqx.Module):
    """The state of `VelocityTracking`.

    **Arguments:**

    - `robot`: the state of the robot.
    - `key`: key of commands and noise to come.
    - `command`: forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `command_steps`: control steps until the next command.
    - `last_action`: the last action.
    - `air_time`: time since each foot touched the ground, s.
    - `swing_peak`: largest height of each foot in that time, m.
    - `contact`: true for feet that touched the ground at the last step.
    """

    robot: State
    key: PRNGKeyArray
    command: Float[Array, "3"]
    command_steps: Int[Array, ""]
    last_action: Float[Array, " nu"]
    air_time: Float[Array, " nfeet"]
    swing_peak: Float[Array, " nfeet"]
    contact: Bool[Array, " nfeet"]


class VelocityTracking(AbstractLegged):
    r"""A legged robot that follows velocity commands.

    Observation: the parts of `observation`, times `scales`, with uniform noise: velocity and
    angular velocity of the root and the direction of gravity in its axes, the command,
    joint angles minus those of the default pose, joint velocities, the last action; and
    `height_scan`, the heights of the ground about the root relative to it, from -2 to 2 m.

    Action: the targets of the servos are the angles $q_0 + s\,a$, with the default pose $q_0$
    and the action scales $s$ of the robot. Actions have no bounds; torques have.

    Reward: the sum of the terms that `weights` names, times weight and control step. `TERMS`
    has all terms; `help` of each has its equation.

    Initial state: the default pose with any heading, joint angles that deviate by up to 0.1
    rad, and velocities of the root up to 0.5 m/s and 0.5 rad/s in each entry. The episode
    terminates if the root is tilted by more than `fallen`; on terrain also if its height is
    less than a third of that of the default pose, which ends episodes beyond the sides. All
    heights are those above the ground.

    Contacts and torques are those of the last time step of a control step.

    **Arguments:**

    - `robot`: description of the robot, or a name in `ROBOTS`.
    - `sys`: the robot; by default that of `load_robot(robot, terrain)`.
    - `pipeline`: the physics; by default `Generalized(max_contacts=16)`.
    - `frame_skip`: time steps per control step; by default those of 0.02 s.
    - `observation`: names of the parts of the observation, in order.
    - `scales`: factors of parts of the observation; 1 for others.
    - `noise`: half widths of the uniform noise of parts, before scaling; 0 for others.
    - `weights`: weights of the reward terms, 1/s; by default `WEIGHTS` with those of the
        description.
    - `commands`: the commands; or those fields of `Commands` that differ from the defaults,
        by name, with velocities times the `speed` of the robot.
    - `soft_limit`: length of the soft range of a joint, as a fraction of its range.
    - `terrain`: terrain in place of the floor; only without `sys`. Initial states are those
        of a floor at z = 0, which `TerrainCurriculum` moves to patches of the terrain.
    - `scan`: points of `height_scan` about the root, x ahead and y to the left, m; by
        default a grid of 1 m by 0.6 m with points every 0.2 m.

    **Raises:** `ValueError` if the robot does not have what its description names or a term
    needs, a part, a term or a field of commands does not exist, or a number of commands is
    out of range; `TypeError` if `commands` is neither commands nor a dictionary.

    ??? cite "Reference"
        Rudin et al., *Learning to walk in minutes using massively parallel deep
        reinforcement learning*, 2022, sections 3 and A; Zakka et al., *MuJoCo Playground*,
        2025.
    """

    sys: System
    pipeline: AbstractPipeline
    frame_skip: int = eqx.field(static=True)
    observation: tuple[str, ...] = eqx.field(static=True)
    names: Names = eqx.field(static=True)
    mirror: SignedPermutation | None = eqx.field(static=True)
    scan: tuple[tuple[float, float], ...] = eqx.field(static=True)
    scales: dict[str, Float[Array, ""]]
    noise: dict[str, Float[Array, ""]]
    weights: dict[str, Float[Array, ""]]
    commands: Commands
    start: Float[Array, " nq"]
    pose: Float[Array, " nu"]
    action_scale: Float[Array, " nu"]
    pose_weights: Float[Array, " nu"]
    swing_height: Float[Array, ""]
    fallen: Float[Array, ""]
    soft_limit: Float[Array, ""]

    def __init__(
        self,
        robot: Robot | str = "go2",
        sys: System | None = None,
        pipeline: AbstractPipeline | None = None,
        *,
        frame_skip: int | None = None,
        observation: tuple[str, ...] = OBSERVATION,
        scales: Mapping[str, Any] = SCALES,
        noise: Mapping[str, Any] = NOISE,
        weights: Mapping[str, Any] | None = None,
        commands: Any = None,
        soft_limit: Any = 0.95,
        terrain: TerrainGrid | None = None,
        scan: Any = None,
    ):
        robot = find_robot(robot)
        if not (sys is None or terrain is None):
            raise ValueError(
                "Pass `sys` or `terrain`, not both: `sys` stands on its own ground. "
                "`load_robot(robot, terrain)` loads one on terrain."
            )
        self.sys = load_robot(robot, terrain) if sys is None else sys
        self.pipeline = Generalized(max_contacts=16) if pipeline is None else pipeline
        skip = default_frame_skip(robot) if frame_skip is None else frame_skip
        self.frame_skip = skip
        check_count("frame_skip", self.frame_skip)
        self.observation = observation
        self.names = find_names(self.sys, robot)
        self.scales, self.noise = as_arrays(scales), as_arrays(noise)
        weights = {**WEIGHTS, **robot.weights} if weights is None else weights
        self.weights = as_arrays(weights)
        for what, names, known in (
            ("observation", observation, PARTS),
            ("scales", scales, PARTS),
            ("noise", noise, PARTS),
            ("weights", weights, TERMS),
        ):
            check_known(what, names, known)
        self.commands = _commands(commands, robot)
        self.start, self.pose = default_pose(self.sys, robot, self.names)
        joints = self.names.joints
        try:  # Now, as numbers of the robot are not known inside a transformation.
            self.mirror = reflect_joints(self.sys, self.start, joints)
        except ValueError:
            self.mirror = None
        self.scan = _points(grid_pattern((1.0, 0.6), 0.2) if scan is None else scan)
        self._check_terms(robot)
        dtype = self.pose.dtype
        self.action_scale = jnp.asarray(
            by_joint(robot.action_scale, joints, "action_scale"), dtype
        )
        self.pose_weights = jnp.asarray(
            by_joint(robot.pose_weights, joints, "pose_weights"), dtype
        )
        self.swing_height = as_array(robot.foot_height)
        self.fallen = as_array(robot.fallen)
        self.soft_limit = as_array(soft_limit)

    def _check_terms(self, robot: Robot) -> None:
        """Raise `ValueError` for terms that need what the robot does not have."""
        check_torque_limits(self.sys, self.weights)
        feet, others = robot.feet, self.names.others
        alone = [name for k, name in enumerate(feet) if others[k] == k]
        needed = "feet whose names differ by side, as left and right"
        check_term("alternation", self.weights, alone, needed)

    def velocity(self, robot: State) -> Float[Array, "3"]:
        """Return what commands ask for: forward and lateral velocity of the root in its own
        axes, m/s, and its yaw rate, rad/s."""
        linear, angular, *_ = self._root(robot)
        return jnp.stack([linear[0], linear[1], angular[2]])

    def tracking(
        self, state: VelocityState
    ) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]]:
        """Return the command and the velocity of the root."""
        names = "forward, m/s", "lateral, m/s", "yaw, rad/s"
        pairs = zip(state.command, self.velocity(state.robot), strict=True)
        return dict(zip(names, pairs, strict=True))

    def deployment(self) -> Deployment:
        """Return what a controller outside the simulator needs to know."""
        nu = self.sys.nu
        scanned = "height_scan" in self.observation
        size = {**dict.fromkeys(_SIGNS, 3), "height_scan": len(self.scan)}
        part = lambda name: ObservationPart(
            name, size.get(name, nu), float(self.scales.get(name, 1.0))
        )
        parts = map(part, self.observation)
        return self.describe(parts)._replace(scan=self.scan if scanned else ())

    def reflection(self) -> Reflection:
        """Return the reflection of observations and actions.

        **Raises:** `ValueError` if the robot is not symmetric, or the points of an observed
        scan are not.
        """
        action = self.mirror
        if action is None:  # Then this says why.
            action = reflect_joints(self.sys, self.start, self.names.joints)
        scan = _reflected_points(self.scan)
        if scan is None and "height_scan" in self.observation:
            raise ValueError(
                "The task has no reflection, as the points of `scan` are not symmetric: each "
                "(x, y) needs one point (x, -y)."
            )
        obs = reflected_observation(self.observation, action, scan)
        return Reflection(obs, action)

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[VelocityState, Timestep]:
        """Draw an initial state; `options` may contain `q` and `qd`."""
        check_key(key)
        options = same_robot_options(self, options)
        key, key_start, key_command, key_noise = jr.split(key, 4)
        q, qd = self._initial(key_start)
        q = q if options.q is None else options.q
        qd = qd if options.qd is None else options.qd
        zeros = jnp.zeros(len(self.names.feet), q.dtype)
        command, steps = self.commands.draw(key_command, self.dt)
        state = VelocityState(
            robot=self.pipeline.init(self.sys, q, qd),
            key=key,
            command=command,
            command_steps=steps,
            last_action=jnp.zeros(self.sys.nu, q.dtype),
            air_time=zeros,
            swing_peak=zeros,
            contact=jnp.zeros(zeros.shape, bool),
        )
        parts = self._parts(state, *self._root(state.robot)[:3])
        return state, self.first_report(self._observe(key_noise, parts))

    def step(
        self, state: VelocityState, action: Float[Array, " nu"]
    ) -> tuple[VelocityState, Timestep]:
        """Take one control step."""
        check_action(self, action)
        key, key_command, key_noise = jr.split(state.key, 3)
        ctrl = self.pose + self.action_scale * action
        robot, solved = self.advance(state.robot, ctrl)
        now = self._motion(state, robot, solved, action)
        due = state.command_steps <= 1
        command, steps = self.commands.draw(key_command, self.dt)
        new = VelocityState(
            robot=robot,
            key=key,
            command=jnp.where(due, command, state.command),
            command_steps=jnp.where(due, steps, state.command_steps - 1),
            last_action=action,
            air_time=jnp.where(now.contact, 0.0, now.air_time),
            swing_peak=jnp.where(now.contact, 0.0, now.swing_peak),
            contact=now.contact,
        )
        parts = self._parts(new, now.velocity, now.angular_velocity, now.gravity)
        obs = self._observe(key_noise, parts)
        return new, self.report(obs, TERMS, now, now.fallen)

    def _initial(self, key):
        key_turn, key_joints, key_velocity = jr.split(key, 3)
        q = self.start
        half = 0.5 * jr.uniform(key_turn, (), q.dtype, -3.14, 3.14)
        zero = jnp.zeros_like(half)
        turn = jnp.cos(half), zero, zero, jnp.sin(half)
        quat = jnp.stack(multiply(turn, tuple(q[3:7])))
        q = q.at[3:7].set(quat)
        off = jr.uniform(key_joints, self.pose.shape, q.dtype, -0.1, 0.1)
        q = q.at[jnp.asarray(self.names.q)].add(off)
        velocity = jr.uniform(key_velocity, (6,), q.dtype, -0.5, 0.5)
        return q, jnp.zeros(self.sys.nv, q.dtype).at[:6].set(velocity)

    def _root(self, robot: State):
        """Return velocity, angular velocity and direction of gravity in the axes of the
        root, and its velocity in the world."""
        rot = jnp.stack(quaternion_matrix(tuple(robot.q[3:7]))).reshape(3, 3)
        lin, ang = robot.qd[:3], robot.qd[3:6]
        return lin @ rot, ang, -rot[2], lin

    def _ground(self, pos: Float[Array, "*batch 3"]) -> Float[Array, "*batch"]:
        """Return the height of the ground below points, m."""
        if not self.sys.height_fields.nfield:
            return jnp.zeros_like(pos[..., 2])
        return ground_height(self.sys, pos[..., 0], pos[..., 1])

    def _feet(self, robot: State):
        """Return positions and velocities of the feet in the world."""
        poses = forward(self.sys, robot.q)
        rates = forward_velocity(self.sys, robot.q, robot.qd)
        pos, vel = [], []
        for link, is_site, index in self.names.feet:
            place = (self.sys.sites if is_site else self.sys.geoms).pos[index]
            arm = poses.rot[link] @ place
            sole = 0.0 if is_site else _depth(self.sys.geoms, index, poses.rot[link])
            pos.append((poses.pos[link] + arm).at[2].add(-sole))
            vel.append(rates.lin[link] + jnp.cross(rates.ang[link], arm))
        return jnp.stack(pos), jnp.stack(vel)

    def _touching(
        self, contacts: Contacts
    ) -> tuple[Bool[Array, " nfeet"], Float[Array, "nfeet 3"]]:
        """Return which feet touch anything, and the contact force on each, N."""
        hits, forces = [], []
        for link, is_site, index in self.names.feet:
            own = contacts.of_link(self.sys, link)
            if not is_site:
                own = jnp.any(contacts.geoms == index, axis=-1)
            links = jnp.asarray(np.array([*self.sys.geoms.links, -1], np.int32))
            second = links[contacts.geoms[:, 1]] == link
            force = jnp.where(second[:, None], contacts.force, -contacts.force)
            hits.append(jnp.any(own))
            forces.append(jnp.sum(force, axis=0, where=own[:, None]))
        return jnp.stack(hits), jnp.stack(forces)

    def _motion(
        self, state: VelocityState, robot: State, solved: Solved, action
    ) -> Motion:
        """Return what is known of the step from `state` to `robot`."""
        velocity, rate, gravity, world = self._root(robot)
        places, velocities = self._feet(robot)
        contact, foot_force = self._touching(solved.contacts)
        q, qd = jnp.asarray(self.names.q), jnp.asarray(self.names.qd)
        angles, rates = robot.q[q], robot.qd[qd]
        air_time = state.air_time + self.dt
        ground = self._ground(jnp.concatenate([robot.q[None, :3], places]))
        height, foot_height = robot.q[2] - ground[0], places[:, 2] - ground[1:]
        fallen = gravity[2] > -jnp.cos(self.fallen)
        if self.sys.height_fields.nfield:
            fallen = fallen | (height < self.start[2] / 3.0)
        return Motion(
            command=state.command,
            moving=jnp.sum(state.command**2) > 0.01**2,
            velocity=velocity,
            angular_velocity=rate,
            world_velocity=world,
            gravity=gravity,
            height=height,
            deviation=angles - self.pose,
            rates=rates,
            acceleration=(rates - state.robot.qd[qd]) / self.dt,
            beyond=self.beyond(angles, self.soft_limit),
            pose_weights=self.pose_weights,
            torque=solved.actuator_force,
            torque_limit=self.torque_limit(),
            action=action,
            last_action=state.last_action,
            contact=contact,
            other_contact=contact[jnp.asarray(self.names.others)],
            landed=contact & ~state.contact,
            air_time=air_time,
            # The larger one, with a derivative where they are equal.
            swing_peak=state.swing_peak + positive_part(foot_height - state.swing_peak),
            foot_height=foot_height,
            foot_velocity=velocities,
            foot_force=foot_force,
            swing_height=self.swing_height,
            fallen=fallen,
        )

    def _parts(self, state: VelocityState, velocity, rate, gravity):
        """Return all parts of the observation by name."""
        q, qd = jnp.asarray(self.names.q), jnp.asarray(self.names.qd)
        scanned = {}
        if "height_scan" in self.observation:
            root = self.sys.links.names[self.names.root]
            heights = height_scan(self.sys, state.robot.q, root, np.array(self.scan))
            scanned["height_scan"] = jnp.clip(heights, -2.0, 2.0)
        return {
            "linear_velocity": velocity,
            "angular_velocity": rate,
            "gravity": gravity,
            "command": state.command,
            "joint_positions": state.robot.q[q] - self.pose,
            "joint_velocities": state.robot.qd[qd],
            "last_action": state.last_action,
            **scanned,
        }

    def _observe(self, key, parts) -> PyTree[Float[Array, "..."]]:
        """Return the observation of the parts that it has, with noise."""
        scales = per_entry(self.observation, parts, self.scales, 1.0)
        return scales * with_noise(key, self.observation, parts, self.noise)


_VECTOR, _PSEUDOVECTOR = (1, -1, 1), (-1, 1, -1)
_SIGNS = {
    "linear_velocity": _VECTOR,
    "angular_velocity": _PSEUDOVECTOR,
    "gravity": _VECTOR,
    "command": (1, -1, -1),
}


def reflected_observation(
    parts: tuple[str, ...], joints: SignedPermutation, scan: SignedPermutation | None
) -> SignedPermutation:
    """Return the reflection of an observation.

    **Arguments:**

    - `parts`: names of its parts.
    - `joints`: reflection of joint angles.
    - `scan`: reflection of the height scan.
    """
    known = {k: SignedPermutation((0, 1, 2), signs) for k, signs in _SIGNS.items()}
    if scan is not None:
        known["height_scan"] = scan
    return SignedPermutation.join([known.get(name, joints) for name in parts])


def _commands(given: Any, robot: Robot) -> Commands:
    """Return the given commands, or those of given fields, see `VelocityTracking`."""
    if isinstance(given, Commands):
        return given
    fields = {} if given is None else given
    if not isinstance(fields, Mapping):
        raise TypeError(
            f"`commands` must be a `Commands` or a dictionary of its fields, got {given!r}."
        )
    check_known("commands", fields, vars(Commands()))
    return Commands(**fields).scaled(robot.speed)


def _points(values: Any) -> tuple[tuple[float, float], ...]:
    """Return the points of a scan as numbers.

    **Raises:** `ValueError` if they are no points of two finite coordinates.
    """
    points = np.asarray(values, float)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise ValueError(
            f"`scan` has the shape {points.shape}, expected (n, 2): x and y of points."
        )
    if not np.all(np.isfinite(points)):
        raise ValueError(f"`scan` must be finite, m, got {points.tolist()}.")
    return tuple((float(x), float(y)) for x, y in points)


def _reflected_points(
    points: tuple[tuple[float, float], ...],
) -> SignedPermutation | None:
    """Return which point is the reflection (x, -y) of each point (x, y); None if there is
    none for some, or points occur twice."""
    here, every = np.array(points), np.arange(len(points))
    apart = np.abs(here[:, None] * [1.0, -1.0] - here[None]).max(axis=2)
    index = apart.argmin(axis=1)
    if apart[every, index].max() > 1e-4 or np.any(index[index] != every):
        return None
    return SignedPermutation(index, np.ones_like(index))


def _depth(geoms: Any, index: int, rot: Float[Array, "3 3"]) -> Float[Array, ""]:
    """Return how far a shape reaches below its center, m, by the rotation of its link."""
    kind, size = geoms.kinds[index], geoms.size[index]
    own = jnp.stack(quaternion_matrix(tuple(geoms.quat[index]))).reshape(3, 3)
    # Vertical components of the axes of the shape.
    up = jnp.abs(rot[2] @ own)
    if kind is GeomKind.BOX:
        return up @ size
    if kind is GeomKind.CAPSULE:
        return size[0] + up[2] * size[1]
    return size[0]
