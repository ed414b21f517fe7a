"""The task of tracking a reference motion, for any legged robot with a free root."""

import pathlib
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

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
    Reference,
    reset_options,
    same_robot_options,
)
from eqsim.kinematics import forward, forward_velocity, integrate
from eqsim.model.arrays import as_array
from eqsim.pipelines import Solved
from eqsim.spatial import clamp, safe_sqrt

from ._legged import (
    AbstractLegged,
    as_arrays,
    check_torque_limits,
    default_frame_skip,
    with_noise,
)
from ._motion import find_motion, ReferenceMotion
from ._rewards import about_anchor, LinkStates, TRACKING_TERMS, TrackingStep
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


TRACKING_WEIGHTS = {
    "anchor_position": 0.5,
    "anchor_orientation": 0.5,
    "link_positions": 1.0,
    "link_orientations": 1.0,
    "link_velocities": 1.0,
    "link_rates": 1.0,
    "action_rate": -0.1,
    "joint_limits": -10.0,
}
"""Default weights of the reward terms of `MotionTracking`, per second."""

SIGMAS = {
    "anchor_position": 0.3,
    "anchor_orientation": 0.4,
    "link_positions": 0.3,
    "link_orientations": 0.4,
    "link_velocities": 1.0,
    "link_rates": 3.14,
    "joint_positions": 0.3,
    "joint_velocities": 3.0,
}
"""Default widths of the terms that have one: m, rad, m/s and rad/s."""

LIMITS = {"anchor_height": 0.25, "anchor_tilt": 0.8, "end_height": 0.25}
"""Default error limits; an episode terminates above them."""

START_NOISE = {
    "position": (0.02, 0.02, 0.005),
    "orientation": (0.05, 0.05, 0.1),
    "linear_velocity": (0.2, 0.2, 0.1),
    "angular_velocity": (0.2, 0.2, 0.3),
    "joint_positions": 0.05,
}
"""Default half widths of the uniform noise of initial states: m, rad, m/s and rad/s."""

TRACKING_NOISE = {
    "anchor_position": 0.05,
    "anchor_orientation": 0.05,
    "linear_velocity": 0.1,
    "angular_velocity": 0.2,
    "joint_positions": 0.01,
    "joint_velocities": 0.5,
}
"""Default half widths of the uniform noise of observations."""

TRACKING_PARTS = (
    *("reference_positions", "reference_velocities"),
    *("anchor_position", "anchor_orientation", "linear_velocity", "angular_velocity"),
    *("joint_positions", "joint_velocities", "last_action"),
)
_VECTORS = ("anchor_position", "linear_velocity", "angular_velocity")
# Links that are tracked by default, besides the root, the feet and links without children.
_LINKS = ("torso", "trunk", "knee", "shank", "elbow", "hip_roll", "shoulder_roll")


class TrackingState(eqx.Module):
    """The state of `MotionTracking`.

    **Arguments:**

    - `robot`: the state of the robot.
    - `key`: key of noise to come.
    - `frame`: current frame of the reference.
    - `last_action`: the last action.
    """

    robot: State
    key: PRNGKeyArray
    frame: Int[Array, ""]
    last_action: Float[Array, " nu"]


