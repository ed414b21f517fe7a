"""Orientations of objects as quaternions.

Rotation matrices do not determine the sign of a quaternion. The product along the chain
of joints does, and has the same sign as in MuJoCo.
"""

from collections.abc import Sequence

import jax.numpy as jnp

from ..kinematics._forward import quaternions
from ..model import JointKind, System
from ..model._gather import concatenate, take
from ..model._sensors import Attachment
from ..spatial import multiply, safe_sqrt, vec3
from ..spatial._rotation import normalize4
from ._frames import local_frames, object_link


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
    norm = safe_sqrt(axis | axis)
    axis = axis * (1.0 / jnp.where(norm > 0.0, norm, 1.0))
    half = 0.5 * (q - sys.joints.ref)[start : start + 1]
    return jnp.cos(half), *(axis * jnp.sin(half))
