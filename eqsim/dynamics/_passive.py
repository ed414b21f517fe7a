"""Passive forces: springs, dampers, gravity compensation."""

import jax.numpy as jnp

from ..kinematics._forward import Frames, Kinematics
from ..kinematics._manifold import displacement, dof_joints
from ..kinematics._structure import moving_links
from ..model import JointKind, System, Tree
from ..model._gather import accumulate, per_row, take
from ..spatial import Force, force_at, safe_sqrt, Vec3
from ._inertia import link_centers


def spring_forces(sys: System, q):
    r"""Compute joint springs, $-k(x)\, x$ with $x = q \ominus q_\mathrm{spring}$:
    `(nv, *batch)`."""
    joints = sys.joints
    stretch = displacement(joints.kinds, joints.spring_ref, q)
    return -_spring_coefficients(sys, stretch, lambda k: 1.0) * stretch


def spring_energy(sys: System, q):
    """Compute the potential energy of joint springs: `(*batch)`."""
    joints = sys.joints
    stretch = displacement(joints.kinds, joints.spring_ref, q)
    coefficients = _spring_coefficients(sys, stretch, lambda k: 2.0 / (k + 2.0))
    return 0.5 * jnp.sum(coefficients * stretch * stretch, axis=0)


def _spring_coefficients(sys: System, stretch, weight):
    r"""Compute $k_0 + \sum_i w_i k_i |x|^i$ per degree of freedom, where $x$ is a number
    for hinges and slides, and a vector for rotations and for free positions."""
    joints = sys.joints
    index = dof_joints(joints.kinds)
    total = take(joints.stiffness, index)
    if joints.stiffness_poly is None:
        return total
    poly = take(joints.stiffness_poly, index)
    size = _magnitudes(joints.kinds, stretch)
    power = size
    for k in range(poly.shape[1]):
        total = total + weight(k + 1) * poly[:, k] * power
        power = power * size
    return total


def _magnitudes(kinds: tuple[JointKind, ...], stretch):
    """Return, per degree of freedom, the stretch of a hinge or slide with its sign, and
    the length of the vector of which it is a component."""
    groups, single = [], []
    for kind in kinds:
        for part in range(max(1, kind.nv // 3)):
            groups += min(kind.nv, 3) * [groups[-1] + 1 if groups else 0]
        single += kind.nv * [kind.nv == 1]
    if all(single):
        return stretch
    square = accumulate(stretch * stretch, groups, groups[-1] + 1)
    length = take(safe_sqrt(square), groups)
    return jnp.where(per_row(single, stretch) > 0, stretch, length)


def compensation_forces(
    sys: System, tree: Tree, fixed: Frames, kin: Kinematics
) -> Force:
    """Compute gravity compensation on each node, `(nnode, *batch)`."""
    lift = -sys.links.gravity_compensation * sys.links.mass
    force = Vec3(*(sys.gravity[k][None] * lift for k in range(3)))
    return at_centers(sys, tree, fixed, kin, force, None)


def at_centers(
    sys: System,
    tree: Tree,
    fixed: Frames,
    kin: Kinematics,
    force: Vec3,
    torque: Vec3 | None,
) -> Force:
    """Sum forces and torques at the centers of mass of all links into forces on nodes,
    `(nnode, *batch)`."""
    links, nodes = moving_links(tree)
    total = force_at(link_centers(sys, tree, fixed, kin), take(force, links))
    if torque is not None:
        total = Force(total.ang + take(torque, links), total.lin)
    return accumulate(total, nodes, tree.size)
