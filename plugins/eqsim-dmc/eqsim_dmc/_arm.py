"""The planar arm of the manipulator and the stacker, with a hand with two fingers."""

from collections.abc import Sequence

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import State, System
from eqsim.kinematics import forward
from eqsim.model import JointKind
from eqsim.spatial import multiply

from ._task import index


ARM = (
    "arm_root",
    "arm_shoulder",
    "arm_elbow",
    "arm_wrist",
    "finger",
    "fingertip",
    "thumb",
    "thumbtip",
)


def joint_places(sys: System, names: Sequence[str]) -> list[int]:
    """Return the coordinates of hinges and slides."""
    joints = sys.joints
    return [joints.q_starts[index(joints.names, name, "joint")] for name in names]


def joint_speeds(
    sys: System, qd: Float[Array, " nv"], names: Sequence[str]
) -> Float[Array, " n"]:
    """Return the velocities of hinges and slides."""
    joints = sys.joints
    starts = [joints.v_starts[index(joints.names, name, "joint")] for name in names]
    return qd[jnp.asarray(starts)]


def random_arm(sys: System, key: PRNGKeyArray) -> Float[Array, " nq"]:
    """Draw coordinates with the joints of the arm uniform in their ranges, or in the
    circle without a range; the finger is as far open as the thumb."""
    joints, q = sys.joints, sys.joints.ref
    for k, name in zip(jr.split(key, len(ARM)), ARM):
        joint = index(joints.names, name, "joint")
        low, high = joints.range[joint] if joints.limited[joint] else (-jnp.pi, jnp.pi)
        angle = jr.uniform(k, (), q.dtype, low, high)
        q = q.at[joints.q_starts[joint]].set(angle)
    finger, thumb = joint_places(sys, ("finger", "thumb"))
    return q.at[finger].set(q[thumb])


def arm_parts(
    sys: System, state: State, touch: Float[Array, " ntouch"]
) -> dict[str, Float[Array, "..."]]:
    """Return the parts of the observation that describe the arm.

    **Arguments:**

    - `touch`: forces of the touch sensors, N.
    """
    angles = state.q[jnp.asarray(joint_places(sys, ARM))]
    return {
        "arm_pos": jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=1),
        "arm_vel": joint_speeds(sys, state.qd, ARM),
        "touch": jnp.log1p(touch),
    }


def planar_pose(
    sys: System, q: Float[Array, " nq"], name: str
) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """Return position x, z of a link (m), and the entries w, y of its quaternion."""
    link = index(sys.links.names, name, "link")
    quat = _link_quaternion(sys, q, link)
    return forward(sys, q).pos[link, ::2], jnp.stack([quat[0], quat[2]])


def _link_quaternion(sys: System, q: Float[Array, " nq"], link: int):
    """Return the orientation of a link as a product of quaternions, with MuJoCo's sign.

    The sign changes when a hinge makes a full turn, so it is not a function of the
    rotation matrix.
    """
    joints, quat = sys.joints, tuple(sys.links.quat[link])
    for joint, (kind, start) in enumerate(zip(joints.kinds, joints.q_starts)):
        if joints.links[joint] == link and kind is JointKind.REVOLUTE:
            half = 0.5 * (q[start] - joints.ref[start])
            axis = jnp.sin(half) * joints.axis[joint]
            quat = multiply(quat, (jnp.cos(half), *axis))
    parent = sys.links.parents[link]
    return quat if parent < 0 else multiply(_link_quaternion(sys, q, parent), quat)
