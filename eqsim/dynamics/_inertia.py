"""Inertia of the nodes: the links that ride on a node are one rigid body."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Frames, Kinematics, quaternions
from ..kinematics._structure import moving_links
from ..model import System, Tree
from ..model._gather import accumulate, take
from ..spatial import quaternion_matrix, rigid_inertia, RigidInertia, Sym3, Vec3, vec3
from ..spatial._rotation import normalize4
from ..spatial._vector import congruence, diagonal


class NodeBodies(NamedTuple):
    """Rigid bodies in the frames of their nodes.

    - `mass`: kg.
    - `com`: center of mass, m.
    - `rotational`: inertia about the center of mass, kg m^2.
    """

    mass: Any
    com: Vec3
    rotational: Sym3


def node_bodies(sys: System, tree: Tree, fixed: Frames) -> NodeBodies:
    """Combine the links that ride on each node into one body."""
    links = sys.links
    moments = diagonal(*(links.inertia[:, k] for k in range(3)))
    axes = quaternion_matrix(normalize4(quaternions(links.inertia_quat)))
    rotational = congruence(fixed.link.rot @ axes, moments)
    com = fixed.link.point(vec3(links.com))
    total = accumulate(
        rigid_inertia(links.mass, com, rotational), tree.link_nodes, tree.size
    )
    center = total.moment * (1.0 / jnp.where(total.mass == 0.0, 1.0, total.mass))
    zero = Sym3(*(jnp.zeros_like(x) for x in total.ang))
    steiner = rigid_inertia(total.mass, center, zero).ang
    return NodeBodies(total.mass, center, total.ang - steiner)


def node_inertias(bodies: NodeBodies, kin: Kinematics) -> RigidInertia:
    """Compute inertias in world axes about the origins of the trees."""
    com = kin.arm + (kin.pose.rot @ bodies.com)
    rotational = congruence(kin.pose.rot, bodies.rotational)
    mass = bodies.mass + jnp.zeros_like(com.x)
    return rigid_inertia(mass, com, rotational)


def link_centers(sys: System, tree: Tree, fixed: Frames, kin: Kinematics) -> Vec3:
    """Compute centers of mass of the moving links, in world axes about the origins of
    the trees; one row for each of `moving_links`."""
    links, nodes = moving_links(tree)
    local = take(fixed.link.point(vec3(sys.links.com)), links)
    return take(kin.arm, nodes) + (take(kin.pose.rot, nodes) @ local)
