"""Forward kinematics: poses and velocities, from the roots of the tree to its leaves.

The file begins with static facts about a tree, the order of its degrees of freedom, and the
two directions of a recursion.
"""

import dataclasses
import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..model import JointKind, System, Tree
from ..model.arrays import accumulate, concatenate, per_row, take, take_or_zero
from ..spatial import Mat3, Motion, quaternion_matrix, safe_sqrt, Vec3
from ..spatial.rotations import axis_angle_matrix, normalize4
from ..spatial.vectors import vec3


# Facts about the tree.


@dataclasses.dataclass(frozen=True)
class Level:
    """The nodes at one depth of a tree.

    - `depth`: number of nodes between these and the root.
    - `start`, `stop`: first node, and last node plus one.
    - `num_free`: number of free joints, which come first.
    - `joint_start`, `joint_stop`: rows of the other nodes among all nodes that are not
        free.
    - `parents`: row of each node's parent in the level above; empty at the roots.
    - `num_parents`: number of nodes in the level above.
    """

    depth: int
    start: int
    stop: int
    num_free: int
    joint_start: int
    joint_stop: int
    parents: tuple[int, ...]
    num_parents: int


@ft.lru_cache(maxsize=256)
def levels(tree: Tree) -> tuple[Level, ...]:
    """List the levels of a tree, roots first."""
    out = []
    for depth, (start, stop) in enumerate(tree.levels):
        low, high = tree.levels[depth - 1] if depth else (0, 0)
        num_free = max(0, min(stop, tree.num_free) - start)
        out.append(
            Level(
                depth,
                start,
                stop,
                num_free,
                start + num_free - tree.num_free,
                stop - tree.num_free,
                tuple(tree.parents[i] - low for i in range(start, stop) if depth),
                high - low,
            )
        )
    return tuple(out)


class DofOrder(NamedTuple):
    """Degrees of freedom of the nodes.

    - `free`: entries of `qd` of the free joints, for each of the six directions.
    - `single`: entry of `qd` of each other node.
    - `order`: position of each entry of `qd` in `free` and `single`, joined.
    - `nodes`: node of each entry of `qd`.
    """

    free: tuple[tuple[int, ...], ...]
    single: tuple[int, ...]
    order: tuple[int, ...]
    nodes: tuple[int, ...]


@ft.lru_cache(maxsize=256)
def dof_order(tree: Tree) -> DofOrder:
    """Return the order of the degrees of freedom of a tree."""
    n = tree.num_free
    free = tuple(tuple(dof + k for dof in tree.dofs[:n]) for k in range(6))
    single = tree.dofs[n:]
    dofs = [dof for direction in free for dof in direction] + list(single)
    nodes = [*range(n)] * 6 + [*range(n, tree.size)]
    order = sorted(range(len(dofs)), key=dofs.__getitem__)
    return DofOrder(free, single, tuple(order), tuple(nodes[k] for k in order))


def split_dofs(tree: Tree, values) -> tuple[Vec3, Vec3, Any]:
    """Split values in the order of `qd`, `(nv, *batch)`, into linear and angular parts
    of free joints and the entries of all other nodes."""
    order = dof_order(tree)
    parts = [take(values, dofs) for dofs in order.free]
    return Vec3(*parts[:3]), Vec3(*parts[3:]), take(values, order.single)


def join_dofs(tree: Tree, lin, ang, single):
    """Return values in the order of `qd`; the inverse of `split_dofs`. Every entry may
    be a tree of arrays."""
    return take(concatenate([*lin, *ang, single]), dof_order(tree).order)


class MovingLinks(NamedTuple):
    """Links that a node carries, and the node of each."""

    links: tuple[int, ...]
    nodes: tuple[int, ...]


@ft.lru_cache(maxsize=256)
def moving_links(tree: Tree) -> MovingLinks:
    """List the links that are not fixed to the world."""
    links = tuple(link for link, node in enumerate(tree.link_nodes) if node >= 0)
    return MovingLinks(links, tuple(tree.link_nodes[link] for link in links))


