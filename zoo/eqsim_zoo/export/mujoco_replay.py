"""Replay of policies in MuJoCo C: the robot of a file, and episodes with its policy.

`MujocoRobot` finds the names of a deployment in a model, builds observations and applies
servos; `replay` runs an ONNX policy with it, and measures how well commands are followed.
"""

import math
import os
import pathlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax.random as jr
import numpy as np

from eqsim.envs import Deployment, ObservationPart, Reference
from eqsim.io import with_height_field
from eqsim.io.mjcf.mujoco_names import engine
from eqsim.render import write_gif
from eqsim.render.drawing import context
from eqsim.terrain import AbstractTerrain, Stairs

from .policy_files import OnnxPolicy


Servo = Literal["policy", "model"]
"""Servos of the joints: with the gains that the policy was trained with, or those of the
model file."""

PUSH_SECONDS, PUSH_PERIOD = 0.2, 5.0
"""Duration of a push, and time from one to the next, s."""

NOISE = {
    "linear_velocity": 0.1,
    "angular_velocity": 0.2,
    "gravity": 0.05,
    "joint_positions": 0.01,
    "joint_velocities": 1.5,
    "height_scan": 0.02,
    "anchor_position": 0.05,
    "anchor_orientation": 0.05,
}
"""Half widths of the uniform noise at level 1, in the units of each part (Rudin et al.,
*Learning to walk in minutes using massively parallel deep reinforcement learning*, 2022,
table of observation noise); of anchors, those of `MotionTracking`."""

MOTION_HEIGHT, MOTION_TILT = 0.25, 0.8
"""A robot that tracks a motion has fallen if the height of its anchor, m, or the vertical
component of the z axis of its anchor differs by more from the motion (Liao et al.,
*BeyondMimic*, 2025)."""

TERRAIN, TERRAIN_CELL, TERRAIN_MARGIN = "terrain", 0.05, 2.0
"""Name of the height field of terrain, distance of its grid points, and how far it reaches
beyond what a command covers, m."""
_MOST_POINTS = 4001
"""Largest number of grid points along one side: 200 m."""


