"""Which shapes can ever touch: a static fact of a `System`."""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from ._colliders import measured_kinds
from ._kinds import GeomKind
from ._system import System


# MuJoCo's numbers of the two shapes that never touch each other or themselves.
_FLAT = (0, 1)


class CollisionRules(NamedTuple):
    """The integers that decide which shapes can touch, in MuJoCo's meaning.

    **Arguments:**

    - `parents`: parent of each link, -1 for the world.
    - `jointed`: whether each link has a joint.
    - `mocap`: whether each link is moved from outside.
    - `kinds`, `links`, `contype`, `conaffinity`: one entry per shape.
    - `explicit`: pairs of shapes that are named one by one.
    - `excludes`: pairs of links whose shapes never touch.
    - `filter_parent`: whether a link never touches the link that it hangs on.
    """

    parents: tuple[int, ...]
    jointed: tuple[bool, ...]
    mocap: tuple[bool, ...]
    kinds: tuple[int, ...]
    links: tuple[int, ...]
    contype: tuple[int, ...]
    conaffinity: tuple[int, ...]
    explicit: tuple[tuple[int, int], ...]
    excludes: tuple[tuple[int, int], ...]
    filter_parent: bool


def candidate_pairs(sys: System) -> tuple[tuple[int, int, int], ...]:
    """The pairs of shapes that can touch, chosen as MuJoCo chooses them.

    Two shapes can touch unless no joint lies between them, or one hangs on the other
    (with `sys.filter_parent`; hanging on the world does not count), or their links are
    excluded, or their `contype` and `conaffinity` have no bit in common. Pairs in
    `sys.pairs` are free of the last three rules and replace the pair of the same two
    shapes.

    **Arguments:**

    - `sys`: only its structure is read, so this works under any transformation.

    **Returns:** `(shape, shape, index in sys.pairs or -1)` per pair, sorted. The shape
    of the smaller `GeomKind` comes first, of equal kinds the one of the smaller index.
    """
    jointed = set(sys.joints.links)
    geoms = sys.geoms
    return select_pairs(
        CollisionRules(
            parents=sys.links.parents,
            jointed=tuple(link in jointed for link in range(sys.nlink)),
            mocap=sys.links.mocap,
            kinds=tuple(kind.value for kind in geoms.kinds),
            links=geoms.links,
            contype=geoms.contype,
            conaffinity=geoms.conaffinity,
            explicit=sys.pairs.geoms,
            excludes=sys.excludes,
            filter_parent=sys.filter_parent,
        )
    )


def is_measured(sys: System, one: int, two: int) -> bool:
    """Whether the distance of two shapes is known: meshes need a hull."""
    geoms, hulls = sys.geoms, sys.meshes.hulls
    kinds = sorted((geoms.kinds[one], geoms.kinds[two]), key=lambda kind: kind.value)
    meshes = (geoms.data[k] for k in (one, two) if geoms.kinds[k] is GeomKind.MESH)
    spans = (hulls.span(mesh) for mesh in meshes)
    return tuple(kinds) in measured_kinds() and all(a < b for a, b in spans)


@functools.lru_cache(maxsize=256)
def select_pairs(rules: CollisionRules) -> tuple[tuple[int, int, int], ...]:
    """As `candidate_pairs`, from the bare integers."""
    own = tuple(map(max, rules.jointed, rules.mocap))
    welds = weld_links(rules.parents, own)
    still = {-1, *(link for link, mark in enumerate(rules.mocap) if mark)}
    weld_parents = tuple(
        -1 if weld == -1 else _at(welds, rules.parents[weld]) for weld in welds
    )
    chosen = [
        (*_ordered(a, b, rules.kinds), index)
        for index, (a, b) in enumerate(rules.explicit)
        if _can_move(still, *(_at(welds, rules.links[geom]) for geom in (a, b)))
        and not (rules.kinds[a] in _FLAT and rules.kinds[b] in _FLAT)
    ]
    chosen += _unnamed_pairs(rules, welds, weld_parents, still)
    return tuple(sorted(chosen))


def _unnamed_pairs(
    rules: CollisionRules,
    welds: tuple[int, ...],
    weld_parents: tuple[int, ...],
    still: set[int],
) -> list[tuple[int, int, int]]:
    """The pairs that are not named one by one.

    **Arguments:**

    - `welds`, `weld_parents`: of each link, see `weld_links`.
    - `still`: links without a joint.
    """
    kinds, links = (np.asarray(x, int) for x in (rules.kinds, rules.links))
    contype, conaffinity = (
        np.asarray(x, int) for x in (rules.contype, rules.conaffinity)
    )
    # The world is the last entry, which is also entry -1.
    weld, parent = (np.asarray([*x, -1])[links] for x in (welds, weld_parents))
    fixed, flat = np.isin(weld, list(still)), np.isin(kinds, _FLAT)
    either = lambda x: x | x.T
    both = lambda x: x[:, None] & x
    allowed = either((contype[:, None] & conaffinity) != 0)
    allowed &= (weld[:, None] != weld) & ~both(fixed) & ~both(flat)
    if rules.filter_parent:
        allowed &= ~(either(weld[:, None] == parent) & both(weld != -1))
    if rules.excludes:
        excluded = np.zeros((len(welds) + 1,) * 2, bool)
        excluded[tuple(np.transpose(rules.excludes))] = True
        allowed &= ~either(excluded)[links[:, None], links]
    if rules.explicit:
        named = np.zeros(allowed.shape, bool)
        named[tuple(np.transpose(rules.explicit))] = True
        allowed &= ~either(named)
    first, second = np.nonzero(np.triu(allowed, 1))
    turned = kinds[first] > kinds[second]
    first, second = np.where(turned, (second, first), (first, second))
    return list(zip(first.tolist(), second.tolist(), itertools.repeat(-1)))


def _can_move(still: set[int], weld_a: int, weld_b: int) -> bool:
    """Whether a joint lies between two links; links moved from outside have none."""
    return weld_a != weld_b and not (weld_a in still and weld_b in still)


def weld_links(parents: tuple[int, ...], jointed: tuple[bool, ...]) -> tuple[int, ...]:
    """The link, or -1 for the world, that each link is rigidly attached to.

    **Arguments:**

    - `parents`: parent of each link, -1 for the world.
    - `jointed`: whether each link has a joint, or is moved from outside.

    **Returns:** per link, itself if it has one or is, else what its parent is attached
    to.
    """
    welds: list[int] = []
    for link, parent in enumerate(parents):
        welds.append(link if jointed[link] else _at(welds, parent))
    return tuple(welds)


def _at(values, link: int) -> int:
    return -1 if link == -1 else values[link]


def _ordered(a: int, b: int, kinds: tuple[int, ...]) -> tuple[int, int]:
    return (a, b) if (kinds[a], a) <= (kinds[b], b) else (b, a)
