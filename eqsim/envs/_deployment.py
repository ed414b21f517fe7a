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
    "phase": "cosines, then sines of the gait phases",
    "height_scan": "of the ground at the points of `scan`, minus that of the root, m",
}
"""Names of parts of observations, with what they mean."""


class Deployment(NamedTuple):
    """What a controller outside the simulator needs to know of a task.

    The target of joint $j$ is `default_pose[j] + action_scale[j] * action[j]`, held for
    `period`; its servo applies the torque `stiffness * (target - q) - damping * qd`, limited
    to `torque_limit`.

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


@runtime_checkable
class Deployable(Protocol):
    """A task whose policies can leave the simulator."""

    def deployment(self) -> Deployment:
        """Return what a controller outside the simulator needs to know."""
        ...


# Sizes of parts that do not depend on the number of joints.
_THREE = ("linear_velocity", "angular_velocity", "gravity", "command")
_PER_JOINT = ("joint_positions", "joint_velocities", "last_action")


def check_deployment(deployment: Deployment) -> None:
    """Raise `ValueError` unless all fields have one entry for each joint, numbers are
    finite, and the parts of the observation are known and have the right sizes."""
    number = len(deployment.joints)
    for name in (
        "default_pose",
        "action_scale",
        "stiffness",
        "damping",
        "torque_limit",
    ):
        values = deployment._asdict()[name]
        if len(values) != number or not np.all(np.isfinite(values)):
            raise ValueError(
                f"`Deployment.{name}` must have one finite number for each of the {number} "
                f"joints, got {values}."
            )
    if not 0.0 < deployment.period < np.inf:
        raise ValueError(
            f"`Deployment.period` must be positive, got {deployment.period}."
        )
    for part in deployment.observation:
        if part.name not in OBSERVATION_PARTS:
            raise ValueError(
                f"`Deployment.observation` names {part.name!r}, which no controller can "
                f"know. Parts: {', '.join(OBSERVATION_PARTS)}."
            )
        fixed = {**dict.fromkeys(_THREE, 3), **dict.fromkeys(_PER_JOINT, number)}
        fixed["height_scan"] = len(deployment.scan)
        if part.size != fixed.get(part.name, part.size) or part.size < 1:
            raise ValueError(
                f"`Deployment.observation`: {part.name!r} must have "
                f"{fixed.get(part.name, 'at least 1')} entries, got {part.size}."
            )