class MotionTracking(AbstractLegged):
    r"""A legged robot that tracks a reference motion.

    Observation: the parts of `observation`, with uniform noise. `reference_positions`,
    minus the default pose, and `reference_velocities` are the joint angles and velocities of
    the next frame; `anchor_position` and `anchor_orientation` are the pose of its anchor in
    the axes of that of the robot (of the orientation, the first two columns of the matrix);
    then velocity and angular velocity of the root in its axes, joint angles minus the
    default pose, joint velocities, and the last action. On a robot, `anchor_position` and
    `linear_velocity` need a state estimator; leave them out of `observation` without one.

    Action: the targets of the servos are $\hat q + (k_d / k_p) \hat{\dot q} + s\,a$, with
    joint angles and velocities of the next frame, the gains of the servos, which then also
    damp about the velocity of the reference, and the action scales $s$ of the robot; or $q_0
    + s\,a$, with the default pose $q_0$, if `residual` is false. Actions have no bounds;
    torques have.

    Reward: the sum of the terms that `weights` names, times weight and control step.
    `TRACKING_TERMS` has all terms; `help` of each has its equation. Poses of the reference
    are computed from its coordinates and `sys` in each step, so that they follow changes of
    the robot, and so do derivatives. A control step is one frame: the motion is resampled to
    `dt`, and if the time step changes later, the reference becomes faster or slower, also in
    its velocities. `motion.period` is not read any more, and has no derivative.

    Initial state: a uniformly drawn frame of the reference except the last one, plus
    `start_noise`, with joint angles limited to their ranges; `start` is clipped to these
    frames. After the last frame, the reference rests. The episode terminates if the height
    of the anchor differs from that of the reference by more than `limits["anchor_height"]`,
    m, the vertical component of its z axis by more than `limits["anchor_tilt"]`, or the
    height of a foot or hand by more than `limits["end_height"]`, m.

    **Arguments:**

    - `robot`: description of the robot, or a name in `ROBOTS`.
    - `motion`: the motion, the path of a file for `load_motion`, or None for `squats`.
    - `sys`: the robot; by default that of `load_robot(robot)`.
    - `pipeline`: the physics; by default `Generalized(max_contacts=16)`.
    - `start`, `end`: part of the file, s.
    - `frame_skip`: time steps per control step; by default those of 0.02 s.
    - `anchor`: link whose pose is tracked in the world; by default one whose name contains
        "torso" or "trunk", or the root.
    - `links`: links whose poses are tracked relative to the anchor; by default the root, the
        anchor, knees, elbows, hip and shoulder roll, links of the feet, and links without
        children.
    - `ends`: feet and hands, of `links`; by default those without children, and of the feet.
    - `observation`: names of the parts of the observation, in order.
    - `noise`: half widths of the uniform noise of parts; 0 for others.
    - `start_noise`: half widths of the uniform noise of initial states, as `START_NOISE`.
    - `weights`: weights of the reward terms, 1/s.
    - `sigmas`: widths of terms.
    - `limits`: error limits; the episode terminates above them.
    - `soft_limit`: length of the soft range of a joint, as a fraction of its range.
    - `residual`: true for targets about the reference.

    **Raises:** `ValueError` if the robot does not have what its description or the motion
    names or a term needs, or a part or a term does not exist.

    ??? cite "Reference"
        Liao et al., *BeyondMimic: From motion tracking to versatile humanoid control via
        guided diffusion*, 2025, section III; Peng et al., *DeepMimic*, 2018.
    """

    sys: System
    pipeline: AbstractPipeline
    motion: ReferenceMotion
    frame_skip: int = eqx.field(static=True)
    observation: tuple[str, ...] = eqx.field(static=True)
    names: Names = eqx.field(static=True)
    links: tuple[str, ...] = eqx.field(static=True)
    anchor: str = eqx.field(static=True)
    ends: tuple[str, ...] = eqx.field(static=True)
    residual: bool = eqx.field(static=True)
    noise: dict[str, Float[Array, ""]]
    start_noise: dict[str, Any]
    weights: dict[str, Float[Array, ""]]
    sigmas: dict[str, Float[Array, ""]]
    limits: dict[str, Float[Array, ""]]
    pose: Float[Array, " nu"]
    action_scale: Float[Array, " nu"]
    soft_limit: Float[Array, ""]

    def __init__(
        self,
        robot: Robot | str = "g1",
        motion: ReferenceMotion | str | pathlib.Path | None = None,
        sys: System | None = None,
        pipeline: AbstractPipeline | None = None,
        *,
        start: float | int = 0.0,
        end: float | int | None = None,
        frame_skip: int | None = None,
        anchor: str | None = None,
        links: tuple[str, ...] | None = None,
        ends: tuple[str, ...] | None = None,
        observation: tuple[str, ...] = TRACKING_PARTS,
        noise: Mapping[str, Any] = TRACKING_NOISE,
        start_noise: Mapping[str, Any] = START_NOISE,
        weights: Mapping[str, Any] = TRACKING_WEIGHTS,
        sigmas: Mapping[str, Any] = SIGMAS,
        limits: Mapping[str, Any] = LIMITS,
        soft_limit: Any = 0.9,
        residual: bool = True,
    ):
        robot = find_robot(robot)
        self.sys = load_robot(robot) if sys is None else sys
        self.pipeline = Generalized(max_contacts=16) if pipeline is None else pipeline
        skip = default_frame_skip(robot) if frame_skip is None else frame_skip
        self.frame_skip = skip
        check_count("frame_skip", self.frame_skip)
        self.names = find_names(self.sys, robot)
        found = find_motion(motion, robot, self.sys, start=start, end=end)
        # Without the value of a traced time step, use that of the description; a motion of
        # traced period keeps its frames.
        traced = isinstance(self.sys.dt, Tracer)
        dt = (robot.dt if traced else float(self.sys.dt)) * self.frame_skip
        known = not isinstance(found.period, Tracer)
        self.motion = found.resampled(self.sys, dt) if known else found
        names = self.sys.links.names
        self.anchor = _find_anchor(names, self.names) if anchor is None else anchor
        own = _default_links(self.sys, self.names)
        self.links = (*own, self.anchor) if links is None else (*links, self.anchor)
        self.links = tuple(name for name in names if name in self.links)
        leaves = {*_leaves(self.sys), *_foot_links(self.sys, self.names)}
        chosen = tuple(n for n in self.links if n in leaves and n != self.anchor)
        self.ends = chosen if ends is None else ends
        self.observation, self.residual = observation, residual
        _check_servos(self.sys, residual)
        for what, given, known in (
            ("anchor", [self.anchor], names),
            ("links", links or (), names),
            ("ends", self.ends, self.links),
            ("observation", observation, TRACKING_PARTS),
            ("noise", noise, TRACKING_PARTS),
            ("start_noise", start_noise, START_NOISE),
            ("weights", weights, TRACKING_TERMS),
            ("sigmas", sigmas, SIGMAS),
            ("limits", limits, LIMITS),
        ):
            check_known(what, given, known)
        self.noise, self.weights = as_arrays(noise), as_arrays(weights)
        check_torque_limits(self.sys, self.weights)
        # Names that are not given have their default values.
        self.sigmas = as_arrays({**SIGMAS, **sigmas})
        self.limits = as_arrays({**LIMITS, **limits})
        none = dict.fromkeys(START_NOISE, 0.0)
        self.start_noise = as_arrays({**none, **start_noise})
        _, self.pose = default_pose(self.sys, robot, self.names)
        joints = self.names.joints
        self.action_scale = jnp.asarray(
            by_joint(robot.action_scale, joints, "action_scale"), self.pose.dtype
        )
        self.soft_limit = as_array(soft_limit)

    def deployment(self) -> Deployment:
        """Return what a controller outside the simulator needs to know, with the motion."""
        nu = self.sys.nu
        size = {"anchor_orientation": 6, **dict.fromkeys(_VECTORS, 3)}
        parts = [ObservationPart(name, size.get(name, nu)) for name in self.observation]
        return self.describe(parts)._replace(reference=self._table())

    def _table(self) -> Reference:
        """Return all frames of the motion."""
        q, qd = jax.vmap(self.reference)(jnp.arange(self.motion.frames))
        poses = jax.vmap(lambda q: forward(self.sys, q))(q)
        link = self.sys.links.names.index(self.anchor)
        axes = poses.rot[:, link].reshape(-1, 9)
        anchor = jnp.concatenate([poses.pos[:, link], axes], axis=1)
        return Reference(
            anchor=self.anchor,
            joint_positions=_rows(q[:, jnp.asarray(self.names.q)]),
            joint_velocities=_rows(qd[:, jnp.asarray(self.names.qd)]),
            anchor_poses=_rows(anchor),
            root_poses=_rows(q[:, :7]),
            residual=self.residual,
        )

    def reference(
        self, frame: Int[Array, ""]
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Return coordinates and velocities of a frame of the reference, with the time `dt`
        between frames."""
        motion = eqx.tree_at(lambda m: m.period, self.motion, self.dt)
        return motion.at(self.sys, frame)

    def tracking(
        self, state: TrackingState
    ) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]]:
        """Return mean errors: of joint angles, of the positions of links about the anchor,
        and of the position of the anchor in the world. The targets are zero."""
        q, qd = self.reference(state.frame)
        links, target = self._links(state.robot), self._links_at(q, qd)
        k = self.links.index(self.anchor)
        near, _ = about_anchor(target, links.pos[k], links.rot[k], k)
        index = jnp.asarray(self.names.q)
        distance = lambda a, b: safe_sqrt(jnp.sum((a - b) ** 2, axis=-1))
        errors = {
            "joints, rad": jnp.mean(jnp.abs(state.robot.q[index] - q[index])),
            "links, m": jnp.mean(distance(links.pos, near)),
            "anchor, m": distance(links.pos[k], target.pos[k]),
        }
        return {name: (jnp.zeros_like(x), x) for name, x in errors.items()}

    def targets(
        self, state: TrackingState, action: Float[Array, " nu"]
    ) -> Float[Array, " nu"]:
        """Return the targets of the servos for an action, rad."""
        about = self.pose
        if self.residual:
            q, qd = self.reference(state.frame + 1)
            bias = self.sys.actuators.bias
            lead = qd[jnp.asarray(self.names.qd)] * bias[:, 2] / bias[:, 1]
            about = q[jnp.asarray(self.names.q)] + lead
        return about + self.action_scale * action

    def observe(
        self, state: TrackingState, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nobs"]:
        """Return the observation, with noise if there is a key for it."""
        return self._observe(key, state, self._links(state.robot))

    def failed(self, state: TrackingState) -> Bool[Array, ""]:
        """Return whether an error is too large, see `limits`."""
        links = self._links(state.robot)
        target = self._links_at(*self.reference(state.frame))
        k = self.links.index(self.anchor)
        near, _ = about_anchor(target, links.pos[k], links.rot[k], k)
        return self._failed(links, target, near)

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[TrackingState, Timestep]:
        """Draw an initial state; `options` may contain `q`, `qd`, and as `start` the frame of
        the reference, which is clipped to all but the last one."""
        check_key(key)
        options, frame = _split_start(self, options)
        key, key_frame, key_start, key_noise = jr.split(key, 4)
        last = self.motion.frames - 1
        if frame is None:
            frame = jr.randint(key_frame, (), 0, last, jnp.int32)
        frame = jnp.clip(jnp.asarray(frame, jnp.int32), 0, last - 1)
        q, qd = self._initial(key_start, frame)
        q = q if options.q is None else options.q
        qd = qd if options.qd is None else options.qd
        state = TrackingState(
            robot=self.pipeline.init(self.sys, q, qd),
            key=key,
            frame=frame,
            last_action=jnp.zeros(self.sys.nu, q.dtype),
        )
        obs = self._observe(key_noise, state, self._links(state.robot))
        return state, self.first_report(obs)

    def step(
        self, state: TrackingState, action: Float[Array, " nu"]
    ) -> tuple[TrackingState, Timestep]:
        """Take one control step."""
        check_action(self, action)
        key, key_noise = jr.split(state.key)
        frame = state.frame + 1
        q, qd = self.reference(frame)
        ctrl = self.targets(state, action)
        robot, solved = self.advance(state.robot, ctrl)
        links = self._links(robot)
        now = self._tracked(state, robot, solved, action, links, q, qd)
        new = TrackingState(robot, key, frame, action)
        obs = self._observe(key_noise, new, links)
        return new, self.report(obs, TRACKING_TERMS, now, now.failed)

    def _initial(self, key, frame: Int[Array, ""]):
        """Return coordinates and velocities of a frame, with noise."""
        q, qd = self.reference(frame)
        noise, nv = self.start_noise, self.sys.nv
        draw = jr.uniform(key, (nv + 6,), q.dtype, -1.0, 1.0)
        joints = jnp.asarray(self.names.qd)
        move = jnp.zeros(nv, q.dtype)
        move = move.at[:3].set(draw[:3] * noise["position"])
        move = move.at[3:6].set(draw[3:6] * noise["orientation"])
        move = move.at[joints].set(draw[joints] * noise["joint_positions"])
        q = integrate(self.sys, q, move)
        low, high = self.joint_ranges(1.0)
        index = jnp.asarray(self.names.q)
        q = q.at[index].set(clamp(q[index], low, high))
        qd = qd.at[:3].add(draw[nv : nv + 3] * noise["linear_velocity"])
        return q, qd.at[3:6].add(draw[nv + 3 :] * noise["angular_velocity"])

    def _links(self, robot: State) -> LinkStates:
        return self._links_at(robot.q, robot.qd)

    def _links_at(self, q, qd) -> LinkStates:
        """Return poses and velocities of the tracked links."""
        index = jnp.asarray([self.sys.links.names.index(name) for name in self.links])
        poses = forward(self.sys, q)
        rates = forward_velocity(self.sys, q, qd)
        return LinkStates(
            poses.pos[index], poses.rot[index], rates.lin[index], rates.ang[index]
        )

    def _tracked(
        self, state: TrackingState, robot: State, solved: Solved, action, links, q, qd
    ) -> TrackingStep:
        """Return the quantities of the step from `state` to `robot`."""
        target, k = self._links_at(q, qd), self.links.index(self.anchor)
        pos, rot = about_anchor(target, links.pos[k], links.rot[k], k)
        index, rates = jnp.asarray(self.names.q), jnp.asarray(self.names.qd)
        angles = robot.q[index]
        return TrackingStep(
            links=links,
            target=target,
            anchor=k,
            relative_pos=pos,
            relative_rot=rot,
            angle_error=angles - q[index],
            rate_error=robot.qd[rates] - qd[rates],
            acceleration=(robot.qd[rates] - state.robot.qd[rates]) / self.dt,
            beyond=self.beyond(angles, self.soft_limit),
            torque=solved.actuator_force,
            torque_limit=self.torque_limit(),
            action=action,
            last_action=state.last_action,
            failed=self._failed(links, target, pos),
            sigma=self.sigmas,
        )

    def _failed(self, links: LinkStates, target: LinkStates, near) -> Bool[Array, ""]:
        """Return whether an error is too large."""
        k = self.links.index(self.anchor)
        height = jnp.abs(links.pos[k, 2] - target.pos[k, 2])
        tilt = jnp.abs(links.rot[k, 2, 2] - target.rot[k, 2, 2])
        failed = (height > self.limits["anchor_height"]) | (
            tilt > self.limits["anchor_tilt"]
        )
        if self.ends:
            ends = jnp.asarray([self.links.index(name) for name in self.ends])
            apart = jnp.abs(links.pos[ends, 2] - near[ends, 2])
            failed = failed | jnp.any(apart > self.limits["end_height"])
        return failed

    def _observe(self, key, state: TrackingState, links: LinkStates):
        """Return the observation, with noise."""
        index, rates = jnp.asarray(self.names.q), jnp.asarray(self.names.qd)
        robot, k = state.robot, self.links.index(self.anchor)
        q, qd = self.reference(state.frame + 1)
        link = self.sys.links.names.index(self.anchor)
        target = forward(self.sys, q)
        root = forward(self.sys, robot.q).rot[self.names.root]
        here, rot = links.pos[k], links.rot[k]
        parts = {
            "reference_positions": q[index] - self.pose,
            "reference_velocities": qd[rates],
            "anchor_position": (target.pos[link] - here) @ rot,
            "anchor_orientation": (rot.T @ target.rot[link])[:, :2].reshape(-1),
            "linear_velocity": robot.qd[:3] @ root,
            "angular_velocity": robot.qd[3:6],
            "joint_positions": robot.q[index] - self.pose,
            "joint_velocities": robot.qd[rates],
            "last_action": state.last_action,
        }
        return with_noise(key, self.observation, parts, self.noise)


def _rows(table: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in np.asarray(table))


def _split_start(env: MotionTracking, options) -> tuple[ResetOptions, Any]:
    """Return the options for the robot, and the frame of the start."""
    options = reset_options(options)
    frame = options.start
    without = ResetOptions(
        options.q, options.qd, options.sys, options.context, options.patch
    )
    return same_robot_options(env, without), frame


def _check_servos(sys: System, residual: bool) -> None:
    """Raise `ValueError` for actuators that have no gains to follow a reference with."""
    stiffness = sys.actuators.bias[:, 1]
    if not residual or isinstance(stiffness, Tracer):
        return
    pairs = zip(sys.actuators.names, stiffness, strict=True)
    if loose := [name for name, k in pairs if not float(k) < 0.0]:
        raise ValueError(
            f"Targets about the reference need position servos, unlike {', '.join(loose)}. "
            "Load the robot with `load_robot`, or pass `residual=False`."
        )


def _find_anchor(links: tuple[str, ...], names: Names) -> str:
    """Return the link of the torso, or the root."""
    torsos = [n for n in links if "torso" in n.lower() or "trunk" in n.lower()]
    return torsos[0] if torsos else links[names.root]


def _default_links(sys: System, names: Names) -> tuple[str, ...]:
    """Return the links that are tracked by default."""
    parts = [n for n in sys.links.names if any(part in n.lower() for part in _LINKS)]
    root = sys.links.names[names.root]
    return (root, *parts, *_foot_links(sys, names), *_leaves(sys))


def _foot_links(sys: System, names: Names) -> tuple[str, ...]:
    return tuple(sys.links.names[link] for link, *_ in names.feet)


def _leaves(sys: System) -> tuple[str, ...]:
    """Return the links without children."""
    parents = {*sys.links.parents}
    return tuple(n for k, n in enumerate(sys.links.names) if k not in parents)
