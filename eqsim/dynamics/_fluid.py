r"""Forces of the surrounding fluid, and their derivative by velocity.

A link drags like the box that has its inertia, or, if some of its shapes say so, like
the ellipsoids of these shapes (see `_ellipsoids.py`).
"""

import functools as ft
import math
from typing import NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Frames, Kinematics, quaternions
from ..kinematics._structure import moving_links
from ..model import System, Tree
from ..model._gather import accumulate, concatenate, take
from ..spatial import Force, force_at, Mat3, Motion, quaternion_matrix, Vec3, vec3
from ..spatial._matrix6 import full_matrix6, Matrix6
from ..spatial._rotation import normalize4
from ..spatial._spatial import point_stiffness
from ..spatial._vector import congruence, diagonal
from ._ellipsoids import drag, drag_matrix, Ellipsoids, ellipsoids
from ._inertia import link_centers


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
