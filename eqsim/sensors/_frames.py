"""Frames that sensors are attached to: frames of links, of their inertia, shapes and
sites."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import descend, joint_motion, Pose, take_poses
from ..kinematics._poses import attached_frames, carriers
from ..model import SensorObject, System, tree
from ..model._gather import concatenate, per_row, take, take_or_zero
from ..model._sensors import Attachment
from ..spatial import Motion, Vec3
from ._inputs import SensorInputs


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
    turned = velocity.ang ^ velocity.lin
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
