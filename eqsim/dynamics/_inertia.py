"""Inertia of the nodes: the links that ride on a node are one rigid body."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Frames, Kinematics, quaternions
from ..model import accumulate, System, Tree
from ..spatial import (
    congruence,
    diagonal,
    normalize4,
    quaternion_matrix,
    rigid_inertia,
    RigidInertia,
    Sym3,
    Vec3,
    vec3,
)


class NodeBodies(NamedTuple):
    """Mass, center of mass and inertia about it, in the frame of each node."""

    mass: Any
    com: Vec3
    rotational: Sym3


def node_bodies(sys: System, tree: Tree, fixed: Frames) -> NodeBodies:
    """Lumps the links that ride on each node; does not depend on the state."""
    links = sys.links
    moments = diagonal(*(links.inertia[:, k] for k in range(3)))
    axes = quaternion_matrix(normalize4(quaternions(links.inertia_quat)))
    rotational = congruence(fixed.link.rot @ axes, moments)
    com = fixed.link.pos + (fixed.link.rot @ vec3(links.com))
    total = accumulate(
        rigid_inertia(links.mass, com, rotational), tree.link_nodes, tree.size
    )
    inverse = 1.0 / jnp.where(total.mass == 0.0, 1.0, total.mass)
    center = total.moment * inverse
    steiner = rigid_inertia(total.mass, center, total.ang * 0.0).ang
    return NodeBodies(total.mass, center, total.ang - steiner)


def node_inertias(bodies: NodeBodies, kin: Kinematics) -> RigidInertia:
    """Inertias in world axes about the origins of the trees."""
    com = kin.arm + (kin.pose.rot @ bodies.com)
    rotational = congruence(kin.pose.rot, bodies.rotational)
    mass = bodies.mass + jnp.zeros_like(com.x)
    return rigid_inertia(mass, com, rotational)
