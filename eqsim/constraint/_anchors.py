"""Frames on links that equality constraints hold together, and how they move."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics._axes import dof_axes
from ..kinematics._forward import Pose, quaternions, take_poses
from ..kinematics._structure import dof_order, moving_dofs
from ..model import EqualityKind, System, Tree, tree
from ..model._gather import concatenate, take, take_or_zero
from ..spatial import Mat3, Motion, quaternion_matrix, Vec3, vec3
from ..spatial._rotation import normalize4
from ._constraint import Moment


class Anchors(NamedTuple):
    """Frames on links, in world axes; one row for each.

    - `pos`, `rot`: position and orientation.
    - `lin`, `ang`: Jacobians of velocity and angular velocity, components `(n, nv,
        *batch)`.
    - `speed`, `spin`: velocity and angular velocity.
    - `bias`, `spin_bias`: their rates while all joint accelerations are zero.
    """

    pos: Vec3
    rot: Mat3
    lin: Vec3
    ang: Vec3
    speed: Vec3
    spin: Vec3
    bias: Vec3
    spin_bias: Vec3


def anchors(sys: System, now: Moment, links: tuple[int, ...], local: Pose) -> Anchors:
    """Compute frames that are fixed to links (-1: the world).

    **Arguments:**

    - `local`: the frames in the links.
    """
    nodes = tree(sys)
    carriers = tuple(-1 if link < 0 else nodes.link_nodes[link] for link in links)
    frame = take_poses(now.kin.pose, carriers) @ take_poses(now.fixed.link, links)
    pose = frame @ local
    arm = pose.pos - take_or_zero(now.kin.origin, carriers)
    velocity = take_or_zero(now.speed.velocity, carriers)
    rate = _bias(sys, now, carriers)
    speed = velocity.at(arm)
    lin, ang = point_jacobians(nodes, now, carriers, arm)
    return Anchors(
        pos=pose.pos,
        rot=pose.rot,
        lin=lin,
        ang=ang,
        speed=speed,
        spin=velocity.ang,
        bias=rate.at(arm) + (velocity.ang ^ speed),
        spin_bias=rate.ang,
    )


def _bias(sys: System, now: Moment, carriers: tuple[int, ...]) -> Motion:
    """Return the bias accelerations of nodes, without gravity."""
    gravity = Vec3(*(sys.gravity[k][None] for k in range(3)))
    bias = now.speed.bias
    real = Motion(bias.ang, bias.lin + gravity)
    return take_or_zero(real, carriers)


def point_jacobians(
    nodes: Tree, now: Moment, carriers: tuple[int, ...], arm: Vec3
) -> tuple[Vec3, Vec3]:
    """Compute the Jacobians of velocity and angular velocity of points on nodes (-1: the
    world), components `(n, nv, *batch)`.

    **Arguments:**

    - `arm`: position of the points about the origins of the trees of their nodes.
    """
    axes = dof_axes(nodes, now.kin)
    moves = np.zeros((len(carriers), len(dof_order(nodes).nodes)))
    for row, carrier in enumerate(carriers):
        if carrier >= 0:
            moves[row] = nodes.ancestors[carrier][list(dof_order(nodes).nodes)]
    mask = moves.reshape(*moves.shape, *(1 for _ in arm.x.shape[1:]))
    mask = mask.astype(arm.x.dtype)
    by_dof = lambda v: Vec3(*(x[None] for x in v))
    by_row = lambda v: Vec3(*(x[:, None] for x in v))
    ang = by_dof(axes.ang) * mask
    lin = (by_dof(axes.lin) + (by_dof(axes.ang) ^ by_row(arm))) * mask
    return lin, ang


def select(sys: System, kind: EqualityKind) -> tuple[int, ...]:
    """Return the equality constraints of a kind."""
    return tuple(k for k, own in enumerate(sys.equalities.kinds) if own is kind)


def select_movable(sys: System, kind: EqualityKind) -> tuple[int, ...]:
    """Return the connects or welds of which at least one end can move. The others, whose
    Jacobian is zero, are not part of the problem, as in MuJoCo."""
    which, nodes = select(sys, kind), tree(sys).link_nodes
    moves = lambda link: link >= 0 and nodes[link] >= 0
    pairs = zip(which, *end_links(sys, which), strict=True)
    return tuple(k for k, one, two in pairs if moves(one) or moves(two))


def end_links(
    sys: System, which: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the links of the first and second frames of connects or welds."""
    equalities, sites = sys.equalities, sys.sites
    first, second = (
        tuple(
            sites.links[equalities.objects[k][side]]
            if equalities.at_sites[k]
            else equalities.objects[k][side]
            for k in which
        )
        for side in (0, 1)
    )
    return first, second


def end_dofs(sys: System, which: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the degrees of freedom that move one of the frames of connects or welds."""
    nodes, found = tree(sys), []
    for links in zip(*end_links(sys, which), strict=True):
        carriers = [nodes.link_nodes[link] for link in links if link >= 0]
        own = {dof for node in carriers for dof in moving_dofs(nodes, node)}
        found.append(tuple(sorted(own)))
    return found


def both_ends(
    sys: System, now: Moment, which: tuple[int, ...]
) -> tuple[Anchors, Anchors]:
    """Compute the two frames that each connect or weld holds together."""
    equalities, sites = sys.equalities, sys.sites
    count = len(equalities.names)
    at_sites = any(equalities.at_sites[k] for k in which)
    # The orientation of the second frame is that of its link.
    relative = equalities.relative_quat
    same = np.tile(np.eye(4)[0], (count, 1))
    same = same.reshape(count, 4, *(1 for _ in relative.shape[2:]))
    quats = relative, jnp.asarray(same, relative.dtype)
    found = []
    for side, links in enumerate(end_links(sys, which)):
        pos, quat = equalities.anchors[:, side], quats[side]
        index = [
            count + equalities.objects[k][side] if equalities.at_sites[k] else k
            for k in which
        ]
        if at_sites:
            pos, quat = concatenate([(pos, quat), (sites.pos, sites.quat)])
        pos, quat = take((pos, quat), index)
        rot = quaternion_matrix(normalize4(quaternions(quat)))
        found.append(anchors(sys, now, links, Pose(rot, vec3(pos))))
    return found[0], found[1]
