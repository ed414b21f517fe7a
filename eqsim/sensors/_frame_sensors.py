"""Sensors of frames: links, their inertia, shapes and sites. Positions, orientations,
velocities and accelerations.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics.frames import attached_frames, carriers
from ..kinematics.link_motion import (
    descend,
    joint_motion,
    Pose,
    quaternions,
    take_poses,
)
from ..model import JointKind, SensorKind, SensorObject, System, tree
from ..model.arrays import concatenate, per_row, take, take_or_zero
from ..model.sensor_kinds import Attachment
from ..spatial import Motion, multiply, safe_sqrt, Vec3
from ..spatial.rotations import normalize4
from ..spatial.vectors import stack, vec3
from .sensor_inputs import SensorInputs


class Rates(NamedTuple):
    """Rates of frames, in world axes.

    - `ang`: angular velocity or acceleration.
    - `lin`: velocity or acceleration of the origins.
    """

    ang: Vec3
    lin: Vec3


def object_link(sys: System, attachment: Attachment) -> int:
    """Return the link that carries an object; -1 is the world."""
    kind, index = attachment
    if kind is SensorObject.GEOM:
        return sys.geoms.links[index]
    if kind is SensorObject.SITE:
        return sys.sites.links[index]
    return index


def local_frames(sys: System, objects: Sequence[Attachment]) -> tuple[Any, Any]:
    """Return positions `(n, 3, *batch)` and quaternions `(n, 4, *batch)` of objects in
    the frames of their links."""
    links, geoms, sites = sys.links, sys.geoms, sys.sites
    one = jnp.ones((1, 1, *(1 for _ in links.com.shape[2:])), links.com.dtype)
    zero = jnp.zeros_like(one)
    world = jnp.concatenate(3 * [zero], 1), jnp.concatenate([one, *3 * [zero]], 1)
    tables = {
        SensorObject.INERTIA: (links.com, links.inertia_quat),
        SensorObject.GEOM: (geoms.pos, geoms.quat),
        SensorObject.SITE: (sites.pos, sites.quat),
    }
    used = [kind for kind in tables if any(own is kind for own, _ in objects)]
    start, starts = 1, {}
    for kind in used:
        starts[kind] = start
        start += tables[kind][0].shape[0]
    rows = [
        starts[kind] + index if kind in starts and index >= 0 else 0
        for kind, index in objects
    ]
    return take(concatenate([world, *(tables[kind] for kind in used)]), rows)


def object_poses(sys: System, now: SensorInputs, objects: Sequence[Attachment]) -> Pose:
    """Compute the poses of objects in the world."""
    links = [object_link(sys, each) for each in objects]
    local = attached_frames(now.data.fixed, links, *local_frames(sys, objects))
    return take_poses(now.data.kin.pose, carriers(tree(sys), links)) @ local


def object_velocities(
    sys: System, now: SensorInputs, objects: Sequence[Attachment], pos: Vec3
) -> Rates:
    """Compute velocities of objects at `pos`; zero for objects that cannot move."""
    links = [object_link(sys, each) for each in objects]
    return _at(now, now.data.velocities.velocity, carriers(tree(sys), links), pos)


def object_accelerations(
    sys: System, now: SensorInputs, objects: Sequence[Attachment], pos: Vec3
) -> Rates:
    """Compute accelerations of objects at `pos` relative to free fall."""
    nodes = carriers(tree(sys), [object_link(sys, each) for each in objects])
    return accelerations_at(sys, now, nodes, pos)


def accelerations_at(
    sys: System, now: SensorInputs, nodes: Sequence[int], pos: Vec3
) -> Rates:
    """Compute accelerations of points on nodes (-1: the world) relative to free
    fall."""
    rate = _at(now, _node_accelerations(sys, now), nodes, pos)
    velocity = _at(now, now.data.velocities.velocity, nodes, pos)
    still = per_row([node < 0 for node in nodes], rate.lin.x)
    gravity = Vec3(*(sys.gravity[k][None] * still for k in range(3)))
    turned = velocity.ang.cross(velocity.lin)
    return Rates(rate.ang, (rate.lin + turned) - gravity)


def _node_accelerations(sys: System, now: SensorInputs) -> Motion:
    """Compute spatial accelerations of the nodes, where the world accelerates against
    gravity."""
    nodes = tree(sys)
    own = descend(nodes, joint_motion(nodes, now.data.kin, now.data.solution.qdd))
    return now.data.velocities.bias + own


def _at(now: SensorInputs, motion: Motion, nodes: Sequence[int], pos: Vec3) -> Rates:
    own, origin = take_or_zero((motion, now.data.kin.origin), nodes)
    return Rates(own.ang, own.at(pos - origin))


def object_quaternions(sys: System, q, objects: Sequence[Attachment]):
    """Compute the orientations of objects in the world: four arrays `(n, *batch)`."""
    found: dict[int, tuple] = {}
    links = [_link(sys, q, object_link(sys, each), found) for each in objects]
    above = concatenate(links)
    own = normalize4(quaternions(local_frames(sys, objects)[1]))
    return multiply(above, own)


def conjugate(quat):
    """Return the inverse of a unit quaternion."""
    w, x, y, z = quat
    return w, -x, -y, -z


def _link(sys: System, q, link: int, found: dict[int, tuple]) -> tuple:
    if link not in found:
        found[link] = _behind_joints(sys, q, link, found)
    return found[link]


def _behind_joints(sys: System, q, link: int, found: dict[int, tuple]) -> tuple:
    if link < 0:
        one = jnp.ones_like(q[:1])
        return one, *(jnp.zeros_like(one) for _ in range(3))
    joints, links = sys.joints, sys.links
    own = [j for j, owner in enumerate(joints.links) if owner == link]
    if any(joints.kinds[j] is JointKind.FREE for j in own):
        return normalize4(_rows(q, joints.q_starts[own[0]] + 3))
    quat = normalize4(quaternions(take(links.quat, [link])))
    quat = multiply(_link(sys, q, links.parents[link], found), quat)
    for joint in own:
        kind, start = joints.kinds[joint], joints.q_starts[joint]
        if kind is JointKind.SPHERICAL:
            quat = multiply(quat, normalize4(_rows(q, start)))
        elif kind is JointKind.REVOLUTE:
            quat = multiply(quat, _turn(sys, q, joint))
    return quat


def _rows(q, start: int) -> tuple:
    return tuple(q[start + k : start + k + 1] for k in range(4))


def _turn(sys: System, q, joint: int) -> tuple:
    start = sys.joints.q_starts[joint]
    axis = vec3(take(sys.joints.axis, [joint]))
    norm = safe_sqrt(axis.dot(axis))
    axis = axis * (1.0 / jnp.where(norm > 0.0, norm, 1.0))
    half = 0.5 * (q - sys.joints.ref)[start : start + 1]
    return jnp.cos(half), *(axis * jnp.sin(half))


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
    turned = (pose.pos - reference.pos).cross(other.ang)
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
