"""Forces that need no control: springs, dampers, gravity compensation, the medium."""

import math

import jax.numpy as jnp

from ..kinematics._forward import Frames, Kinematics, quaternions
from ..model import accumulate, concatenate, JointKind, System, take, Tree
from ..spatial import (
    Force,
    force_at,
    logarithm,
    Mat3,
    Motion,
    multiply,
    normalize4,
    quaternion_matrix,
    Vec3,
    vec3,
)


def spring_forces(sys: System, q):
    r"""Joint springs, $-k\,(q \ominus q_\mathrm{spring})$: `(nv, *batch)`."""
    joints = sys.joints
    parts, dofs = [], []
    straight = (JointKind.REVOLUTE, JointKind.PRISMATIC)
    index = [j for j, kind in enumerate(joints.kinds) if kind in straight]
    at = [joints.q_starts[j] for j in index]
    parts.append(take(joints.stiffness, index) * (take(joints.spring_ref - q, at)))
    dofs += [joints.v_starts[j] for j in index]
    for kind, offset, start in ((JointKind.SPHERICAL, 0, 0), (JointKind.FREE, 3, 3)):
        index = [j for j, own in enumerate(joints.kinds) if own is kind]
        at = [joints.q_starts[j] for j in index]
        column = lambda x, k: take(x, [i + k for i in at])
        now = normalize4([column(q, offset + k) for k in range(4)])
        rest = normalize4([column(joints.spring_ref, offset + k) for k in range(4)])
        back = (rest[0], -rest[1], -rest[2], -rest[3])
        stiffness = -take(joints.stiffness, index)
        parts += [x * stiffness for x in logarithm(multiply(back, now))]
        dofs += [joints.v_starts[j] + start + k for k in range(3) for j in index]
        if kind is JointKind.FREE:
            shift = [column(q - joints.spring_ref, k) for k in range(3)]
            parts += [x * stiffness for x in shift]
            dofs += [joints.v_starts[j] + k for k in range(3) for j in index]
    return accumulate(concatenate(parts), dofs, sys.nv)


def compensation_forces(
    sys: System, tree: Tree, fixed: Frames, kin: Kinematics
) -> Force:
    """Carried weight, at the centers of mass: on each node, `(nnode, *batch)`."""
    lift = -sys.links.gravity_compensation * sys.links.mass
    force = Vec3(*(sys.gravity[k][None] * lift for k in range(3)))
    return at_centers(sys, tree, fixed, kin, Vec3(*force), None)


def at_centers(sys: System, tree: Tree, fixed, kin: Kinematics, force, torque) -> Force:
    """Forces and torques at the centers of mass of all links, as forces on nodes."""
    moving = [i for i, node in enumerate(tree.link_nodes) if node >= 0]
    nodes = [tree.link_nodes[i] for i in moving]
    place = fixed.link.pos + (fixed.link.rot @ vec3(sys.links.com))
    point = take(kin.arm, nodes) + (take(kin.pose.rot, nodes) @ take(place, moving))
    push = force_at(point, take(force, moving))
    if torque is not None:
        push = Force(push.ang + take(torque, moving), push.lin)
    return accumulate(push, nodes, tree.size)


def fluid_forces(
    sys: System, tree: Tree, fixed: Frames, kin: Kinematics, velocity: Motion
) -> Force:
    r"""Drag of the medium on the box that has a link's inertia, on each node.

    With sides $b$ along the principal axes, mean diameter $d$, and velocity $(\omega,
    v)$ of the center of mass in those axes:
    $f_i = -3\pi d \eta\, v_i - \tfrac12 \rho\, b_j b_k |v_i| v_i$,
    $\tau_i = -\pi d^3 \eta\, \omega_i
    - \tfrac{1}{64} \rho\, b_i (b_j^4 + b_k^4) |\omega_i| \omega_i$
    (MuJoCo documentation, *Computation*, "Inertia model").
    """
    links = sys.links
    moving = [i for i, node in enumerate(tree.link_nodes) if node >= 0]
    nodes = [tree.link_nodes[i] for i in moving]
    rot, place = take(
        (
            fixed.link.rot
            @ quaternion_matrix(normalize4(quaternions(links.inertia_quat))),
            fixed.link.pos + (fixed.link.rot @ vec3(links.com)),
        ),
        moving,
    )
    carrier = take(kin.pose.rot, nodes)
    rot: Mat3 = carrier @ rot
    point = take(kin.arm, nodes) + (carrier @ place)
    speed = take(velocity, nodes)
    wind = Vec3(*(sys.wind[k][None] for k in range(3)))
    spin, flow = rot.T @ speed.ang, rot.T @ (speed.at(point) - wind)
    b = _box_sides(take(vec3(links.inertia), moving), take(links.mass, moving))
    diameter = (b.x + b.y + b.z) * (1 / 3)
    thick = sys.viscosity[None] * diameter
    turn, push = [], []
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        linear = 3 * math.pi * thick + 0.5 * sys.density[None] * b[j] * b[k] * jnp.abs(
            flow[i]
        )
        edge = b[i] * (b[j] ** 4 + b[k] ** 4) * (1 / 64)
        angular = math.pi * thick * diameter**2 + sys.density[None] * edge * jnp.abs(
            spin[i]
        )
        push.append(-linear * flow[i])
        turn.append(-angular * spin[i])
    push, turn = rot @ Vec3(*push), rot @ Vec3(*turn)
    total = force_at(point, push)
    return accumulate(Force(total.ang + turn, total.lin), nodes, tree.size)


def _box_sides(inertia: Vec3, mass) -> Vec3:
    """Sides of the box with this inertia; zero for a link without mass."""
    real = mass > 1e-15
    scale = 6.0 / jnp.where(real, mass, 1.0)
    sides = []
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        square = jnp.maximum((inertia[j] + inertia[k] - inertia[i]) * scale, 1e-15)
        sides.append(jnp.where(real, jnp.sqrt(square), 0.0))
    return Vec3(*sides)