class MujocoRobot:
    """A model of MuJoCo whose joints follow the targets of a policy.

    With `servo="policy"`, actuators of the joints become position servos with the gains
    and torque limits of the deployment, whatever they are in the file: MuJoCo computes
    `stiffness * (target - q) - damping * qd` in each physics step. With `"model"`, they are
    those of the file, which must be position servos.

    **Arguments:**

    - `file`: MJCF file of the scene, or a `mujoco.MjSpec`.
    - `deployment`: the deployment of the task of the policy.
    - `servo`: servos of the joints.
    - `gait`: frequency of the gait phases, Hz; needed if the policy observes `phase`.
    - `start`: where the robot starts, relative to its place in the file, m.
    - `floor`: height of the floor that terrain replaced in the scene, m: the robot starts
        as high above the ground as it would above this floor. None: its place in the file
        is already on the ground.

    `frame` is the current frame of the motion that a policy tracks: add 1 after each control
    step.

    **Raises:** `ValueError` if the file cannot be loaded, links, joints, sites or actuators
    are missing (all of them are listed), actuators are not suitable, or the control period
    is no multiple of the time step.
    """

    def __init__(
        self,
        file: str | os.PathLike | Any,
        deployment: Deployment,
        servo: Servo = "policy",
        gait: float | int = 0.0,
        start: Sequence[float | int] = (0.0, 0.0, 0.0),
        floor: float | None = None,
    ):
        self._mujoco = engine()
        self._file, self.model = self._load(file)
        self.deployment, self._gait = deployment, gait
        self._offset, self._floor = np.asarray(start, float), floor
        self.data = self._mujoco.MjData(self.model)
        motion = deployment.reference
        self._motion = None if motion is None else _Motion.of(motion, self._offset)
        self.frame = 0
        self._find()
        self._check_phase()
        self.substeps = self._number_of_steps()
        limit = np.asarray(deployment.torque_limit)
        if servo == "policy":
            self._apply_gains(limit)
        elif servo == "model":
            self._check_servos()
            limit = np.minimum(limit, self._limits_of_file())
        else:
            raise ValueError(f"`servo` must be 'policy' or 'model', got {servo!r}.")
        self.torque_limit = limit
        self.reset()

    def _load(self, file: Any) -> tuple[str, Any]:
        """Return the name of a scene and its model."""
        if isinstance(file, self._mujoco.MjSpec):
            return file.modelname, file.compile()
        if not pathlib.Path(file).is_file():
            raise FileNotFoundError(f"There is no model file {str(file)!r}.")
        try:
            return str(file), self._mujoco.MjModel.from_xml_path(str(file))
        except ValueError as error:
            raise ValueError(f"MuJoCo cannot load {str(file)!r}: {error}") from error

    # Finding parts by name.

    def _find(self) -> None:
        """Find links, joints, sites and actuators."""
        model, deployment = self.model, self.deployment
        missing: list[str] = []
        self.root = self._ids("body", [deployment.root], missing)[0]
        imu = [deployment.imu] if deployment.imu else []
        sites = self._ids("site", imu, missing)
        joints = self._ids("joint", deployment.joints, missing)
        motion = deployment.reference
        anchor = [] if motion is None else [motion.anchor]
        self._anchor = self._ids("body", anchor, missing)
        if missing:
            raise ValueError(
                f"The policy does not fit {self._file!r}: {'; '.join(missing)}."
            )
        joint_kinds = self._mujoco.mjtJoint
        kinds = int(joint_kinds.mjJNT_HINGE), int(joint_kinds.mjJNT_SLIDE)
        for name, joint in zip(deployment.joints, joints):
            if int(model.jnt_type[joint]) not in kinds:
                raise ValueError(
                    f"Joint {name!r} of {self._file!r} must be a hinge or a slide."
                )
        self._q, self._qd = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        self._actuators = self._actuators_of(joints)
        site = self._mujoco.mjtObj.mjOBJ_SITE, sites[0] if imu else -1
        self._imu = site if imu else (self._mujoco.mjtObj.mjOBJ_XBODY, self.root)
        first = model.body_jntadr[self.root]
        free = int(self._mujoco.mjtJoint.mjJNT_FREE)
        self.floats = bool(first >= 0 and model.jnt_type[first] == free)
        self._free = model.jnt_qposadr[first] if self.floats else -1
        self._free_qd = model.jnt_dofadr[first] if self.floats else -1
        if motion is not None and not self.floats:
            raise ValueError(
                f"The policy tracks a motion of the root, but {deployment.root!r} of "
                f"{self._file!r} has no free joint. Add `<freejoint/>`."
            )

    def _ids(self, kind: str, names: Sequence[str], missing: list[str]) -> np.ndarray:
        """Return numbers of parts; describe those that are missing."""
        known = _names(self.model, kind)
        lost = [name for name in names if name not in known]
        if lost:
            missing.append(
                f"there is no {kind} {', '.join(map(repr, lost))} (there are: "
                f"{', '.join(filter(None, known)) or 'none with a name'})"
            )
        numbers = [known.index(name) if name in known else -1 for name in names]
        return np.asarray(numbers, int)

    def _actuators_of(self, joints: np.ndarray) -> np.ndarray:
        """Return the actuator of each joint."""
        model, found = self.model, []
        kinds = self._mujoco.mjtTrn.mjTRN_JOINT, self._mujoco.mjtTrn.mjTRN_JOINTINPARENT
        on_joint = np.isin(model.actuator_trntype, [int(kind) for kind in kinds])
        wrong = []
        for name, joint in zip(self.deployment.joints, joints):
            own = np.flatnonzero(on_joint & (model.actuator_trnid[:, 0] == joint))
            if len(own) != 1:
                wrong.append(f"{name!r} has {len(own)}")
            elif model.actuator_dyntype[own[0]] != int(self._mujoco.mjtDyn.mjDYN_NONE):
                wrong.append(f"that of {name!r} has a state (`dyntype`)")
            found.append(own[0] if len(own) else -1)
        if wrong:
            raise ValueError(
                f"Each joint of the policy needs one actuator without a state in "
                f"{self._file!r}, but {', '.join(wrong)}. Add a `position` or a `motor` "
                "for these joints."
            )
        return np.asarray(found, int)

    def _check_phase(self) -> None:
        """Raise `ValueError` if phases of the gait are observed, but not known."""
        for part in self.deployment.observation:
            if part.name == "phase" and (not self._gait > 0.0 or part.size % 2):
                raise ValueError(
                    f"The policy observes {part.size} numbers of gait phases, which needs "
                    "the frequency of the gait. Pass `gait` (`--gait HZ`)."
                )

    def _number_of_steps(self) -> int:
        period, step = self.deployment.period, self.model.opt.timestep
        number = max(1, round(period / step))
        if abs(number * step - period) > 1e-3 * period:
            raise ValueError(
                f"The control period, {period:g} s, must be a multiple of the time step of "
                f'{self._file!r}, {step:g} s. Change `<option timestep="...">`.'
            )
        return number

    # Servos.

    def _apply_gains(self, limit: np.ndarray) -> None:
        """Make the actuators position servos with the gains of the deployment."""
        model, k = self.model, self._actuators
        stiffness = np.asarray(self.deployment.stiffness)
        model.actuator_gaintype[k] = self._mujoco.mjtGain.mjGAIN_FIXED
        model.actuator_biastype[k] = self._mujoco.mjtBias.mjBIAS_AFFINE
        model.actuator_gainprm[k] = 0.0
        model.actuator_biasprm[k] = 0.0
        model.actuator_gainprm[k, 0] = stiffness
        model.actuator_biasprm[k, 1] = -stiffness
        model.actuator_biasprm[k, 2] = -np.asarray(self.deployment.damping)
        model.actuator_gear[k] = np.eye(6)[0]
        model.actuator_ctrllimited[k] = False
        model.actuator_forcelimited[k] = True
        model.actuator_forcerange[k] = np.stack([-limit, limit], axis=1)
        if self.deployment.joint_damping:
            model.dof_damping[self._qd] = self.deployment.joint_damping

    def _check_servos(self) -> None:
        model, k = self.model, self._actuators
        gain, bias = model.actuator_gainprm[k, 0], model.actuator_biasprm[k, 1]
        affine = model.actuator_biastype[k] == int(self._mujoco.mjtBias.mjBIAS_AFFINE)
        is_servo = affine & (gain > 0.0) & np.isclose(gain, -bias)
        others = [x for x, fine in zip(self.deployment.joints, is_servo) if not fine]
        if others:
            raise ValueError(
                f"Actuators of {', '.join(map(repr, others))} in {self._file!r} are no "
                "position servos. Use the gains of the policy (`--servo policy`)."
            )

    def _limits_of_file(self) -> np.ndarray:
        """Return the largest torque of the actuators in the file; infinite without."""
        model, k = self.model, self._actuators
        largest = np.abs(model.actuator_forcerange[k]).max(axis=1)
        limited = model.actuator_forcelimited[k].astype(bool)
        gear = np.abs(model.actuator_gear[k, 0])
        return np.where(limited, gear * largest, np.inf)

    def drive(self, target: np.ndarray) -> None:
        """Send targets to the servos, rad."""
        k = self._actuators
        self.data.ctrl[k] = self.model.actuator_gear[k, 0] * target

    # States.

    def reset(self, frame: int = 0) -> None:
        """Begin at the first keyframe, called `home` if there is one, or at the reference
        pose, at the place of the start, with the joints in the default pose and without
        contact forces; or in a frame of the motion, with its velocities.

        **Arguments:**

        - `frame`: frame of the motion, before the last one.
        """
        names = _names(self.model, "key")
        if names:
            key = names.index("home") if "home" in names else 0
            self._mujoco.mj_resetDataKeyframe(self.model, self.data, key)
        else:
            self._mujoco.mj_resetData(self.model, self.data)
        self.data.qvel[:] = 0.0
        self.frame = frame
        if self._motion is not None:
            self._begin_motion(self._motion)
            return
        self.data.qpos[self._q] = self.deployment.default_pose
        self.drive(np.asarray(self.deployment.default_pose))
        if self.floats:
            self.data.qpos[self._free : self._free + 3] += self._offset
        self._mujoco.mj_forward(self.model, self.data)
        if self.floats and self._floor is not None:
            rise = self.ground(self.data.xpos[self.root][None, :2])[0] - self._floor
            self.data.qpos[self._free + 2] += rise
            self._mujoco.mj_forward(self.model, self.data)
        if self.floats and self.data.ncon:
            depth = min(self.data.contact.dist.min(), 0.0)
            self.data.qpos[self._free + 2] -= depth
            self._mujoco.mj_forward(self.model, self.data)
        self._up = self.data.xmat[self.root].reshape(3, 3).T @ np.array([0.0, 0.0, 1.0])
        self._start_height = self.height()

    def _begin_motion(self, motion: "_Motion") -> None:
        """Enter the present frame; the velocity of the root is that to the next."""
        here, there = motion.root[self.frame : self.frame + 2]
        root, joints, period = self._free, self._free_qd, self.deployment.period
        self.data.qpos[root : root + 7] = here
        self.data.qpos[self._q] = motion.joints[self.frame]
        self.data.qvel[self._qd] = motion.rates[self.frame]
        self.data.qvel[joints : joints + 3] = (there[:3] - here[:3]) / period
        turn = np.zeros(3)
        self._mujoco.mju_subQuat(turn, there[3:], here[3:])
        self.data.qvel[joints + 3 : joints + 6] = turn / period
        self.drive(motion.joints[self.frame])
        self._mujoco.mj_forward(self.model, self.data)

    def target(self, action: np.ndarray) -> np.ndarray:
        """Return the targets of the servos for an action, rad."""
        deployment = self.deployment
        about = np.asarray(deployment.default_pose)
        if self._motion is not None and self._motion.residual:
            joints, rates = self._motion.at(self.frame + 1)[:2]
            lead = np.asarray(deployment.damping) / np.asarray(deployment.stiffness)
            about = joints + lead * rates
        target = about + np.asarray(deployment.action_scale) * action
        if not deployment.target_range:
            return target
        return np.clip(target, *np.asarray(deployment.target_range).T)

    @property
    def finished(self) -> bool:
        """True in the last frame of the motion."""
        return self._motion is not None and self.frame >= self._motion.last

    def motion_errors(self) -> tuple[float, float]:
        """Return the mean error of the joints, rad, and the distance of the anchor from that
        of the motion, m, in this frame."""
        assert self._motion is not None, "only for deployments with a reference"
        joints, _, place, _ = self._motion.at(self.frame)
        gap = self.data.qpos[self._q] - joints
        away = self.data.xpos[self._anchor[0]] - place
        return float(np.mean(np.abs(gap))), float(np.linalg.norm(away))

    def step(self, force: np.ndarray | None = None) -> None:
        """Take one physics step.

        **Arguments:**

        - `force`: force on the root, in world axes, N.
        """
        self.data.xfrc_applied[self.root, :3] = 0.0 if force is None else force
        self._mujoco.mj_step(self.model, self.data)

    def update(self) -> None:
        """Compute positions and velocities of links after physics steps."""
        self._mujoco.mj_kinematics(self.model, self.data)
        self._mujoco.mj_comPos(self.model, self.data)
        self._mujoco.mj_comVel(self.model, self.data)

    def torques(self) -> np.ndarray:
        """Return the torques of the servos in the last physics step, N m."""
        return self.data.qfrc_actuator[self._qd]

    def joint_velocities(self) -> np.ndarray:
        """Return the velocities of the joints, rad/s."""
        return self.data.qvel[self._qd]

    def fallen(self) -> bool:
        """Return true if the simulation has diverged, or the robot has fallen: its root is
        tilted by more than 60 degrees from its orientation at the start, its height above
        the ground is less than half of that there, or there is no ground below it. With a
        motion, its anchor is far from that of the motion instead (`MOTION_HEIGHT`,
        `MOTION_TILT`)."""
        bad = self._mujoco.mjtWarning
        kinds = (bad.mjWARN_BADQPOS, bad.mjWARN_BADQVEL, bad.mjWARN_BADQACC)
        if any(self.data.warning[int(kind)].number for kind in kinds):
            return True
        if not self.floats:
            return False
        if self._motion is not None:
            _, _, place, axes = self._motion.at(self.frame)
            height = abs(self.data.xpos[self._anchor[0]][2] - place[2])
            tilt = abs(self._anchor_axes()[2, 2] - axes[2, 2])
            return bool(height > MOTION_HEIGHT or tilt > MOTION_TILT)
        cosine = (self.data.xmat[self.root].reshape(3, 3) @ self._up)[2]
        low, high = 0.5 * self._start_height, np.inf
        return bool(cosine < 0.5 or not low <= self.height() < high)

    def height(self) -> float:
        """Return the height of the root above the ground, m."""
        place = self.data.xpos[self.root]
        return float(place[2] - self.ground(place[None, :2])[0])

    def ground(self, points: np.ndarray) -> np.ndarray:
        """Return the heights of the ground at points `(n, 2)`, m: the highest shapes of the
        world below 20 m above the root; else the highest plane, as robots stand on planes
        also beyond the rectangle that is drawn; else minus infinity."""
        model, geom = self.model, np.zeros(1, np.int32)
        down, found = np.array([0.0, 0.0, -1.0]), []
        planes = model.geom_type == int(self._mujoco.mjtGeom.mjGEOM_PLANE)
        endless = self.data.geom_xpos[planes, 2].max(initial=-np.inf)
        for point in points:
            start = np.array([*point, self.data.xpos[self.root][2] + 20.0])
            while True:
                start[2] -= self._mujoco.mj_ray(
                    model, self.data, start, down, None, True, -1, geom
                )
                if geom[0] < 0 or not model.body_weldid[model.geom_bodyid[geom[0]]]:
                    break
                start[2] -= 1e-6  # Through the robot.
            found.append(start[2] if geom[0] >= 0 else endless)
        return np.asarray(found)

    def height_scan(self) -> np.ndarray:
        """Return the heights of the ground at the points of the deployment, relative to the
        root, m."""
        x, y, _ = self.data.xmat[self.root].reshape(3, 3)[:, 0]
        heading = np.array([x, y]) / max(np.hypot(x, y), 1e-9)
        axes = np.array([heading, [-heading[1], heading[0]]])
        place = self.data.xpos[self.root]
        at = place[:2] + np.asarray(self.deployment.scan).reshape(-1, 2) @ axes
        return np.clip(self.ground(at) - place[2], -2.0, 2.0)

    # Observations.

    def velocity(self) -> np.ndarray:
        """Return angular and linear velocity of the IMU in its axes, rad/s and m/s."""
        out = np.zeros(6)
        self._mujoco.mj_objectVelocity(self.model, self.data, *self._imu, out, 1)
        return out

    def observe(
        self,
        command: Sequence[float | int],
        last_action: np.ndarray,
        noise: Callable[[ObservationPart], Any] = lambda part: 0.0,
        previous_action: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute the observation of the policy.

        **Arguments:**

        - `command`: forward and lateral velocity, m/s, and yaw rate, rad/s.
        - `last_action`: action of the step before.
        - `noise`: noise of a part, in its units.
        - `previous_action`: action of the step before that; by default zeros.
        """
        velocity = self.velocity()
        before = (
            np.zeros(len(last_action)) if previous_action is None else previous_action
        )
        kind, number = self._imu
        site = kind == self._mujoco.mjtObj.mjOBJ_SITE
        axes = (self.data.site_xmat if site else self.data.xmat)[number].reshape(3, 3)
        gravity = self.model.opt.gravity
        values = {
            "linear_velocity": velocity[3:],
            "angular_velocity": velocity[:3],
            "gravity": axes.T @ gravity / max(float(np.linalg.norm(gravity)), 1e-9),
            "command": np.asarray(command),
            "joint_positions": self.data.qpos[self._q]
            - np.asarray(self.deployment.default_pose),
            "joint_velocities": self.joint_velocities(),
            "last_action": last_action,
            "previous_action": before,
            "height_scan": self.height_scan(),
            **self._of_motion(),
        }
        parts = []
        for part in self.deployment.observation:
            phase = part.name == "phase"
            value = values[part.name] if not phase else self._phases(part.size, command)
            parts.append(part.scale * (value + noise(part)))
        return np.concatenate(parts).astype(np.float32)

    def _anchor_axes(self) -> np.ndarray:
        return self.data.xmat[self._anchor[0]].reshape(3, 3)

    def _of_motion(self) -> dict[str, np.ndarray]:
        """Return the parts of an observation that describe the next frame of the motion."""
        if self._motion is None:
            return {}
        joints, rates, place, axes = self._motion.at(self.frame + 1)
        here = self._anchor_axes()
        return {
            "reference_positions": joints - np.asarray(self.deployment.default_pose),
            "reference_velocities": rates,
            "anchor_position": here.T @ (place - self.data.xpos[self._anchor[0]]),
            "anchor_orientation": (here.T @ axes)[:, :2].ravel(),
        }

    def _phases(self, size: int, command: Sequence[float | int]) -> np.ndarray:
        """Return cosines and sines of phases that are evenly spaced over a cycle."""
        number = size // 2
        if self.deployment.rests and np.linalg.norm(command) < 0.01:
            return np.repeat([-1.0, 0.0], number)
        angles = 2 * np.pi * (self._gait * self.data.time + np.arange(number) / number)
        return np.concatenate([np.cos(angles), np.sin(angles)])


class _Motion(NamedTuple):
    """A motion as arrays, with a row per frame.

    - `joints`, `rates`: positions and velocities of the joints.
    - `place`, `axes`: positions and orientation matrices of the anchor.
    - `root`: poses of the root.
    """

    joints: np.ndarray
    rates: np.ndarray
    place: np.ndarray
    axes: np.ndarray
    root: np.ndarray
    residual: bool

    @staticmethod
    def of(reference: Reference, offset: np.ndarray) -> "_Motion":
        """Convert a reference, moved by an offset."""
        joints, rates, anchor, root = (
            np.asarray(rows, float)
            for rows in (
                reference.joint_positions,
                reference.joint_velocities,
                reference.anchor_poses,
                reference.root_poses,
            )
        )
        root[:, :3] += offset
        place, axes = anchor[:, :3] + offset, anchor[:, 3:].reshape(-1, 3, 3)
        return _Motion(joints, rates, place, axes, root, reference.residual)

    @property
    def last(self) -> int:
        """Number of the last frame."""
        return len(self.joints) - 1

    def at(self, frame: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return positions and velocities of joints, and position and orientation of the
        anchor; after the last frame, the motion rests there."""
        k = min(frame, self.last)
        rates = self.rates[k] if frame <= self.last else np.zeros_like(self.rates[k])
        return self.joints[k], rates, self.place[k], self.axes[k]


def _names(model: Any, kind: str) -> list[str]:
    """Return the names of all parts of a kind, by number; empty for parts without."""
    mujoco = engine()
    counts = {
        "body": (model.nbody, mujoco.mjtObj.mjOBJ_BODY),
        "site": (model.nsite, mujoco.mjtObj.mjOBJ_SITE),
        "joint": (model.njnt, mujoco.mjtObj.mjOBJ_JOINT),
        "key": (model.nkey, mujoco.mjtObj.mjOBJ_KEY),
    }
    count, number = counts[kind]
    return [mujoco.mj_id2name(model, number, k) or "" for k in range(count)]


SETTLING = 1.0
"""Time after a start in which tracking errors are not measured, s."""

_FRAMES_PER_SECOND, _SIZE = 25.0, (480, 360)


class Replay(NamedTuple):
    """How a policy did in MuJoCo.

    Tracking errors compare the velocity of the IMU, in its axes, with the command in each
    control step, except in the first second after a start; NaN if there is no such step, or
    the policy observes no command.

    **Arguments:**

    - `seconds`: simulated time, s.
    - `velocity_error`, `largest_velocity_error`: mean and maximum of the difference of
        horizontal velocities, m/s.
    - `yaw_error`, `largest_yaw_error`: mean and maximum of the difference of yaw rates,
        rad/s.
    - `falls`: number of falls, after each of which the robot starts again, as it does at
        the end of a motion.
    - `distance`: horizontal distance of the root from its last start, m.
    - `rise`: height of the ground below the root above that at its last start, m; NaN
        without ground.
    - `saturation`: share of joints and physics steps with the largest torque.
    - `power`: mean of the sum of absolute mechanical powers of the joints, W.
    - `joint_error`, `largest_joint_error`: mean and maximum of the mean error of the joints,
        over control steps without a fall, for policies that track a motion, rad; NaN for
        others.
    - `anchor_error`, `largest_anchor_error`: mean and maximum of the distance of the anchor
        from that of the motion, m, likewise.
    """

    seconds: float
    velocity_error: float
    largest_velocity_error: float
    yaw_error: float
    largest_yaw_error: float
    falls: int
    distance: float
    rise: float
    saturation: float
    power: float
    joint_error: float = np.nan
    largest_joint_error: float = np.nan
    anchor_error: float = np.nan
    largest_anchor_error: float = np.nan


def replay(
    policy: str | os.PathLike | OnnxPolicy,
    model: str | os.PathLike | Any,
    *,
    command: Sequence[float | int] = (0.5, 0.0, 0.0),
    seconds: float | int = 20.0,
    latency: float | int = 0.0,
    noise: float | int = 0.0,
    push: float | int = 0.0,
    gait: float | int = 0.0,
    servo: Servo = "policy",
    start: Sequence[float | int] = (0.0, 0.0, 0.0),
    terrain: AbstractTerrain | None = None,
    blind: bool = False,
    seed: int = 0,
    video: str | os.PathLike | None = None,
) -> Replay:
    """Run a policy in MuJoCo C on the scene of a robot.

    The observation is built from MuJoCo's data as the deployment in the file says. A policy
    that tracks a motion starts in the first frame, and restarts there at the end. Extra:
    `export`.

    **Arguments:**

    - `policy`: ONNX file that `export_policy` wrote.
    - `model`: MJCF file of the scene, or a `mujoco.MjSpec`.
    - `command`: forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `seconds`: duration, s.
    - `latency`: time from an observation to the new targets of the servos, s.
    - `noise`: level of uniform noise on observations; 1: half widths of 0.1 m/s, 0.2 rad/s
        (angular velocity), 0.05 (gravity, anchor), 0.01 rad and 1.5 rad/s (joints), 0.02 m
        (heights).
    - `push`: horizontal force on the root in random directions, 0.2 s every 5 s, N.
    - `gait`: frequency of gait phases, Hz, if the policy observes them.
    - `servo`: gains of the servos: those of the `policy`, or of the `model`, see
        `MujocoRobot`.
    - `start`: where the robot starts, relative to its place in the file, m.
    - `terrain`: kind of terrain in place of the only plane of the scene, see
        `terrain_scene`. It has room for the command, and the robot starts on it.
    - `blind`: true to run a policy that does not observe the ground on terrain.
    - `seed`: random seed of noise, pushes and terrain.
    - `video`: name of a GIF file to write.

    **Raises:** `ValueError` if the policy has no deployment, does not fit the model, or does
    not observe the ground and there is terrain; `FileNotFoundError`, `ImportError`,
    `eqsim.render.NoOpenGL`.
    """
    options = {"latency": latency, "noise": noise, "push": push, "gait": gait}
    for name, value in options.items():
        if not (np.isfinite(value) and value >= 0.0):
            raise ValueError(f"`{name}` must be finite and at least 0, got {value}.")
    if not (np.isfinite(seconds) and seconds > 0.0):
        raise ValueError(f"`seconds` must be positive, got {seconds}.")
    if len(command) != 3 or not np.all(np.isfinite(command)):
        raise ValueError(f"`command` must be three finite numbers, got {command}.")
    if len(start) != 3 or not np.all(np.isfinite(start)):
        raise ValueError(f"`start` must be three finite numbers, got {start}.")
    runner = policy if isinstance(policy, OnnxPolicy) else OnnxPolicy(policy)
    about = runner.metadata
    if about.deployment is None:
        raise ValueError(
            f"The policy ({about.agent} on {about.env}) cannot be replayed: {about.reason}"
        )
    floor = None
    if terrain is not None:
        _check_ground(about.deployment, blind)
        reach = seconds * math.hypot(*command[:2]) + math.hypot(*start[:2])
        model, floor = terrain_scene(
            model, terrain, seed, 2.0 * (reach + TERRAIN_MARGIN)
        )
    robot = MujocoRobot(model, about.deployment, servo, gait, start, floor)
    disturbances = _Disturbances(np.random.default_rng(seed), noise, push)
    frames = _Frames(robot) if video is not None else None
    found = _run(robot, runner, command, seconds, latency, disturbances, frames)
    if frames is not None and video is not None:
        write_gif(video, np.stack(frames.images), 1.0 / _FRAMES_PER_SECOND)
    return found


def terrain_scene(
    file: str | os.PathLike | Any, terrain: AbstractTerrain, seed: int, length: float
) -> tuple[Any, float]:
    """Put terrain in place of the only plane of a scene, as a height field about the origin
    of the plane. Heights are `terrain(jax.random.key(seed), 1.0, (n, n), TERRAIN_CELL)`.

    The steps of `Stairs` are boxes, with vertical faces in the middle of cells: in a height
    field, faces between cells clamp soft feet that sink into a step by their radius.

    **Arguments:**

    - `file`: MJCF file of the scene, or a `mujoco.MjSpec`, which is not changed.
    - `terrain`: kind of terrain.
    - `seed`: random seed.
    - `length`: length of the sides, m, rounded to an even number of cells.

    **Returns:** a `mujoco.MjSpec`, and the height of the plane, m.

    **Raises:** `ValueError` if the scene does not have one plane in its world, or the field
    has more than 4001 by 4001 points.
    """
    points = 2 * round(0.5 * length / TERRAIN_CELL) + 1
    if points > _MOST_POINTS:
        raise ValueError(
            f"Terrain of {length:.0f} m by {length:.0f} m has more than {_MOST_POINTS} by "
            f"{_MOST_POINTS} points. Run fewer seconds, or with a slower command."
        )
    shape, side = (points, points), (points - 1) * TERRAIN_CELL
    heights = np.asarray(terrain(jr.key(seed), 1.0, shape, TERRAIN_CELL), float)
    low, steps = float(heights.min()), isinstance(terrain, Stairs)
    field = np.full(shape, low) if steps else heights
    spec = with_height_field(file, *shape, (side, side), name=TERRAIN, heights=field)
    (ground,) = (geom for geom in spec.worldbody.geoms if geom.hfieldname == TERRAIN)
    if steps:
        ground.type, ground.hfieldname = engine().mjtGeom.mjGEOM_PLANE, ""
        ground.size = [0.0, 0.0, 0.05]
        spec.delete(spec.hfield(TERRAIN))
        _add_steps(spec, ground, heights - low)
    raised = np.zeros(3)
    quat = ground.quat / np.linalg.norm(ground.quat)
    engine().mju_rotVecQuat(raised, np.array([0.0, 0.0, low]), quat)
    return spec, float(ground.pos[2] - raised[2])


def _add_steps(spec: Any, floor: Any, heights: np.ndarray) -> None:
    """Add boxes with the properties of a floor for the steps of stairs, whose heights above
    the floor depend on the distance from the border alone."""
    mujoco = engine()
    middle, quat = len(heights) // 2, floor.quat / np.linalg.norm(floor.quat)
    row, half = heights[middle, : middle + 1], middle * TERRAIN_CELL
    for k in np.flatnonzero(np.abs(np.diff(row)) > 1e-6):
        edge = half - (k + 0.5) * TERRAIN_CELL
        wide, away, high = 0.5 * (half - edge), 0.5 * (half + edge), 0.5 * row[k]
        boxes = [((x, 0.0, high), (wide, half, high)) for x in (-away, away)]
        boxes += [((0.0, y, high), (half, wide, high)) for y in (-away, away)]
        if row[k + 1] > row[k]:
            high = 0.5 * row[k + 1]
            boxes = [((0.0, 0.0, high), (edge, edge, high))]
        for place, size in boxes:
            moved = np.zeros(3)
            mujoco.mju_rotVecQuat(moved, np.array(place), quat)
            spec.worldbody.add_geom(
                type=mujoco.mjtGeom.mjGEOM_BOX,
                pos=floor.pos + moved,
                quat=quat,
                size=size,
                material=floor.material,
                rgba=floor.rgba,
                contype=floor.contype,
                conaffinity=floor.conaffinity,
                condim=floor.condim,
                priority=floor.priority,
                friction=floor.friction,
                margin=floor.margin,
                solref=floor.solref,
                solimp=floor.solimp,
            )


def _check_ground(deployment: Deployment, blind: bool) -> None:
    """Raise `ValueError` if a policy is not made for terrain."""
    if deployment.reference is not None:
        raise ValueError("A policy that tracks a motion needs a floor, not `terrain`.")
    seen = [part.name for part in deployment.observation]
    if "height_scan" not in seen and not blind:
        raise ValueError(
            f"The policy does not observe the ground ('height_scan'), only "
            f"{', '.join(map(repr, seen))}. Pass `blind` (`--blind`) to run it on terrain."
        )


class _Disturbances:
    """Noise on observations, and pushes."""

    def __init__(self, rng: np.random.Generator, noise: float | int, push: float):
        self._rng, self._noise, self._push = rng, noise, push
        self._force = np.zeros(3)

    def noise(self, part: ObservationPart) -> Any:
        """Return the noise of a part of an observation."""
        width = self._noise * NOISE.get(part.name, 0.0)
        return self._rng.uniform(-width, width, part.size)

    def force(self, time: float, step: float) -> np.ndarray:
        """Return the force on the root at a time, N."""
        since = time % PUSH_PERIOD
        if not self._push or time < PUSH_PERIOD or since >= PUSH_SECONDS:
            return np.zeros(3)
        if since < step:
            angle = self._rng.uniform(0.0, 2.0 * np.pi)
            self._force = self._push * np.array([np.cos(angle), np.sin(angle), 0.0])
        return self._force


def _run(
    robot: MujocoRobot,
    runner: OnnxPolicy,
    command: Sequence[float | int],
    seconds: float | int,
    latency: float | int,
    disturbances: _Disturbances,
    frames: "_Frames | None",
) -> Replay:
    deployment, step = robot.deployment, robot.model.opt.timestep
    number = max(1, round(seconds / deployment.period))
    delay = round(latency / step)
    observes = any(part.name == "command" for part in deployment.observation)
    errors, gaps, saturated, power = [], [], [], []
    falls, tick, begun = 0, 0, 0
    place = lambda: robot.data.xpos[robot.root][:2].copy()
    level = lambda: float(robot.ground(place()[None])[0])
    start, first = place(), level()
    runner.reset()
    rest = np.zeros(len(deployment.joints))
    action, previous, pending = rest, rest, deque[tuple[int, np.ndarray]]()
    for _ in range(number):
        obs = robot.observe(command, action, disturbances.noise, previous)
        previous, action = action, np.asarray(runner.act(obs), float)
        pending.append((tick + delay, robot.target(action)))
        for _ in range(robot.substeps):
            while pending and pending[0][0] <= tick:
                robot.drive(pending.popleft()[1])
            robot.step(disturbances.force(tick * step, step))
            torques = robot.torques()
            saturated.append(np.mean(np.abs(torques) >= 0.999 * robot.torque_limit))
            power.append(np.sum(np.abs(torques * robot.joint_velocities())))
            tick += 1
        robot.update()
        robot.frame += 1
        if frames is not None:
            frames.add(tick * step)
        fallen = robot.fallen()
        if deployment.reference is not None and not fallen:
            gaps.append(robot.motion_errors())
        if fallen or robot.finished:
            falls, begun = falls + fallen, tick
            robot.reset()
            start, first = place(), level()
            runner.reset()
            action = previous = rest
            pending.clear()
        elif observes and (tick - begun) * step > SETTLING:
            angular, linear = np.split(robot.velocity(), 2)
            gap = np.hypot(linear[0] - command[0], linear[1] - command[1])
            errors.append((gap, abs(angular[2] - command[2])))
    shares = float(np.mean(saturated)), float(np.mean(power))
    away = float(np.hypot(*(place() - start)))
    time = number * deployment.period
    rise = level() - first
    return Replay(time, *_means(errors), falls, away, rise, *shares, *_means(gaps))


def _means(pairs: list[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Return mean and maximum of each of two columns; NaN without rows."""
    table = np.asarray(pairs) if pairs else np.full((1, 2), np.nan)
    mean, largest = table.mean(axis=0), table.max(axis=0)
    return float(mean[0]), float(largest[0]), float(mean[1]), float(largest[1])


class _Frames:
    """Images of a robot, by a camera that follows its root."""

    def __init__(self, robot: MujocoRobot):
        self.images: list[np.ndarray] = []
        self._robot, self._context = robot, context()
        mujoco = engine()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        self._camera.trackbodyid = int(robot.root)
        model, data = robot.model, robot.data
        own = model.body_rootid[model.geom_bodyid] == model.body_rootid[robot.root]
        away = np.linalg.norm(data.geom_xpos - data.xpos[robot.root], axis=1)
        self._camera.distance = 6.0 * np.max(
            away + model.geom_rbound, where=own, initial=0.1
        )
        self._camera.azimuth, self._camera.elevation = 120.0, -20.0
        with self._context.as_current():
            self._scene = mujoco.MjvScene(robot.model, 2000)
            self._target = mujoco.MjrContext(robot.model, 100)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._target)

    def add(self, time: float) -> None:
        """Draw an image if it is time for one."""
        if len(self.images) >= time * _FRAMES_PER_SECOND - 1e-6:
            return
        robot, mujoco = self._robot, engine()
        options = mujoco.MjvOption()
        image = np.empty((_SIZE[1], _SIZE[0], 3), np.uint8)
        area = mujoco.MjrRect(0, 0, *_SIZE)
        every = mujoco.mjtCatBit.mjCAT_ALL
        with self._context.as_current():
            mujoco.mjv_updateScene(
                robot.model, robot.data, options, None, self._camera, every, self._scene
            )
            mujoco.mjr_render(area, self._scene, self._target)
            mujoco.mjr_readPixels(image, None, area, self._target)
        self.images.append(image[::-1])