@ft.lru_cache(maxsize=256)
def node_coordinates(tree: Tree, joint_kinds: tuple[JointKind, ...]) -> tuple[int, ...]:
    """Return the start index of the coordinates of each node's joint in `q`."""
    starts = [0]
    for kind in joint_kinds:
        starts.append(starts[-1] + kind.nq)
    return tuple(starts[joint] for joint in tree.joints)


@ft.lru_cache(maxsize=4096)
def moving_dofs(tree: Tree, node: int) -> tuple[int, ...]:
    """List the degrees of freedom that move a node; -1: the world."""
    if node < 0:
        return ()
    ancestors = tree.ancestors[node]
    return tuple(k for k, own in enumerate(dof_order(tree).nodes) if ancestors[own])


# Recursions.


def rows(values, start: int, stop: int):
    """Return rows `start` to `stop` of every array."""
    return jtu.tree_map(lambda x: x[start:stop], values)


def level_rows(values, level: Level):
    """Return the rows of a level, of every array with one row per node."""
    return rows(values, level.start, level.stop)


def add(one, other):
    """Add two trees of arrays; None stands for zero."""
    if other is None:
        return one
    if one is None:
        return other
    return jtu.tree_map(lambda x, y: x + y, one, other)


def descend(tree: Tree, values):
    """Compute, for each node, the sum of `values` from the root of its tree to itself.

    **Arguments:**

    - `values`: tree of arrays `(nnode, *batch)`.
    """
    out = []
    for level in levels(tree):
        own = level_rows(values, level)
        out.append(add(own, take(out[-1], level.parents)) if level.depth else own)
    return concatenate(out)


def ascend(tree: Tree, values):
    """Compute, for each node, the sum of `values` over its subtree, itself included.

    **Arguments:**

    - `values`: tree of arrays `(nnode, *batch)`.
    """
    out, carried = [], None
    for level in reversed(levels(tree)):
        out.append(add(level_rows(values, level), carried))
        carried = sum_over_children(level, out[-1])
    return concatenate(out[::-1])


def sum_over_children(level: Level, values):
    """Sum the rows of a level for each node of the level above; None at the roots."""
    if not level.depth:
        return None
    return accumulate(values, level.parents, level.num_parents)


# Forward kinematics.


class Pose(NamedTuple):
    """Rotation and position of frames."""

    rot: Mat3
    pos: Vec3

    def __matmul__(self, other: "Pose") -> "Pose":
        return Pose(self.rot @ other.rot, self.point(other.pos))

    def point(self, local: Vec3) -> Vec3:
        """Return the position of a point that is given in these frames."""
        return self.pos + (self.rot @ local)


class Frames(NamedTuple):
    """Constant frames and axes of the nodes.

    - `offset`: frame of the node's link at the reference, in the frame of the parent
        node.
    - `axis`, `anchor`: axis and anchor of the joint, in the link frame.
    - `link`: frame of every link in the frame of its node (in the world for links
        without one).
    """

    offset: Pose
    axis: Vec3
    anchor: Vec3
    link: Pose


class Kinematics(NamedTuple):
    """Poses and motion axes of the nodes, in world axes.

    - `pose`: pose in the world.
    - `arm`: position relative to the origin of the tree, which is the current position
        of its root link.
    - `origin`: origin of the tree of each node.
    - `axis`: motion subspace about the origin, for nodes that are not free.
    """

    pose: Pose
    arm: Vec3
    origin: Vec3
    axis: Motion


class Velocities(NamedTuple):
    """Motion of the nodes about the origins of their trees.

    - `velocity`: spatial velocity.
    - `bias`: spatial acceleration with zero joint accelerations, where the world
        accelerates against gravity.
    """

    velocity: Motion
    bias: Motion


