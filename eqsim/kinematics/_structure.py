"""Static facts about a tree, and the order of the degrees of freedom."""

import dataclasses
import functools as ft
from typing import Any, NamedTuple

from ..model import JointKind, Tree
from ..model._gather import concatenate, take
from ..spatial import Vec3


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
