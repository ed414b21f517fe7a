"""What a controller outside the simulator needs to know of a task."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np


class ObservationPart(NamedTuple):
    """A part of the observation of a policy.

    The vocabulary of names is `OBSERVATION_PARTS`. Velocities and gravity are in the axes
    of the IMU, or of the root link without an IMU.

    **Arguments:**

    - `name`: name of the quantity.
    - `size`: number of entries.
    - `scale`: factor; the policy observes `scale` times the value.
    """

    name: str
    size: int
    scale: float = 1.0


OBSERVATION_PARTS = {
    "linear_velocity": "of the root, m/s",
    "angular_velocity": "of the root, rad/s",
    "gravity": "unit vector of gravity",
    "command": "forward and lateral velocity, m/s, and yaw rate, rad/s",
    "joint_positions": "minus the default pose, rad",
    "joint_velocities": "rad/s",
    "last_action": "action of the step before; zeros at first",
    "previous_action": "action of the step before that; zeros at first",
    "phase": "cosines, then sines of the gait phases",
    "height_scan": "of the ground at the points of `scan`, minus that of the root, m",
    "reference_positions": "joints in the next frame, minus the default pose, rad",
    "reference_velocities": "joints in the next frame, rad/s",
    "anchor_position": "place of the motion's anchor in the next frame, in the axes of the "
    "robot's anchor and relative to it, m",
    "anchor_orientation": "first two columns of the rotation matrix of the motion's anchor "
    "in these axes, row by row",
}
"""Names of parts of observations, with what they mean."""


class Reference(NamedTuple):
    r"""A motion that a policy tracks: a frame per control period. After the last frame, it
    rests there.

    **Arguments:**

    - `anchor`: link whose pose the policy observes.
    - `joint_positions`, `joint_velocities`: positions and velocities of the joints, in the
        order of the deployment, rad and rad/s.
    - `anchor_poses`: positions of the anchor in the world, m, and the rows of its rotation
        matrix.
    - `root_poses`: positions of the root, m, and unit quaternions, scalar first.
    - `residual`: true if the target of joint $j$ is $\hat q_j + (d_j / k_j) \hat{\dot q}_j +
        s_j a_j$, with position and velocity in the next frame, stiffness $k$, damping $d$
        and action scale $s$, instead of the target about the default pose.
    """

    anchor: str
    joint_positions: tuple[tuple[float, ...], ...]
    joint_velocities: tuple[tuple[float, ...], ...]
    anchor_poses: tuple[tuple[float, ...], ...]
    root_poses: tuple[tuple[float, ...], ...]
    residual: bool = True


class Deployment(NamedTuple):
    r"""What a controller outside the simulator needs to know of a task.

    The target of joint $j$ is `default_pose[j] + action_scale[j] * action[j]`, or about a
    motion, see `Reference`. It is limited to `target_range`, and held for `period`; its servo
    applies the torque `stiffness * (target - q) - damping * qd`, limited to `torque_limit`.

    **Arguments:**

    - `root`: name of the root link.
    - `joints`: joint of each entry of the action, in order.
    - `default_pose`: position of each joint for an action of zero, rad.
    - `action_scale`: change of the target per unit of the action, rad.
    - `stiffness`: gains of the joint servos, N m/rad.
    - `damping`: velocity gains of the joint servos, N m s/rad.
    - `torque_limit`: largest torque of each joint, N m.
    - `period`: control period, s.
    - `observation`: parts of the observation, in order.
    - `imu`: site of the IMU; empty: the root link.
    - `scan`: points of a height scan, x ahead of the root and y to the left, in its
        heading, m. Heights are limited to -2..2 m.
    - `reference`: motion that the policy tracks; None for other tasks.
    - `joint_damping`: damping of the joints beside their servos in training, N m s/rad;
        empty: that of the robot's model.
    - `target_range`: least and largest target of each joint, rad; empty: no limits.
    - `rests`: true if gait phases stay at $\pi$ under a command of zero.
    """

    root: str
    joints: tuple[str, ...]
    default_pose: tuple[float, ...]
    action_scale: tuple[float, ...]
    stiffness: tuple[float, ...]
    damping: tuple[float, ...]
    torque_limit: tuple[float, ...]
    period: float
    observation: tuple[ObservationPart, ...]
    imu: str = ""
    scan: tuple[tuple[float, float], ...] = ()
    reference: Reference | None = None
    joint_damping: tuple[float, ...] = ()
    target_range: tuple[tuple[float, float], ...] = ()
    rests: bool = False


@runtime_checkable
class Deployable(Protocol):
    """A task whose policies can leave the simulator."""

    def deployment(self) -> Deployment:
        """Return what a controller outside the simulator needs to know."""
        ...


# Sizes of parts that do not depend on the number of joints.
_THREE = ("linear_velocity", "angular_velocity", "gravity", "command")
_PER_JOINT = (
    *("joint_positions", "joint_velocities", "last_action", "previous_action"),
    *("reference_positions", "reference_velocities"),
)
_OF_REFERENCE = {"anchor_position": 3, "anchor_orientation": 6}


def check_deployment(deployment: Deployment) -> None:
    """Raise `ValueError` unless all fields have one entry for each joint, numbers are finite
    and gains those of servos, and the parts of the observation are known and have the right
    sizes."""
    number = len(deployment.joints)
    for name in (
        *("default_pose", "action_scale", "stiffness", "damping", "torque_limit"),
        *("joint_damping", "target_range"),
    ):
        values = deployment._asdict()[name]
        optional = name in ("joint_damping", "target_range") and not values
        if optional or (len(values) == number and np.all(np.isfinite(values))):
            continue
        raise ValueError(
            f"`Deployment.{name}` must have one finite number for each of the {number} "
            f"joints, got {values}."
        )
    for name in ("stiffness", "torque_limit", "damping", "joint_damping"):
        values = np.asarray(deployment._asdict()[name])
        needs_more = name in ("stiffness", "torque_limit")
        if not np.all(values > 0.0 if needs_more else values >= 0.0):
            bound = "positive" if needs_more else "at least 0"
            raise ValueError(
                f"`Deployment.{name}` must be {bound} for all joints, got {values.tolist()}. "
                "Only policies whose actions are targets of position servos are described."
            )
    if not 0.0 < deployment.period < np.inf:
        raise ValueError(
            f"`Deployment.period` must be positive, got {deployment.period}."
        )
    reference, names = deployment.reference, [p.name for p in deployment.observation]
    needing = [x for x in names if x.startswith(("reference_", "anchor_"))]
    if reference is not None:
        _check_reference(reference, number)
    elif needing:
        raise ValueError(
            f"`Deployment.observation` names {', '.join(map(repr, needing))}, which needs "
            "a motion: give `Deployment.reference`."
        )
    for part in deployment.observation:
        if part.name not in OBSERVATION_PARTS:
            raise ValueError(
                f"`Deployment.observation` names {part.name!r}, which no controller can "
                f"know. Parts: {', '.join(OBSERVATION_PARTS)}."
            )
        fixed = {**dict.fromkeys(_THREE, 3), **dict.fromkeys(_PER_JOINT, number)}
        fixed["height_scan"] = len(deployment.scan)
        fixed |= _OF_REFERENCE
        if part.size != fixed.get(part.name, part.size) or part.size < 1:
            raise ValueError(
                f"`Deployment.observation`: {part.name!r} must have "
                f"{fixed.get(part.name, 'at least 1')} entries, got {part.size}."
            )


def _check_reference(reference: Reference, joints: int) -> None:
    """Raise `ValueError` unless all tables have the same frames, finite numbers and as many
    columns as there are joints or entries of a pose."""
    frames = len(reference.joint_positions)
    if frames < 2:
        raise ValueError(
            f"`Deployment.reference` must have at least two frames, got {frames}."
        )
    for name, size in (
        ("joint_positions", joints),
        ("joint_velocities", joints),
        ("anchor_poses", 12),
        ("root_poses", 7),
    ):
        rows = reference._asdict()[name]
        fits = len(rows) == frames and all(len(row) == size for row in rows)
        if not fits or not np.all(np.isfinite(rows)):
            raise ValueError(
                f"`Deployment.reference.{name}` must be {frames} rows of {size} finite "
                "numbers, one row per frame of `joint_positions`."
            )
    quaternions = np.asarray(reference.root_poses)[:, 3:]
    matrices = np.asarray(reference.anchor_poses)[:, 3:].reshape(-1, 3, 3)
    products = matrices @ np.swapaxes(matrices, 1, 2)
    if not np.allclose(np.linalg.norm(quaternions, axis=1), 1.0, atol=1e-3):
        raise ValueError(
            "`Deployment.reference.root_poses` must have unit quaternions."
        )
    if not np.allclose(products, np.eye(3), atol=1e-3):
        raise ValueError(
            "`Deployment.reference.anchor_poses` must have the rows of rotation matrices "
            "after positions."
        )
