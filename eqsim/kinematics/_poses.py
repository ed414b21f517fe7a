"""Forward kinematics: frames and velocities of links, as plain arrays."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from ..model import check_state, System, tree
from ..spatial._vector import stack
from ._forward import frames, kinematics, link_motions, link_poses


class LinkPoses(NamedTuple):
    """Frames of the links in the world.

    - `pos`: origins, m.
    - `rot`: rotation matrices; their columns are the axes of the links.
    """

    pos: Float[Array, "nlink 3"]
    rot: Float[Array, "nlink 3 3"]


class LinkVelocities(NamedTuple):
    """Velocities of the links in world axes.

    - `ang`: angular velocities, rad/s.
    - `lin`: velocities of the origins of the links, m/s.
    """

    ang: Float[Array, "nlink 3"]
    lin: Float[Array, "nlink 3"]


def forward(sys: System, q: Float[Array, " nq"]) -> LinkPoses:
    r"""Compute the poses of all links (forward kinematics).

    Frame by frame from the root: ${}^0X_i = {}^0X_{\lambda(i)}\,X_{T,i}\,X_{J,i}(q_i)$.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates; quaternions are normalized.

    **Returns:** positions and rotation matrices of the links (MuJoCo: `xpos`, `xmat`,
    without the world).

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 4.4.
    """
    check_state(sys, q)
    pos, rot = _forward(sys, q)
    return LinkPoses(pos, rot)


def forward_velocity(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> LinkVelocities:
    r"""Compute the velocities of all links, $v_i = v_{\lambda(i)} + S_i \dot q_i$.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** angular velocity of every link, and linear velocity of its origin, in
    world axes (MuJoCo: `mj_objectVelocity` of `mjOBJ_XBODY`, not in local axes).

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 5.3.
    """
    check_state(sys, q, qd)
    ang, lin = _forward_velocity(sys, q, qd)
    return LinkVelocities(ang, lin)


def _forward_fn(sys, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    pose = link_poses(nodes, fixed, kinematics(sys, nodes, fixed, q))
    rot = jnp.stack(pose.rot, axis=1)
    return stack(pose.pos), rot.reshape(sys.nlink, 3, 3, *rot.shape[2:])


def _forward_velocity_fn(sys, q, qd):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    motion, origin = link_motions(nodes, kin, qd)
    pose = link_poses(nodes, fixed, kin)
    return stack(motion.ang), stack(motion.at(pose.pos - origin))


_forward = batch_last(_forward_fn)
_forward_velocity = batch_last(_forward_velocity_fn)
