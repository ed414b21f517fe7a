"""Forward kinematics: where the links are, and how they can move."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ..model import concatenate, JointKind, System, take, Tree
from ..spatial import (
    axis_angle_matrix,
    Mat3,
    Motion,
    normalize4,
    quaternion_matrix,
    safe_sqrt,
    Vec3,
    vec3,
)
from ._recursion import descend


class Pose(NamedTuple):
    """Rotation and position of frames."""

    rot: Mat3
    pos: Vec3

    def __matmul__(self, other: "Pose") -> "Pose":
        return Pose(self.rot @ other.rot, self.pos + (self.rot @ other.pos))


class Frames(NamedTuple):
    """What kinematics needs of a `System`, per node; does not depend on the state.

    - `offset`: frame of the node's link, at reference, in the frame of the parent node.
    - `axis`, `anchor`: of the joint, in the link frame.
    - `link`: frame of every link in the frame of the node that carries it (in the world
        if none does).
    """

    offset: Pose
    axis: Vec3
    anchor: Vec3
    link: Pose


class Kinematics(NamedTuple):
    """Poses and motion axes of the nodes, in world axes.

    - `pose`: in the world.
    - `arm`: position relative to the origin of the tree, which is the current position
        of its root link.
    - `origin`: of the tree of each node.
    - `axis`: motion subspace about the origin, of the nodes that are not free.
    """

    pose: Pose
    arm: Vec3
    origin: Vec3
    axis: Motion


def identity_pose(n: int, like) -> Pose:
    """`n` identity frames, with the batch axes of the array `like`."""
    one = jnp.ones((n, *(1 for _ in like.shape[1:])), like.dtype)
    zero = jnp.zeros_like(one)
    rot = Mat3(one, zero, zero, zero, one, zero, zero, zero, one)
    return Pose(rot, Vec3(zero, zero, zero))


def quaternions(array):
    """Splits axis 1 of `(n, 4, *batch)`."""
    return tuple(array[:, k] for k in range(4))


def frames(sys: System, tree: Tree) -> Frames:
    """The state-independent part of kinematics; with matrices, which compile fast."""
    links, joints = sys.links, sys.joints
    local = _matrices(links.quat, links.pos)
    # In the frame of the node above: links without joints chain their offsets.
    chained, n = local, len(links.parents)
    depth = lambda link: 0 if link not in tree.fixed else 1 + depth(links.parents[link])
    for level in range(1, 1 + max((depth(p) for p in links.parents), default=0)):
        here = [i for i, p in enumerate(links.parents) if depth(p) == level]
        above = chained[np.array([links.parents[i] for i in here])]
        joined = jnp.concatenate([chained, _compose(above, local[np.array(here)])])
        place = {i: n + k for k, i in enumerate(here)}
        chained = joined[np.array([place.get(i, i) for i in range(n)])]
    still = jnp.eye(3, 4, dtype=local.dtype)
    still = still.reshape(1, 3, 4, *(1 for _ in local.shape[3:]))
    still = jnp.broadcast_to(still, (1, *chained.shape[1:]))
    relative = jnp.concatenate([chained, still])
    relative = relative[np.array([i if i in tree.fixed else n for i in range(n)])]
    axis = joints.axis
    norm = safe_sqrt(jnp.sum(axis * axis, axis=1, keepdims=True))
    axis = axis / jnp.where(norm > 0.0, norm, 1.0)
    return Frames(
        offset=_pose(chained[np.array(tree.links)]),
        axis=vec3(axis[np.array(tree.joints)]),
        anchor=vec3(joints.anchor[np.array(tree.joints)]),
        link=_pose(relative),
    )


def _matrices(quat, pos):
    """Frames as `(n, 3, 4, *batch)`: rotation and, in the last column, position."""
    rot = jnp.stack(quaternion_matrix(normalize4(quaternions(quat))), axis=1)
    rot = rot.reshape(rot.shape[0], 3, 3, *rot.shape[2:])
    batch = jnp.broadcast_shapes(rot.shape[3:], pos.shape[2:])
    rot = jnp.broadcast_to(rot, (*rot.shape[:3], *batch))
    pos = jnp.broadcast_to(pos, (*pos.shape[:2], *batch))
    return jnp.concatenate([rot, pos[:, :, None]], axis=2)


def _compose(a, b):
    product = jnp.sum(a[:, :, :3, None] * b[:, None], axis=2)
    return jnp.concatenate([product[:, :, :3], product[:, :, 3:] + a[:, :, 3:]], axis=2)


def _pose(matrices) -> Pose:
    rot = Mat3(*(matrices[:, i, j] for i in range(3) for j in range(3)))
    return Pose(rot, Vec3(*(matrices[:, i, 3] for i in range(3))))


def kinematics(sys: System, tree: Tree, fixed: Frames, q) -> Kinematics:
    """Poses and motion axes at coordinates `q`, shape `(nq, *batch)`."""
    levels = []
    for depth, segments in enumerate(tree.segments):
        parts = []
        for segment in segments:
            if segment.kind is JointKind.FREE:
                parts.append(_free(sys, tree, segment, q))
                continue
            pose = None
            if depth > 0:
                low = tree.levels[depth - 1][0]
                above = [tree.parents[i] - low for i in segment.nodes]
                pose = take(levels[-1][0], above)
            if segment.first:
                offset = take(fixed.offset, segment.nodes)
                pose = offset if pose is None else pose @ offset
            which = segment.nodes, segment.kind, segment.axis
            parts.append(move_joint(sys, tree, *which, fixed, q, pose))
        levels.append(concatenate(parts))
    pose, axis, anchor = concatenate(levels)
    origin = take(pose.pos, tree.roots)
    moving = range(tree.num_free, tree.size)
    arm = take(anchor, moving) - take(origin, moving)
    return Kinematics(
        pose, pose.pos - origin, origin, _subspace(tree, take(axis, moving), arm)
    )


def _free(sys, tree, segment, q):
    starts = [sys.joints.q_starts[tree.joints[i]] for i in segment.nodes]
    column = lambda k: take(q, [start + k for start in starts])
    rot = quaternion_matrix(normalize4([column(3), column(4), column(5), column(6)]))
    pos = Vec3(column(0), column(1), column(2))
    return Pose(rot, pos), rot.columns[0], pos


def move_joint(
    sys: System,
    tree: Tree,
    nodes: Sequence[int],
    kind: JointKind,
    axis_number: int,
    fixed: Frames,
    q,
    pose: Pose,
):
    """Frames behind joints of one kind, their axes and anchors; `pose` is before them.

    **Arguments:**

    - `axis_number`: 0, 1, 2 for the axes of a ball, else 0.
    """
    axis, anchor = take((fixed.axis, fixed.anchor), nodes)
    starts = [sys.joints.q_starts[tree.joints[i]] for i in nodes]
    if kind is JointKind.PRISMATIC:
        axis = pose.rot @ axis
        travel = take(q, starts) - take(sys.joints.ref, starts)
        return Pose(pose.rot, pose.pos + (axis * travel)), axis, pose.pos
    point = pose.pos + (pose.rot @ anchor)
    if kind is JointKind.REVOLUTE:
        angle = take(q, starts) - take(sys.joints.ref, starts)
        rot = pose.rot @ axis_angle_matrix(axis, angle)
        axis = pose.rot @ axis
    elif axis_number == 0:
        quat = [take(q, [start + k for start in starts]) for k in range(4)]
        rot = pose.rot @ quaternion_matrix(normalize4(quat))
        axis = rot.columns[0]
    else:
        return pose, pose.rot.columns[axis_number], point
    return Pose(rot, point - (rot @ anchor)), axis, point


def _subspace(tree: Tree, axis: Vec3, arm: Vec3) -> Motion:
    kinds = tree.kinds[tree.num_free :]
    turns = np.array([kind is not JointKind.PRISMATIC for kind in kinds])
    if turns.all():
        return Motion(axis, arm ^ axis)
    turns = turns.astype(axis.x.dtype).reshape(-1, *(1 for _ in axis.x.shape[1:]))
    return Motion(axis * turns, ((arm ^ axis) * turns) + (axis * (1.0 - turns)))


class Velocities(NamedTuple):
    """Velocity of each node, and its acceleration while all joint accelerations are
    zero and the world accelerates against gravity."""

    velocity: Motion
    bias: Motion


def joint_motion(tree: Tree, kin: Kinematics, qd) -> Motion:
    """What each node adds to the velocity of its parent; `(nnode, *batch)`."""
    n = tree.num_free
    column = lambda k: take(qd, [dof + k for dof in tree.dofs[:n]])
    ang = take(kin.pose.rot, range(n)) @ Vec3(column(3), column(4), column(5))
    free = Motion(ang, Vec3(column(0), column(1), column(2)))
    return concatenate([free, kin.axis * take(qd, tree.dofs[n:])])


def velocities(sys: System, tree: Tree, kin: Kinematics, qd) -> Velocities:
    """Velocities and bias accelerations of the nodes."""
    own = joint_motion(tree, kin, qd)
    velocity = descend(tree, own)
    padded = concatenate(
        [jtu.tree_map(lambda x: jnp.zeros_like(x[:1]), velocity), velocity]
    )
    base = take(padded, [i + 1 for i in tree.base])
    return Velocities(velocity, descend(tree, _rates(sys, tree, base, own)))


def _rates(sys: System, tree: Tree, base: Motion, own: Motion) -> Motion:
    """What each node adds to the bias acceleration of its parent."""
    n = tree.num_free
    rate = take(base, range(n, tree.size)).cross(take(own, range(n, tree.size)))
    free = take(own, range(n))
    zero = Vec3(*(jnp.zeros_like(x) for x in free.ang))
    rate = concatenate([Motion(zero, free.lin ^ free.ang), rate])
    gravity = Vec3(*(sys.gravity[k][None] for k in range(3)))
    root = np.array([parent < 0 for parent in tree.parents], own.lin.x.dtype)
    root = root.reshape(-1, *(1 for _ in own.lin.x.shape[1:]))
    return Motion(rate.ang, rate.lin - (gravity * root))


def link_poses(tree: Tree, fixed: Frames, kin: Kinematics) -> Pose:
    """Frames of all links in the world."""
    world = identity_pose(1, kin.pose.pos.x)
    carrier = concatenate([world, kin.pose])
    return take(carrier, [node + 1 for node in tree.link_nodes]) @ fixed.link


def link_motions(tree: Tree, kin: Kinematics, qd) -> tuple[Motion, Vec3]:
    """Velocities of all links about the origins of their trees, and these origins."""
    velocity = descend(tree, joint_motion(tree, kin, qd))
    # Row 0 is the world, on which links without joints stand.
    zero = jnp.zeros_like(velocity.ang.x[:1])
    still = Vec3(zero, zero, zero)
    carrier = [node + 1 for node in tree.link_nodes]
    moving = take(concatenate([Motion(still, still), velocity]), carrier)
    return moving, take(concatenate([still, kin.origin]), carrier)
