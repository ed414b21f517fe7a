"""Tree of degrees of freedom, level by level, over which recursions run.

A *node* is a hinge, a slide, one of the three axes of a ball joint, or a whole free
joint. Nodes of equal depth form a level and are processed as one array.
"""

import dataclasses
import functools as ft
import itertools

import numpy as np

from ._system import System
from .kinds import JointKind


Index = tuple[int, ...]

_KINDS = (JointKind.FREE, JointKind.REVOLUTE, JointKind.PRISMATIC, JointKind.SPHERICAL)


@dataclasses.dataclass(frozen=True)
class Segment:
    """Nodes `start` to `stop`: same kind of joint, same position in their link."""

    start: int
    stop: int
    kind: JointKind
    axis: int
    first: bool

    @property
    def nodes(self) -> range:
        """The nodes."""
        return range(self.start, self.stop)


@dataclasses.dataclass(frozen=True)
class Tree:
    """Static facts about the nodes, which are sorted by depth, free joints first.

    **Arguments:**

    - `num_free`: number of nodes that are free joints (they come first, at depth 0).
    - `levels`: start and stop of each level.
    - `segments`: ranges of nodes of each level that are processed together.
    - `parents`: parent node, or -1 for the world.
    - `base`: node that carries the joint of a node: its parent, or for the second and
        third axis of a ball joint the parent of the first.
    - `links`, `joints`: link and joint of each node.
    - `dofs`: index of each node in `qd`; for free joints, that of the first of six
        entries.
    - `first`: true if a node is the first of its link.
    - `kinds`: kind of the joint. `axes`: 0, 1, 2 for the axes of a ball joint, else 0.
    - `link_nodes`: node that carries each link (-1: fixed to the world).
    - `roots`: last node of the root link of the tree of each node.
    - `fixed`: links without joints, parents first.
    """

    num_free: int
    levels: tuple[tuple[int, int], ...]
    segments: tuple[tuple[Segment, ...], ...]
    parents: Index
    base: Index
    links: Index
    joints: Index
    dofs: Index
    first: tuple[bool, ...]
    kinds: tuple[JointKind, ...]
    axes: Index
    link_nodes: Index
    roots: Index
    fixed: Index

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.parents)

    @ft.cached_property
    def ancestors(self) -> np.ndarray:
        """`[i, j]`: node `i` moves when node `j` does (its own motion included)."""
        out = np.zeros((self.size, self.size), bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                out[i] = out[parent]
            out[i, i] = True
        return out


def tree(sys: System) -> Tree:
    """Return the tree of a system; the same object for systems of the same
    structure."""
    joints = sys.joints
    return _tree(sys.links.parents, joints.kinds, joints.links, joints.v_starts)


@ft.lru_cache(maxsize=256)
def _tree(parents: Index, kinds, joint_links: Index, v_starts: Index) -> Tree:
    # First in the order of links, then sorted by depth.
    nodes, link_nodes, root_links = [], [], []
    for link, parent in enumerate(parents):
        above = -1 if parent < 0 else link_nodes[parent]
        own = [j for j, owner in enumerate(joint_links) if owner == link]
        last = above
        for k, joint in enumerate(own):
            base = last
            for axis in range(3 if kinds[joint] is JointKind.SPHERICAL else 1):
                depth = 0 if last < 0 else nodes[last]["depth"] + 1
                dof = v_starts[joint] + axis
                root = link if above < 0 else root_links[above]
                nodes.append(
                    dict(parent=last, base=base, depth=depth, link=link, joint=joint)
                    | dict(dof=dof, axis=axis, first=k == 0 and axis == 0)
                )
                root_links.append(root)
                last = len(nodes) - 1
        link_nodes.append(last)
    kind = lambda i: kinds[nodes[i]["joint"]]
    alike = lambda i: (_KINDS.index(kind(i)), nodes[i]["axis"], not nodes[i]["first"])
    order = sorted(range(len(nodes)), key=lambda i: (nodes[i]["depth"], alike(i), i))
    rank = {old: new for new, old in enumerate(order)} | {-1: -1}
    column = lambda name: tuple(nodes[i][name] for i in order)
    depths = column("depth")
    levels = tuple(
        (depths.index(d), depths.index(d) + depths.count(d))
        for d in sorted(set(depths))
    )
    segments = []
    for start, stop in levels:
        runs = itertools.groupby(range(start, stop), lambda i: alike(order[i]))
        runs = [list(run) for _, run in runs]
        segments.append(
            tuple(_segment(run, nodes[order[run[0]]], kinds) for run in runs)
        )
    if not levels:
        # Without joints, recursions run over one level without nodes.
        levels = ((0, 0),)
        segments = [(Segment(0, 0, JointKind.FREE, 0, True),)]
    return Tree(
        num_free=sum(kind(i) is JointKind.FREE for i in order),
        levels=levels,
        segments=tuple(segments),
        parents=tuple(rank[nodes[i]["parent"]] for i in order),
        base=tuple(rank[nodes[i]["base"]] for i in order),
        links=column("link"),
        joints=column("joint"),
        dofs=column("dof"),
        first=column("first"),
        kinds=tuple(kind(i) for i in order),
        axes=column("axis"),
        link_nodes=tuple(rank[i] for i in link_nodes),
        roots=tuple(rank[link_nodes[root_links[i]]] for i in order),
        fixed=tuple(i for i in range(len(parents)) if i not in joint_links),
    )


def _segment(run: list[int], node: dict, kinds) -> Segment:
    kind = kinds[node["joint"]]
    return Segment(run[0], run[-1] + 1, kind, node["axis"], node["first"])