def identity_pose(n: int, like) -> Pose:
    """Return `n` identity frames, with the batch axes of the array `like`."""
    one = jnp.ones((n, *(1 for _ in like.shape[1:])), like.dtype)
    zero = jnp.zeros_like(one)
    rot = Mat3(one, zero, zero, zero, one, zero, zero, zero, one)
    return Pose(rot, Vec3(zero, zero, zero))


def take_poses(poses: Pose, index: Sequence[int]) -> Pose:
    """Return the poses `index`, of which -1 is the frame of the world."""
    world = identity_pose(1, poses.pos.x)
    return take(concatenate([world, poses]), [i + 1 for i in index])


def quaternions(array):
    """Split axis 1 of `(n, 4, *batch)`."""
    return tuple(array[:, k] for k in range(4))


def frames(sys: System, tree: Tree) -> Frames:
    """Compute the constant frames of a system."""
    links, joints = sys.links, sys.joints
    rot = quaternion_matrix(normalize4(quaternions(links.quat)))
    placed = _in_nodes(tree, links.parents, Pose(rot, vec3(links.pos)))
    axis = vec3(joints.axis)
    norm = safe_sqrt(axis.dot(axis))
    norm = jnp.where(norm > 0.0, norm, 1.0)
    # The frame of a link with joints is that of its last node.
    index = [i if i in tree.fixed else -1 for i in range(sys.nlink)]
    return Frames(
        offset=take(placed, tree.links),
        axis=take(Vec3(*(x / norm for x in axis)), tree.joints),
        anchor=take(vec3(joints.anchor), tree.joints),
        link=take_poses(placed, index),
    )


def _in_nodes(tree: Tree, parents: Sequence[int], local: Pose) -> Pose:
    """Return frames of links in the frames of the nodes above them, given the frames in
    the parent links: offsets of links without joints are chained."""
    if not any(parent in tree.fixed for parent in parents):
        return local
    placed: list[Pose] = []
    for link, parent in enumerate(parents):
        own = take(local, [link])
        placed.append(placed[parent] @ own if parent in tree.fixed else own)
    return concatenate(placed)


def kinematics(sys: System, tree: Tree, fixed: Frames, q) -> Kinematics:
    """Compute poses and motion axes at coordinates `q`, shape `(nq, *batch)`."""
    placed = []
    for level, segments in zip(levels(tree), tree.segments, strict=True):
        parts = []
        for segment in segments:
            nodes, kind = segment.nodes, segment.kind
            if kind is JointKind.FREE:
                parts.append(_place_free(sys, tree, nodes, q))
                continue
            pose = take(fixed.offset, nodes) if segment.first else None
            if level.depth:
                parents = [level.parents[i - level.start] for i in nodes]
                above = take(placed[-1][0], parents)
                pose = above if pose is None else above @ pose
            assert pose is not None, "the first node of a root link has an offset"
            parts.append(
                move_joint(sys, tree, nodes, kind, segment.axis, fixed, q, pose)
            )
        placed.append(concatenate(parts))
    pose, axis, anchor = concatenate(placed)
    origin = take(pose.pos, tree.roots)
    single = range(tree.num_free, tree.size)
    arm = take(anchor - origin, single)
    return Kinematics(
        pose, pose.pos - origin, origin, _motion_axes(tree, take(axis, single), arm)
    )


def _coordinates(sys: System, tree: Tree, nodes: Sequence[int], q, count: int):
    """Return the coordinates of the joints of nodes: `count` arrays with one entry per
    node."""
    starts = node_coordinates(tree, sys.joints.kinds)
    return [take(q, [starts[i] + k for i in nodes]) for k in range(count)]


