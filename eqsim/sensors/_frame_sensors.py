r"""Sensors of frames: positions, orientations, velocities and accelerations.

Relative to a reference frame, positions, axes and velocities are measured in that
moving frame. Accelerations are relative to free fall: an object at rest has $-g$.

Source: MuJoCo documentation, XML reference, `framepos` and following; `engine_sensor.c`.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from ..kinematics._forward import Pose
from ..model import SensorKind, SensorObject, System
from ..spatial import multiply, Vec3
from ..spatial._vector import stack
from ._frames import (
    object_accelerations,
    object_poses,
    object_velocities,
    Rates,
)
from ._inputs import SensorInputs
from ._orientation import conjugate, object_quaternions


def _objects(sys: System, chosen: Sequence[int]):
    return [sys.sensors.objects[k] for k in chosen]


def _references(sys: System, chosen: Sequence[int]):
    """Return the references; the world for sensors without one."""
    world = (SensorObject.LINK, -1)
    found = [sys.sensors.references[k] for k in chosen]
    return [world if kind is SensorObject.NONE else (kind, i) for kind, i in found]


def _has_references(sys: System, chosen: Sequence[int]) -> bool:
    references = (sys.sensors.references[k][0] for k in chosen)
    return any(kind is not SensorObject.NONE for kind in references)


def _both(sys: System, now: SensorInputs, chosen: Sequence[int]) -> tuple[Pose, Pose]:
    objects, references = _objects(sys, chosen), _references(sys, chosen)
    return object_poses(sys, now, objects), object_poses(sys, now, references)


def frame_positions(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the origins of frames, `(n, 3, *batch)`."""
    if not _has_references(sys, chosen):
        return stack(object_poses(sys, now, _objects(sys, chosen)).pos)
    pose, reference = _both(sys, now, chosen)
    return stack(reference.rot.T @ (pose.pos - reference.pos))


def frame_axis(number: int) -> Callable:
    """Return the function that computes one of the axes of frames."""

    def axis(sys: System, now: SensorInputs, chosen: Sequence[int]):
        if not _has_references(sys, chosen):
            pose = object_poses(sys, now, _objects(sys, chosen))
            return stack(pose.rot.columns[number])
        pose, reference = _both(sys, now, chosen)
        return stack(reference.rot.T @ pose.rot.columns[number])

    return axis


def frame_quaternions(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute orientations of frames, `(n, 4, *batch)`."""
    quat = object_quaternions(sys, now.data.q, _objects(sys, chosen))
    if _has_references(sys, chosen):
        reference = object_quaternions(sys, now.data.q, _references(sys, chosen))
        quat = multiply(conjugate(reference), quat)
    return jnp.stack(quat, axis=1)


def _relative_velocities(
    sys: System, now: SensorInputs, chosen: Sequence[int]
) -> Rates:
    objects, references = _objects(sys, chosen), _references(sys, chosen)
    if not _has_references(sys, chosen):
        pose = object_poses(sys, now, objects)
        return object_velocities(sys, now, objects, pose.pos)
    pose, reference = _both(sys, now, chosen)
    own = object_velocities(sys, now, objects, pose.pos)
    other = object_velocities(sys, now, references, reference.pos)
    # The axes of the reference rotate.
    turned = (pose.pos - reference.pos) ^ other.ang
    back = reference.rot.T
    lin = (own.lin - other.lin) + turned
    return Rates(back @ (own.ang - other.ang), back @ lin)


def frame_velocities(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute velocities of the origins of frames, `(n, 3, *batch)`."""
    return stack(_relative_velocities(sys, now, chosen).lin)


def frame_angular_velocities(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute angular velocities of frames, `(n, 3, *batch)`."""
    return stack(_relative_velocities(sys, now, chosen).ang)


def _accelerations(sys: System, now: SensorInputs, chosen: Sequence[int]) -> Rates:
    objects = _objects(sys, chosen)
    pose = object_poses(sys, now, objects)
    return object_accelerations(sys, now, objects, pose.pos)


def frame_accelerations(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute accelerations of the origins of frames, `(n, 3, *batch)`."""
    return stack(_accelerations(sys, now, chosen).lin)


def frame_angular_accelerations(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute angular accelerations of frames, `(n, 3, *batch)`."""
    return stack(_accelerations(sys, now, chosen).ang)


def accelerometers(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute accelerations of sites in their axes, `(n, 3, *batch)`."""
    objects = _objects(sys, chosen)
    pose = object_poses(sys, now, objects)
    rate = object_accelerations(sys, now, objects, pose.pos)
    return stack(pose.rot.T @ rate.lin)


def _local_velocities(sys: System, now: SensorInputs, chosen: Sequence[int]) -> Rates:
    objects = _objects(sys, chosen)
    pose = object_poses(sys, now, objects)
    own = object_velocities(sys, now, objects, pose.pos)
    back = pose.rot.T
    return Rates(back @ own.ang, back @ own.lin)


def velocimeters(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute velocities of sites in their axes, `(n, 3, *batch)`."""
    return stack(_local_velocities(sys, now, chosen).lin)


def gyros(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute angular velocities of sites in their axes, `(n, 3, *batch)`."""
    return stack(_local_velocities(sys, now, chosen).ang)


def magnetometers(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the magnetic flux in the axes of sites, `(n, 3, *batch)`."""
    pose = object_poses(sys, now, _objects(sys, chosen))
    magnetic = sys.sensors.magnetic
    assert magnetic is not None, "a robot with magnetometers has a magnetic flux"
    flux = Vec3(*(magnetic[k][None] for k in range(3)))
    return stack(pose.rot.T @ flux)


FRAME_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.FRAME_POSITION: frame_positions,
    SensorKind.FRAME_QUATERNION: frame_quaternions,
    SensorKind.FRAME_X_AXIS: frame_axis(0),
    SensorKind.FRAME_Y_AXIS: frame_axis(1),
    SensorKind.FRAME_Z_AXIS: frame_axis(2),
    SensorKind.FRAME_VELOCITY: frame_velocities,
    SensorKind.FRAME_ANGULAR_VELOCITY: frame_angular_velocities,
    SensorKind.FRAME_ACCELERATION: frame_accelerations,
    SensorKind.FRAME_ANGULAR_ACCELERATION: frame_angular_accelerations,
    SensorKind.ACCELEROMETER: accelerometers,
    SensorKind.VELOCIMETER: velocimeters,
    SensorKind.GYRO: gyros,
    SensorKind.MAGNETOMETER: magnetometers,
}
