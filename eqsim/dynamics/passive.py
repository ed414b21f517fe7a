r"""Forces without actuators and constraints: damping, springs, gravity compensation, inertial
and external forces, and forces of the surrounding fluid.

In a fluid a link drags like the box that has its inertia, or, if some of its shapes say so,
like the ellipsoids of these shapes (see `fluid.py`).
"""

import functools as ft
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics.coordinates import displacement, dof_joints
from ..kinematics.link_motion import (
    Frames,
    frames,
    Kinematics,
    kinematics,
    moving_links,
    quaternions,
    Velocities,
)
from ..model import JointKind, System, Transmission, Tree, tree
from ..model.arrays import accumulate, concatenate, per_row, take
from ..spatial import Force, Mat3, Motion, quaternion_matrix, safe_sqrt, Vec3
from ..spatial.rotations import normalize4
from ..spatial.vectors import (
    congruence,
    diagonal,
    force_at,
    full_matrix6,
    Matrix6,
    point_stiffness,
    RigidInertia,
    vec3,
)
from .actuator_slots import addresses
from .articulated import link_centers, node_bodies, node_inertias
from .fluid import drag, drag_matrix, Ellipsoids, ellipsoids


# Armature and damping.


class Damping(NamedTuple):
    r"""Damping of degrees of freedom or tendons:
    the force is $-v\,(d + d_1 |v| + d_2 v^2 + \dots)$.

    - `linear`: $d$, `(n, *batch)`.
    - `poly`: $d_1, d_2, \dots$, `(n, order, *batch)`; None if there are none.
    """

    linear: Any
    poly: Any

    def force(self, rate):
        """Compute the damping force."""
        return -rate * self._coefficient(rate, lambda k: 1)

    def slope(self, rate):
        """Compute the derivative of the damping force by the rate, negative."""
        return self._coefficient(rate, lambda k: k + 2)

    def _coefficient(self, rate, weight):
        total = self.linear
        if self.poly is None:
            return total
        speed = jnp.abs(rate)
        power = speed
        for k in range(self.poly.shape[1]):
            total = total + weight(k) * self.poly[:, k] * power
            power = power * speed
        return total


def armature(sys: System):
    """Return the armature of each degree of freedom, `(nv, *batch)`."""
    return _armature(sys, sys.joints.armature, _on_dofs)


def damping(sys: System) -> Damping:
    """Return the damping of each degree of freedom."""
    joints = sys.joints
    return _damping(sys, joints.damping, joints.damping_poly, _on_dofs)


def tendon_armature(sys: System):
    """Return the armature of each tendon, `(ntendon, *batch)`."""
    return _armature(sys, sys.tendons.armature, _on_tendons)


def tendon_damping(sys: System) -> Damping:
    """Return the damping of each tendon."""
    tendons = sys.tendons
    return _damping(sys, tendons.damping, tendons.damping_poly, _on_tendons)


def _armature(sys: System, own, spread: Callable):
    """Add the armature of actuators, which `spread` sums over what they act on."""
    extra = sys.actuators.armature
    return own if extra is None else own + spread(sys, extra[:, None])[:, 0]


def _damping(sys: System, linear, poly, spread: Callable) -> Damping:
    """Add the damping of actuators, which `spread` sums over what they act on."""
    actuators = sys.actuators
    if actuators.damping is not None:
        linear = linear + spread(sys, actuators.damping[:, None])[:, 0]
    if actuators.damping_poly is not None:
        extra = spread(sys, actuators.damping_poly)
        poly = extra if poly is None else poly + extra
    return Damping(linear, poly)


def _on_tendons(sys: System, values):
    """Sum numbers of actuators `(nactuator, n, *batch)`, times their squared gear, over
    the tendons that they act on."""
    actuators = sys.actuators
    outs = addresses(actuators.structure).out
    owners = [
        k
        for k, kind in enumerate(actuators.transmissions)
        if kind is Transmission.TENDON
    ]
    gear = take(actuators.gear, [outs[k] for k in owners])[:, 0]
    terms = take(values, owners) * (gear * gear)[:, None]
    return accumulate(terms, [actuators.targets[k][0] for k in owners], sys.ntendon)


def _on_dofs(sys: System, values):
    """Sum numbers of actuators `(nactuator, n, *batch)`, times their squared gear, over
    the degrees of freedom of the joints that they act on."""
    actuators, joints = sys.actuators, sys.joints
    outs, counts = addresses(actuators.structure).out, actuators.num_outputs
    pairs = [
        (k, dof)
        for k, joint in enumerate(actuators.joints)
        for dof, owner in enumerate(dof_joints(joints.kinds))
        # As in MuJoCo, servos of orientation have no damping and armature.
        if owner == joint and counts[k] == 1
    ]
    owners = [k for k, _ in pairs]
    gear = take(actuators.gear, [outs[k] for k in owners])[:, 0]
    terms = take(values, owners) * (gear * gear)[:, None]
    return accumulate(terms, [dof for _, dof in pairs], sys.nv)


# Springs and gravity compensation.


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