def _place_free(sys: System, tree: Tree, nodes: Sequence[int], q):
    """Return frames of free joints, and an unused axis and anchor."""
    x, y, z, *quat = _coordinates(sys, tree, nodes, q, 7)
    rot, pos = quaternion_matrix(normalize4(quat)), Vec3(x, y, z)
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
    """Compute the frames after joints of one kind, their axes and their anchors.

    **Arguments:**

    - `axis_number`: 0, 1, 2 for the axes of a ball, else 0.
    - `pose`: frames before the joints.
    """
    axis, anchor = take((fixed.axis, fixed.anchor), nodes)
    if kind is JointKind.SPHERICAL:
        point = pose.point(anchor)
        if axis_number > 0:
            return pose, pose.rot.columns[axis_number], point
        quat = _coordinates(sys, tree, nodes, q, 4)
        rot = pose.rot @ quaternion_matrix(normalize4(quat))
        return Pose(rot, point - (rot @ anchor)), rot.columns[0], point
    (position,) = _coordinates(sys, tree, nodes, q - sys.joints.ref, 1)
    if kind is JointKind.PRISMATIC:
        axis = pose.rot @ axis
        return Pose(pose.rot, pose.pos + (axis * position)), axis, pose.pos
    point = pose.point(anchor)
    rot = pose.rot @ axis_angle_matrix(axis, position)
    return Pose(rot, point - (rot @ anchor)), pose.rot @ axis, point


def _motion_axes(tree: Tree, axis: Vec3, arm: Vec3) -> Motion:
    """Return the motion subspaces of hinges, slides and the axes of balls."""
    kinds = tree.kinds[tree.num_free :]
    turns = per_row([kind is not JointKind.PRISMATIC for kind in kinds], axis.x)
    return Motion(axis * turns, (arm.cross(axis) * turns) + (axis * (1.0 - turns)))


def joint_motion(tree: Tree, kin: Kinematics, qd) -> Motion:
    """Compute the velocity of each node relative to its parent, `(nnode, *batch)`."""
    lin, ang, single = split_dofs(tree, qd)
    rot = take(kin.pose.rot, range(tree.num_free))
    return concatenate([Motion(rot @ ang, lin), kin.axis * single])


def velocities(sys: System, tree: Tree, kin: Kinematics, qd) -> Velocities:
    """Compute velocities and bias accelerations of the nodes."""
    own = joint_motion(tree, kin, qd)
    velocity = descend(tree, own)
    return Velocities(velocity, descend(tree, _bias(sys, tree, velocity, own)))


def _bias(sys: System, tree: Tree, velocity: Motion, own: Motion) -> Motion:
    """Compute the bias acceleration of each node relative to its parent."""
    n = tree.num_free
    base = take_or_zero(velocity, tree.base[n:])
    rate = base.cross(take(own, range(n, tree.size)))
    free = take(own, range(n))
    zero = Vec3(*(jnp.zeros_like(x) for x in free.ang))
    rate = concatenate([Motion(zero, free.lin.cross(free.ang)), rate])
    gravity = Vec3(*(sys.gravity[k][None] for k in range(3)))
    root = per_row([parent < 0 for parent in tree.parents], own.lin.x)
    return Motion(rate.ang, rate.lin - (gravity * root))


def link_poses(tree: Tree, fixed: Frames, kin: Kinematics) -> Pose:
    """Compute the frames of all links in the world."""
    return take_poses(kin.pose, tree.link_nodes) @ fixed.link


def link_motions(tree: Tree, kin: Kinematics, qd) -> tuple[Motion, Vec3]:
    """Compute velocities of all links about the origins of their trees, and these
    origins; zero for links that are fixed to the world."""
    velocity = descend(tree, joint_motion(tree, kin, qd))
    return take_or_zero((velocity, kin.origin), tree.link_nodes)


# Axes of the degrees of freedom.


def dof_axes(tree: Tree, kin: Kinematics) -> Motion:
    """Return the columns of the Jacobian about the origins of the trees, `(nv,
    *batch)`."""
    rot = take(kin.pose.rot, range(tree.num_free))
    one, zero = jnp.ones_like(rot.xx), jnp.zeros_like(rot.xx)
    none = Vec3(zero, zero, zero)
    units = Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one)
    lin = [Motion(none, unit) for unit in units]
    ang = [Motion(column, none) for column in rot.columns]
    return join_dofs(tree, lin, ang, kin.axis)
