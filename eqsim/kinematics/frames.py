"""Poses, velocities and Jacobians of links, of frames fixed to them such as sites, and of
the center of mass.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..model import check_state, System, Tree, tree
from ..model.arrays import accumulate, put, take
from ..spatial import Motion, quaternion_matrix, Vec3
from ..spatial.rotations import normalize4
from ..spatial.vectors import stack, vec3
from .link_motion import (
    ascend,
    descend,
    dof_axes,
    dof_order,
    Frames,
    frames,
    joint_motion,
    Kinematics,
    kinematics,
    link_motions,
    link_poses,
    moving_links,
    Pose,
    quaternions,
    take_poses,
)


# Frames fixed to links.


class SitePoses(NamedTuple):
    """Frames of the sites in the world.

    - `pos`: origins, m.
    - `rot`: rotation matrices; their columns are the axes of the sites.
    """

    pos: Float[Array, "nsite 3"]
    rot: Float[Array, "nsite 3 3"]


def site_poses(sys: System, q: Float[Array, " nq"]) -> SitePoses:
    """Compute the poses of all sites.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** positions and rotation matrices of the sites (MuJoCo: `site_xpos`,
    `site_xmat`).
    """
    check_state(sys, q)
    if not sys.nsite:
        return SitePoses(jnp.zeros((0, 3), q.dtype), jnp.zeros((0, 3, 3), q.dtype))
    return SitePoses(*_site_poses(sys, q))


def site_jacobian(
    sys: System, q: Float[Array, " nq"], site: int
) -> Float[Array, "6 nv"]:
    r"""Compute the matrix that maps $\dot q$ to the velocity of a site.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `site`: index of the site, static: `sys.site("tip").index`.

    **Returns:** rows 0 to 2 angular velocity, rows 3 to 5 velocity of the origin of the
    site, in world axes (MuJoCo: `jacr` above `jacp` of `mj_jacSite`).
    """
    check_state(sys, q)
    if not 0 <= site < sys.nsite:
        raise ValueError(
            f"There is no site {site}: this system has {sys.nsite} sites, numbered from "
            "0. Find the number of a site with `sys.sites.names.index(name)`."
        )
    return _site_jacobian(sys, q, int(site))


def attached_frames(fixed: Frames, links, pos, quat) -> Pose:
    """Compute frames relative to the nodes that carry them, given the frames in their
    links.

    **Arguments:**

    - `links`: link of each frame; -1 is the world.
    - `pos (n, 3, *batch)`, `quat (n, 4, *batch)`: frames in the links.
    """
    rot = quaternion_matrix(normalize4(quaternions(quat)))
    return take_poses(fixed.link, links) @ Pose(rot, vec3(pos))


def carriers(tree: Tree, links) -> tuple[int, ...]:
    """Return the node that carries each of some links; -1 for links fixed to the world,
    and for the world itself."""
    return tuple(-1 if link < 0 else tree.link_nodes[link] for link in links)


def site_frames(sys: System, fixed: Frames) -> Pose:
    """Compute the frames of the sites in the nodes that carry them."""
    sites = sys.sites
    return attached_frames(fixed, sites.links, sites.pos, sites.quat)


def world_site_poses(sys: System, tree: Tree, local: Pose, kin: Kinematics) -> Pose:
    """Compute the poses of the sites, given `site_frames`."""
    return take_poses(kin.pose, carriers(tree, sys.sites.links)) @ local


@batch_last
def _site_poses(sys: System, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    pose = world_site_poses(sys, nodes, site_frames(sys, fixed), kin)
    rot = jnp.stack(pose.rot, axis=1)
    return stack(pose.pos), rot.reshape(sys.nsite, 3, 3, *rot.shape[2:])


@batch_last
def _site_jacobian(sys: System, q, site: int):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    (node,) = carriers(nodes, [sys.sites.links[site]])
    if node < 0:
        return jnp.zeros((6, sys.nv, *q.shape[1:]), q.dtype)
    pose = world_site_poses(sys, nodes, site_frames(sys, fixed), kin)
    return point_jacobian(nodes, kin, node, take(pose.pos, [site]))


def point_jacobian(tree: Tree, kin: Kinematics, node: int, point: Vec3):
    """Compute the Jacobian of a point `(1, *batch)` on a node, `(6, nv, *batch)`:
    angular above linear velocity."""
    dof_nodes = dof_order(tree).nodes
    moves = [j for j, own in enumerate(dof_nodes) if tree.ancestors[node, own]]
    axes = take(dof_axes(tree, kin), moves)
    column = Motion(axes.ang, axes.at(point - take(kin.origin, [node])))
    full = put(column, moves, len(dof_nodes))
    return jnp.stack([*full.ang, *full.lin])


# Links.


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


@batch_last
def _forward(sys, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    pose = link_poses(nodes, fixed, kinematics(sys, nodes, fixed, q))
    rot = jnp.stack(pose.rot, axis=1)
    return stack(pose.pos), rot.reshape(sys.nlink, 3, 3, *rot.shape[2:])


@batch_last
def _forward_velocity(sys, q, qd):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    motion, origin = link_motions(nodes, kin, qd)
    pose = link_poses(nodes, fixed, kin)
    return stack(motion.ang), stack(motion.at(pose.pos - origin))


# Jacobians.


def jacobian(
    sys: System,
    q: Float[Array, " nq"],
    link: int,
    point: Float[Array, "3"] | None = None,
) -> Float[Array, "6 nv"]:
    r"""Compute the matrix $J(q)$ that maps $\dot q$ to the velocity of a point on a link.

    Column by column, $J_j = (\omega_j,\; v_j + \omega_j \times p)$ with the motion
    axis $(\omega_j, v_j)$ of each degree of freedom that moves the link, else zero.
    $J^T$ maps a torque and a force at the point to joint forces.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `link`: index of the link, static: `sys.link("foot").index`.
    - `point`: point on the link, in its frame, m. Default: its origin.

    **Returns:** rows 0 to 2 angular velocity, rows 3 to 5 velocity of the point, in
    world axes (MuJoCo: `jacr` above `jacp` of `mj_jac`).

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 4.5 (geometric
        Jacobian).
    """
    check_state(sys, q)
    if point is not None:
        check_shape("point", point, {"xyz": 3})
    if not 0 <= link < sys.nlink:
        raise ValueError(
            f"There is no link {link}: links are numbered from 0 to {sys.nlink - 1}. "
            "Find the number of a link with `sys.link(name).index`."
        )
    return _jacobian(sys, q, int(link), point)


@batch_last
def _jacobian(sys, q, link, point):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    node = nodes.link_nodes[link]
    if node < 0:
        return jnp.zeros((6, sys.nv, *q.shape[1:]), q.dtype)
    pose = take(link_poses(nodes, fixed, kin), [link])
    pos = pose.pos
    if point is not None:
        pos = pose.point(Vec3(*(point[k][None] for k in range(3))))
    return point_jacobian(nodes, kin, node, pos)


# Position, velocity and Jacobian of the center of mass.


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


@batch_last
def _center_of_mass(sys, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    return jnp.concatenate(center(sys, nodes, fixed, kin))


@batch_last
def _com_velocity(sys, q, qd):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    velocity = descend(nodes, joint_motion(nodes, kin, qd))
    mass, moment = _node_moments(sys, nodes, fixed, kin)
    momentum = (velocity.lin * mass) + velocity.ang.cross(moment)
    return jnp.concatenate(_total(momentum) * _inverse_mass(sys))


@batch_last
def _com_jacobian(sys, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    carried = ascend(nodes, _node_moments(sys, nodes, fixed, kin))
    mass, moment = take(carried, dof_order(nodes).nodes)
    axes = dof_axes(nodes, kin)
    columns = (axes.lin * mass) + axes.ang.cross(moment)
    return jnp.stack(columns * _inverse_mass(sys))


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