# Inertial and external forces.


class Rigid(NamedTuple):
    """A system at given coordinates; arrays are per node, in world axes."""

    nodes: Tree
    fixed: Frames
    kin: Kinematics
    inertia: RigidInertia


def rigid(sys: System, q) -> Rigid:
    """Compute poses and inertias at coordinates `q`, shape `(nq, *batch)`."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    return Rigid(nodes, fixed, kin, node_inertias(node_bodies(sys, nodes, fixed), kin))


def inertial_forces(inertia: RigidInertia, speed: Velocities) -> Force:
    r"""Compute $I a + v \times^* I v$ on each node while all joint accelerations are
    zero; gravity enters as an acceleration of the world."""
    momentum = inertia @ speed.velocity
    return (inertia @ speed.bias) + speed.velocity.cross_dual(momentum)


def external_forces(
    sys: System, nodes: Tree, fixed: Frames, kin: Kinematics, external
) -> Force:
    """Sum torques and forces at the centers of mass of the links, `(nlink, 6, *batch)`,
    into forces on the nodes."""
    torque, force = vec3(external[:, :3]), vec3(external[:, 3:])
    return at_centers(sys, nodes, fixed, kin, force, torque)


# Fluid forces.


class _Layout(NamedTuple):
    """Static facts: which fluid model each moving link has.

    - `boxes`: rows among `moving_links` of the links that drag like boxes.
    - `box_nodes`: the nodes of these links.
    - `geoms`, `geom_nodes`: shapes that drag like ellipsoids, and their nodes.
    """

    boxes: tuple[int, ...]
    box_nodes: tuple[int, ...]
    geoms: tuple[int, ...]
    geom_nodes: tuple[int, ...]


@ft.lru_cache(maxsize=256)
def _layout(tree: Tree, fluid: tuple[bool, ...], links: tuple[int, ...]) -> _Layout:
    nodes = tree.link_nodes
    geoms = tuple(
        geom
        for geom, link in enumerate(links)
        if fluid[geom] and link >= 0 and nodes[link] >= 0
    )
    with_ellipsoids = {links[geom] for geom in geoms}
    moving = moving_links(tree)
    boxes = tuple(
        row for row, link in enumerate(moving.links) if link not in with_ellipsoids
    )
    return _Layout(
        boxes,
        tuple(moving.nodes[row] for row in boxes),
        geoms,
        tuple(nodes[links[geom]] for geom in geoms),
    )


def fluid_ellipsoids(sys: System, tree: Tree, fixed: Frames) -> Ellipsoids | None:
    """Compute the constants of the ellipsoid model; None if no shape uses it."""
    layout = _layout(tree, sys.geoms.fluid, sys.geoms.links)
    if not sys.has_fluid or not layout.geoms:
        return None
    return ellipsoids(sys, fixed, layout.geoms)


def fluid_forces(
    sys: System,
    tree: Tree,
    fixed: Frames,
    kin: Kinematics,
    velocity: Motion,
    shapes: Ellipsoids | None = None,
) -> Force:
    """Compute the force of the fluid on each node, `(nnode, *batch)`.

    **Arguments:**

    - `velocity`: motion of each node about the origin of its tree.
    - `shapes`: result of `fluid_ellipsoids`, which is called if it is None.
    """
    layout = _layout(tree, sys.geoms.fluid, sys.geoms.links)
    parts, nodes = [], []
    if layout.boxes:
        parts.append(_box_forces(sys, tree, fixed, kin, velocity, layout))
        nodes += layout.box_nodes
    if layout.geoms:
        shapes = shapes or ellipsoids(sys, fixed, layout.geoms)
        rot, point, local = _ellipsoid_motion(sys, kin, velocity, layout, shapes)
        force = drag(sys.density[None], sys.viscosity[None], shapes, local)
        total = force_at(point, rot @ force.lin)
        parts.append(Force(total.ang + (rot @ force.ang), total.lin))
        nodes += layout.geom_nodes
    return accumulate(concatenate(parts), nodes, tree.size)


def fluid_damping(
    sys: System,
    tree: Tree,
    fixed: Frames,
    kin: Kinematics,
    velocity: Motion,
    shapes: Ellipsoids | None = None,
) -> Matrix6:
    r"""Compute $-\partial f / \partial V$ of each node, `(nnode, *batch)`: the negative
    derivative of `fluid_forces` by the motion of the node.

    **Arguments:** as of `fluid_forces`.
    """
    layout = _layout(tree, sys.geoms.fluid, sys.geoms.links)
    parts, nodes = [], []
    if layout.boxes:
        parts.append(_box_damping(sys, tree, fixed, kin, velocity, layout))
        nodes += layout.box_nodes
    if layout.geoms:
        shapes = shapes or ellipsoids(sys, fixed, layout.geoms)
        rot, point, local = _ellipsoid_motion(sys, kin, velocity, layout, shapes)
        matrix = drag_matrix(sys.density[None], sys.viscosity[None], shapes, local)
        parts.append((matrix * -1.0).rotated(rot).moved(point))
        nodes += layout.geom_nodes
    return accumulate(concatenate(parts), nodes, tree.size)


class _Flow(NamedTuple):
    """Motion of the inertia boxes relative to the fluid, in their axes.

    - `rot`, `point`: axes, and centers about the origins of the trees.
    - `spin`, `flow`: angular and linear velocity.
    - `sides`: sides of the boxes, m.
    - `diameter`: mean side, m.
    """

    rot: Mat3
    point: Vec3
    spin: Vec3
    flow: Vec3
    sides: Vec3
    diameter: jnp.ndarray


def _box_flow(sys: System, tree: Tree, fixed: Frames, kin, velocity, layout) -> _Flow:
    links = [moving_links(tree).links[row] for row in layout.boxes]
    axes = quaternion_matrix(normalize4(quaternions(sys.links.inertia_quat)))
    rot = take(kin.pose.rot, layout.box_nodes) @ take(fixed.link.rot @ axes, links)
    point = take(link_centers(sys, tree, fixed, kin), layout.boxes)
    speed = take(velocity, layout.box_nodes)
    inertia, mass = take((vec3(sys.links.inertia), sys.links.mass), links)
    sides = _box_sides(inertia, mass)
    diameter = (sides.x + sides.y + sides.z) * (1 / 3)
    flow = rot.T @ (speed.at(point) - _wind(sys))
    return _Flow(rot, point, rot.T @ speed.ang, flow, sides, diameter)


def _wind(sys: System) -> Vec3:
    return Vec3(*(sys.wind[k][None] for k in range(3)))


def _box_coefficients(sys: System, now: _Flow):
    """Compute, for each axis, the linear and quadratic coefficients of torque and
    force."""
    viscous, density = sys.viscosity[None] * now.diameter, sys.density[None]
    b, out = now.sides, []
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        edge = b[i] * (b[j] ** 4 + b[k] ** 4) * (1 / 64)
        torque = (math.pi * viscous * now.diameter**2, density * edge)
        force = (3 * math.pi * viscous, 0.5 * density * (b[j] * b[k]))
        out.append((torque, force))
    return out


def _box_forces(sys, tree, fixed, kin, velocity, layout) -> Force:
    r"""Compute the drag of inertia boxes.

    With sides $b$ along the principal axes, mean diameter $d$, and velocity
    $(\omega, v)$ of the center of mass in those axes:
    $f_i = -3\pi d \eta\, v_i - \tfrac12 \rho\, b_j b_k |v_i| v_i$,
    $\tau_i = -\pi d^3 \eta\, \omega_i
    - \tfrac{1}{64} \rho\, b_i (b_j^4 + b_k^4) |\omega_i| \omega_i$
    (MuJoCo documentation, *Computation*, "Inertia model").
    """
    now = _box_flow(sys, tree, fixed, kin, velocity, layout)
    torque, force = [], []
    for i, (angular, linear) in enumerate(_box_coefficients(sys, now)):
        spin, flow = now.spin[i], now.flow[i]
        torque.append(-(angular[0] + angular[1] * jnp.abs(spin)) * spin)
        force.append(-(linear[0] + linear[1] * jnp.abs(flow)) * flow)
    total = force_at(now.point, now.rot @ Vec3(*force))
    return Force(total.ang + (now.rot @ Vec3(*torque)), total.lin)


def _box_damping(sys, tree, fixed, kin, velocity, layout) -> Matrix6:
    now = _box_flow(sys, tree, fixed, kin, velocity, layout)
    torque, force = [], []
    for i, (angular, linear) in enumerate(_box_coefficients(sys, now)):
        torque.append(angular[0] + 2.0 * angular[1] * jnp.abs(now.spin[i]))
        force.append(linear[0] + 2.0 * linear[1] * jnp.abs(now.flow[i]))
    stiffness = point_stiffness(now.point, congruence(now.rot, diagonal(*force)))
    ang = stiffness.ang + congruence(now.rot, diagonal(*torque))
    return full_matrix6(stiffness._replace(ang=ang))


def _box_sides(inertia: Vec3, mass) -> Vec3:
    """Compute the sides of the box with this inertia; zero for a link without mass."""
    real = mass > 1e-15
    scale = 6.0 / jnp.where(real, mass, 1.0)
    sides = []
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        square = jnp.maximum((inertia[j] + inertia[k] - inertia[i]) * scale, 1e-15)
        sides.append(jnp.where(real, jnp.sqrt(square), 0.0))
    return Vec3(*sides)


def _ellipsoid_motion(sys: System, kin: Kinematics, velocity, layout, shapes):
    """Return axes and centers of the ellipsoids about the origins of the trees, and
    their motion relative to the fluid, in their axes."""
    frame = take(kin.pose.rot, layout.geom_nodes)
    rot = frame @ shapes.pose.rot
    point = take(kin.arm, layout.geom_nodes) + (frame @ shapes.pose.pos)
    speed = take(velocity, layout.geom_nodes)
    flow = speed.at(point) - _wind(sys)
    return rot, point, Motion(rot.T @ speed.ang, rot.T @ flow)
