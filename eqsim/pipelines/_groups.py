"""Which links are treated together: a static fact of a robot."""

import dataclasses
import functools as ft
from typing import Any

from ..model import JointKind, Tree
from ._bodies import layout


@dataclasses.dataclass(frozen=True)
class Axes:
    """One motion axis of each link of a group: the same kind of joint in all."""

    nodes: tuple[int, ...]
    kind: JointKind
    axis: int


@dataclasses.dataclass(frozen=True)
class Group:
    """Links with the same kinds of joints.

    - `bodies`, `parents`: the two bodies of each block; -1 is the world.
    - `axes`: the motion axes, from the parent on.
    - `shares`: in how many blocks of the same pass the two bodies take part.
    """

    bodies: tuple[int, ...]
    parents: tuple[int, ...]
    axes: tuple[Axes, ...]
    shares: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def size(self) -> int:
        return len(self.bodies)


@ft.lru_cache(maxsize=256)
def groups(tree: Tree, in_order: bool) -> tuple[tuple[Group, ...], ...]:
    """The passes over all joints, and the groups of each: one pass over all at once, or
    one for each depth of the tree of links, from the roots on."""
    index, chains, depth = layout(tree).index, {}, {}
    for body, node in enumerate(layout(tree).nodes):
        chain = [node]
        while not tree.first[chain[0]]:
            chain.insert(0, tree.parents[chain[0]])
        parent = index[tree.parents[chain[0]]]
        depth[body] = 0 if parent < 0 else depth[parent] + 1
        if tree.kinds[node] is not JointKind.FREE:
            chains[body] = (parent, chain)
    levels = sorted({depth[body] for body in chains}) if in_order else [None]
    return tuple(
        _level({b: c for b, c in chains.items() if level in (None, depth[b])}, tree)
        for level in levels
    )


def _level(chains: dict, tree: Tree) -> tuple[Group, ...]:
    """The groups of blocks that act at once."""
    parts = [body for body in chains] + [parent for parent, _ in chains.values()]
    alike: dict[Any, list[int]] = {}
    for body, (_, chain) in chains.items():
        kinds = tuple((tree.kinds[node], tree.axes[node]) for node in chain)
        alike.setdefault(kinds, []).append(body)
    found = []
    for kinds, bodies in alike.items():
        parents = tuple(chains[body][0] for body in bodies)
        axes = [
            Axes(tuple(chains[body][1][k] for body in bodies), kind, axis)
            for k, (kind, axis) in enumerate(kinds)
        ]
        count = lambda ends: tuple(1 if b < 0 else parts.count(b) for b in ends)
        shares = count(bodies), count(parents)
        found.append(Group(tuple(bodies), parents, tuple(axes), shares))
    return tuple(found)


def group_dofs(tree: Tree, group: Group) -> list[int]:
    """The degrees of freedom of a group, axis by axis."""
    return [tree.dofs[node] for axes in group.axes for node in axes.nodes]
