"""Position, velocity and Jacobian of the center of mass."""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from ..model import check_state, System, Tree, tree
from ..model._gather import accumulate, take
from ..spatial import Vec3, vec3
from ._forward import (
    ascend,
    descend,
    dof_axes,
    dof_order,
    Frames,
    frames,
    joint_motion,
    Kinematics,
    kinematics,
    link_poses,
    moving_links,
)


def center_of_mass(sys: System, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    r"""Compute the center of mass $c = \sum_i m_i c_i / \sum_i m_i$ in the world, m.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** the center of mass of all links, those that cannot move included
    (MuJoCo: `subtree_com` of the world).
    """
    check_state(sys, q)
    return _center_of_mass(sys, q)


def com_velocity(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, "3"]:
    r"""Compute the velocity of the center of mass, $\sum_i m_i v_i / \sum_i m_i$, m/s.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** the velocity in world axes (MuJoCo: `subtree_linvel` of the world).
    """
    check_state(sys, q, qd)
    return _com_velocity(sys, q, qd)


def com_jacobian(sys: System, q: Float[Array, " nq"]) -> Float[Array, "3 nv"]:
    r"""Compute the matrix that maps $\dot q$ to the velocity of the center of mass.

    Column $j$ is $(m_j v_j + \omega_j \times h_j) / \sum_i m_i$ with the motion axis
    $(\omega_j, v_j)$ of a degree of freedom, and mass $m_j$ and first moment $h_j$ of
    the subtree that it moves.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** the Jacobian in world axes (MuJoCo: `mj_jacSubtreeCom` of the world).
    """
    check_state(sys, q)
    return _com_jacobian(sys, q)


def _center_of_mass_fn(sys, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    return jnp.concatenate(center(sys, nodes, fixed, kin))


def _com_velocity_fn(sys, q, qd):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    velocity = descend(nodes, joint_motion(nodes, kin, qd))
    mass, moment = _node_moments(sys, nodes, fixed, kin)
    momentum = (velocity.lin * mass) + (velocity.ang ^ moment)
    return jnp.concatenate(_total(momentum) * _inverse_mass(sys))


def _com_jacobian_fn(sys, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    carried = ascend(nodes, _node_moments(sys, nodes, fixed, kin))
    mass, moment = take(carried, dof_order(nodes).nodes)
    axes = dof_axes(nodes, kin)
    columns = (axes.lin * mass) + (axes.ang ^ moment)
    return jnp.stack(columns * _inverse_mass(sys))


_center_of_mass = batch_last(_center_of_mass_fn)
_com_velocity = batch_last(_com_velocity_fn)
_com_jacobian = batch_last(_com_jacobian_fn)


def center(sys: System, nodes: Tree, fixed: Frames, kin: Kinematics) -> Vec3:
    """Compute the center of mass of all links, `(1, *batch)`."""
    place = link_poses(nodes, fixed, kin).point(vec3(sys.links.com))
    return _total(place * sys.links.mass) * _inverse_mass(sys)


def tree_centers(sys: System, nodes: Tree, fixed: Frames, kin: Kinematics) -> Vec3:
    """Compute, for each link, the center of mass of the subtree of its root link,
    `(nlink, *batch)` (MuJoCo: `subtree_com` of `body_rootid`)."""
    roots = _root_links(sys.links.parents)
    place = link_poses(nodes, fixed, kin).point(vec3(sys.links.com))
    mass = sys.links.mass + jnp.zeros_like(place.x)
    total = accumulate(_Moments(mass, place * mass), roots, sys.nlink)
    mass, moment = take(total, roots)
    some, own = mass > 0.0, take(place, roots)
    mean = moment * (1.0 / jnp.where(some, mass, 1.0))
    return Vec3(*(jnp.where(some, a, b) for a, b in zip(mean, own, strict=True)))


@ft.lru_cache(maxsize=256)
def _root_links(parents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the root link of each link."""
    roots: list[int] = []
    for link, parent in enumerate(parents):
        roots.append(link if parent < 0 else roots[parent])
    return tuple(roots)


class _Moments(NamedTuple):
    """Mass and first moment."""

    mass: Any
    moment: Vec3


def _node_moments(sys: System, nodes: Tree, fixed: Frames, kin: Kinematics) -> _Moments:
    """Compute the moments of each node about the origin of its tree, `(nnode,
    *batch)`."""
    links, carriers = moving_links(nodes)
    place = link_poses(nodes, fixed, kin).point(vec3(sys.links.com))
    arm = take(place, links) - take(kin.origin, carriers)
    mass = take(sys.links.mass, links) + jnp.zeros_like(arm.x)
    return accumulate(_Moments(mass, arm * mass), carriers, nodes.size)


def _total(v: Vec3) -> Vec3:
    return Vec3(*(jnp.sum(x, axis=0, keepdims=True) for x in v))


def _inverse_mass(sys: System):
    """Return one over the total mass, `(1, *batch)`; one for a system without mass."""
    mass = jnp.sum(sys.links.mass, axis=0, keepdims=True)
    return 1.0 / jnp.where(mass > 0.0, mass, 1.0)
