"""Inertias and velocities of links about the center of mass of their tree."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from ..kinematics._center_of_mass import tree_centers
from ..kinematics._forward import (
    frames,
    kinematics,
    link_motions,
    link_poses,
    quaternions,
)
from ..model import check_state, System, tree
from ..spatial import quaternion_matrix, rigid_inertia, vec3
from ..spatial._rotation import normalize4
from ..spatial._vector import congruence, diagonal


def centered_inertias(sys: System, q: Float[Array, " nq"]) -> Float[Array, "nlink 10"]:
    r"""Compute link inertias in world axes, about the center of mass of their tree.

    With $c_i$ the center of mass of link $i$ and $c$ that of the subtree of its root
    link, $I = R_i I_i R_i^T + m_i\,(|d|^2 1 - d d^T)$ and $h = m_i d$, $d = c_i - c$.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** per link $I_{xx}, I_{yy}, I_{zz}, I_{xy}, I_{xz}, I_{yz}$ (kg m$^2$), $h$
    (kg m) and $m$ (kg) (MuJoCo: `cinert` without the world).
    """
    check_state(sys, q)
    return _centered_inertias(sys, q)


def centered_velocities(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, "nlink 6"]:
    r"""Compute link velocities in world axes, at the center of mass of their tree.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** per link the angular velocity $\omega_i$ (rad/s), and the velocity $v_i +
    \omega_i \times (c - p_i)$ (m/s) of the point of the link at the center of mass $c$ of
    the subtree of its root link (MuJoCo: `cvel` without the world).
    """
    check_state(sys, q, qd)
    return _centered_velocities(sys, q, qd)


def _centered_inertias_fn(sys: System, q):
    nodes, links = tree(sys), sys.links
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    pose = link_poses(nodes, fixed, kin)
    axes = pose.rot @ quaternion_matrix(normalize4(quaternions(links.inertia_quat)))
    moments = diagonal(*(links.inertia[:, k] for k in range(3)))
    arm = pose.point(vec3(links.com)) - tree_centers(sys, nodes, fixed, kin)
    mass = links.mass + jnp.zeros_like(arm.x)
    total = rigid_inertia(mass, arm, congruence(axes, moments))
    return jnp.stack([*total.ang, *total.moment, total.mass], axis=1)


def _centered_velocities_fn(sys: System, q, qd):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    motion, origin = link_motions(nodes, kin, qd)
    lin = motion.at(tree_centers(sys, nodes, fixed, kin) - origin)
    return jnp.stack([*motion.ang, *lin], axis=1)


_centered_inertias = batch_last(_centered_inertias_fn)
_centered_velocities = batch_last(_centered_velocities_fn)
