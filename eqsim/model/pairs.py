"""Pairs of shapes: the registry of colliders, one for each pair of kinds that can touch, and
candidate pairs, shapes that can ever touch, a static property of a `System`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ._system import System
from .distance_fields import AbstractDistanceField
from .kinds import AnyKind, GeomKind, kind_order


# Colliders.


@dataclasses.dataclass(frozen=True)
class Collider:
    """A collision function for two kinds of shapes, and its properties.

    **Arguments:**

    - `find`: collision function. It takes the first and the second shapes of all pairs
        as two batches of shapes (`eqsim.collision.Shape`), `(npair, *batch)`, and
        returns a list of `num_points` points (`eqsim.collision.Point`). It may only
        index, reduce and reshape leading axes.
    - `num_points`: largest number of contact points of one pair. None if the first kind
        is a height field; the number is then `HeightFields.capacity`, and `find` takes
        two more arguments, `eqsim.collision.Reach` and the capacity, and returns
        `eqsim.collision.ContactPoints`.
    - `one_by_one`: true to visit pairs in a loop that skips pairs farther apart than
        their margin. Useful if `find` is long: it is compiled once, and runs only for
        close pairs. `find` then takes a third argument, `(1, *batch)`: the distance
        beyond which points are not needed.
    - `measures`: true if the distance between the shapes is exact at all distances,
        which distance sensors require.
    - `nearest`: function that returns a list with one point, whose distance is the
        distance between the shapes; called with three arguments. None: the valid point
        of `find` with the smallest distance is used.
    """

    find: Callable
    num_points: int | None
    one_by_one: bool = False
    measures: bool = True
    nearest: Callable | None = None

    @property
    def has_reach(self) -> bool:
        """True if points are computed only within a margin."""
        return self.one_by_one or self.num_points is None


_Family = AnyKind | type[AbstractDistanceField]
_REGISTRY: dict[tuple[AnyKind, AnyKind], Collider] = {}
_OF_FIELDS: dict[tuple[_Family, _Family], Callable[[AnyKind, AnyKind], Collider]] = {}
_USED: set[tuple[_Family, _Family]] = set()


def register_collider(first: AnyKind, second: AnyKind, collider: Collider) -> None:
    """Register the collider of two kinds of shapes.

    **Arguments:**

    - `first`, `second`: kinds in the order of `GeomKind`, followed by kinds of
        `register_shape`; `find` takes its shapes in this order.
    - `collider`: the collider; it replaces an existing one.

    **Raises:** `ValueError` if the order is wrong; `RuntimeError` if the existing
    collider has been used, because compiled programs would keep it.
    """
    if first.value > second.value:
        raise ValueError(
            f"The kinds {first.name} and {second.name} must be in the order of "
            "GeomKind, with registered shapes last. Swap them."
        )
    if _classes(first, second) in _USED:
        raise RuntimeError(
            f"The collider of {first.name} and {second.name} has been used by a robot. "
            "Register yours before the first robot with such shapes is simulated."
        )
    _REGISTRY[first, second] = collider


def register_field_collider(
    first: GeomKind | None, make: Callable[[AnyKind, AnyKind], Collider]
) -> None:
    """Register how a kind of shapes touches distance fields.

    **Arguments:**

    - `first`: the kind; None: distance fields.
    - `make`: function of two kinds that returns their collider.
    """
    own = AbstractDistanceField if first is None else first
    _OF_FIELDS[own, AbstractDistanceField] = make


def _families(first: AnyKind, second: AnyKind) -> tuple[_Family, _Family]:
    field = AbstractDistanceField
    one, two = (field if isinstance(k, field) else k for k in (first, second))
    return one, two


def _classes(first: AnyKind, second: AnyKind) -> tuple[_Family, _Family]:
    """Return two kinds, of distance fields their classes."""
    field = AbstractDistanceField
    one, two = (type(k) if isinstance(k, field) else k for k in (first, second))
    return one, two


def has_collider(first: AnyKind, second: AnyKind) -> bool:
    """Test if two kinds of shapes, in the order of `GeomKind`, can touch."""
    return (first, second) in _REGISTRY or _families(first, second) in _OF_FIELDS


def collider_of(first: AnyKind, second: AnyKind) -> Collider:
    """Return the collider of two kinds of shapes, in the order of `GeomKind`."""
    if not has_collider(first, second):
        raise ValueError(
            f"Shapes of the kinds {first.name} and {second.name} can touch, but have no "
            "collider. Register one with `eqsim.model.register_collider`, or set contype "
            "and conaffinity so that they do not touch."
        )
    _USED.add(_classes(first, second))
    if (first, second) in _REGISTRY:
        return _REGISTRY[first, second]
    return _field_collider(_OF_FIELDS[_families(first, second)], first, second)


@functools.lru_cache(maxsize=256)
def _field_collider(make: Callable, first: AnyKind, second: AnyKind) -> Collider:
    return make(first, second)


def touching_kinds() -> tuple[tuple[GeomKind, GeomKind], ...]:
    """Return all pairs of built-in kinds that can touch, in the order of `GeomKind`, without
    distance fields."""
    return tuple(
        (one, two)
        for one, two in _sorted_pairs()
        if isinstance(one, GeomKind) and isinstance(two, GeomKind)
    )


def touching_values() -> frozenset[tuple[int, int]]:
    """Return the values of all kinds that can touch."""
    pairs = [*_REGISTRY, *_OF_FIELDS]
    return frozenset((one.value, two.value) for one, two in pairs)


def _sorted_pairs() -> list[tuple[AnyKind, AnyKind]]:
    return sorted(_REGISTRY, key=lambda pair: tuple(map(kind_order, pair)))


def measured_kinds() -> tuple[tuple[AnyKind, AnyKind], ...]:
    """Return all pairs of kinds whose distance is exact, in the order of `GeomKind`."""
    return tuple(pair for pair in _sorted_pairs() if _REGISTRY[pair].measures)


# Candidate pairs.


# MuJoCo's kinds (plane, height field) of which two shapes never collide with each
# other.
_FLAT = (0, 1)


class CollisionRules(NamedTuple):
    """The integers that determine which shapes can touch, as in MuJoCo.

    **Arguments:**

    - `parents`: parent of each link, -1 for the world.
    - `jointed`: true for links with a joint.
    - `mocap`: true for mocap links.
    - `kinds`, `links`, `contype`, `conaffinity`: one entry per shape.
    - `explicit`: explicit pairs of shapes.
    - `excludes`: pairs of links whose shapes never touch.
    - `filter_parent`: true if a link never touches its parent.
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


MOST_PAIRS = 2**25
"""Largest number of candidate pairs of a robot."""
# Pairs that are tested together.
_BLOCK = 2**20


def candidate_pairs(sys: System) -> tuple[tuple[int, int, int], ...]:
    """Return the pairs of shapes that can touch, by MuJoCo's rules.

    Two shapes can touch unless no joint lies between them, or one link is the parent of
    the other (with `sys.filter_parent`, and if the parent is not the world), or their
    links are excluded, or `contype` and `conaffinity` have no common bit. The last
    three rules do not apply to pairs in `sys.pairs`, which replace the pair of the same
    two shapes.

    **Arguments:**

    - `sys`: the robot; only its structure is used, so this works under any
        transformation.

    **Returns:** `(shape, shape, index in sys.pairs or -1)` for each pair, sorted. The
    shape with the smaller `GeomKind` comes first; for equal kinds, the one with the
    smaller index.

    **Raises:** `ValueError` if there are more than 2**25 pairs.
    """
    return _listed_pairs(_rules(sys))


def frictions(sys: System) -> tuple[Any, ...]:
    """Return the friction coefficients of shapes and, where there are any, those of explicit
    pairs, which hold instead."""
    own = sys.geoms.friction
    return (own, sys.pairs.friction) if sys.pairs.geoms else (own,)


def candidate_array(sys: System) -> np.ndarray:
    """Return the same as `candidate_pairs`, as a read-only array `(npair, 3)`."""
    return select_pairs(_rules(sys))


class KindsOfPairs(NamedTuple):
    """Candidate pairs of two kinds of shapes.

    **Arguments:**

    - `kinds`: values of the kinds.
    - `number`: number of pairs.
    - `first`: index of the first of them.
    """

    kinds: tuple[int, int]
    number: int
    first: int


def kinds_of_pairs(pairs: np.ndarray, kinds: np.ndarray) -> list[KindsOfPairs]:
    """Return the kinds of shapes in candidate pairs, in the order of their first pairs.

    **Arguments:**

    - `pairs`: see `candidate_array`.
    - `kinds`: value of the kind of each shape.
    """
    size = 1 + int(np.max(kinds, initial=0))
    both = (kinds * size).astype(np.int32)[pairs[:, 0]]
    both += kinds.astype(np.int32)[pairs[:, 1]]
    counts = np.bincount(both)
    found = [
        KindsOfPairs(
            divmod(kind, size), int(counts[kind]), int(np.argmax(both == kind))
        )
        for kind in np.flatnonzero(counts).tolist()
    ]
    return sorted(found, key=lambda entry: entry.first)


def _rules(sys: System) -> CollisionRules:
    jointed = set(sys.joints.links)
    geoms = sys.geoms
    return CollisionRules(
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


def is_measured(sys: System, one: int, two: int) -> bool:
    """Test if the distance of two shapes is known: meshes need a hull."""
    geoms, hulls = sys.geoms, sys.meshes.hulls
    kinds = sorted((geoms.kinds[one], geoms.kinds[two]), key=lambda kind: kind.value)
    meshes = (geoms.data[k] for k in (one, two) if geoms.kinds[k] is GeomKind.MESH)
    spans = (hulls.span(mesh) for mesh in meshes)
    return tuple(kinds) in measured_kinds() and all(a < b for a, b in spans)


@functools.lru_cache(maxsize=256)
def _listed_pairs(rules: CollisionRules) -> tuple[tuple[int, int, int], ...]:
    return tuple(zip(*select_pairs(rules).T.tolist()))


@functools.lru_cache(maxsize=256)
def select_pairs(rules: CollisionRules) -> np.ndarray:
    """Return the same as `candidate_array`, from the integers."""
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
    keys = _PairKeys(len(rules.kinds), len(rules.explicit))
    ends = np.array(chosen, np.int64).reshape(-1, 3)
    named = keys.pack(ends[:, 0], ends[:, 1], ends[:, 2])
    found = [named, *_unnamed_pairs(rules, keys, welds, weld_parents, still)]
    pairs = keys.unpack(np.sort(np.concatenate(found)))
    pairs.setflags(write=False)
    return pairs


class _PairKeys:
    """Integers that are sorted as pairs are, because sorting integers is fast: bits of
    the first shape, the second shape, and the entry of the explicit pair plus 1."""

    def __init__(self, shapes: int, explicit: int):
        self.shape_bits, self.entry_bits = shapes.bit_length(), explicit.bit_length()

    def pack(self, first: np.ndarray, second: np.ndarray, entry: Any) -> np.ndarray:
        shapes = (first.astype(np.int64) << self.shape_bits) | second
        return (shapes << self.entry_bits) | (entry + 1)

    def unpack(self, keys: np.ndarray) -> np.ndarray:
        pairs = np.empty((len(keys), 3), np.int32)
        pairs[:, 2] = (keys & ((1 << self.entry_bits) - 1)) - 1
        keys = keys >> self.entry_bits
        pairs[:, 1] = keys & ((1 << self.shape_bits) - 1)
        pairs[:, 0] = keys >> self.shape_bits
        return pairs


def _unnamed_pairs(
    rules: CollisionRules,
    keys: _PairKeys,
    welds: tuple[int, ...],
    weld_parents: tuple[int, ...],
    still: set[int],
) -> list[np.ndarray]:
    """Return the keys of the pairs that are not explicit, as arrays to be joined.

    **Arguments:**

    - `welds`, `weld_parents`: results of `weld_links` for links and their parents.
    - `still`: links without a joint.
    """
    kinds, links = (np.asarray(x, np.int32) for x in (rules.kinds, rules.links))
    contype, conaffinity = (
        np.asarray(x, np.int64) for x in (rules.contype, rules.conaffinity)
    )
    # The world is the last entry, which is also entry -1.
    weld, parent = (
        np.asarray([*x, -1], np.int32)[links] for x in (welds, weld_parents)
    )
    fixed, flat = np.isin(weld, list(still)), np.isin(kinds, _FLAT)
    # Shapes that are only drawn touch nothing.
    solid = np.flatnonzero((contype | conaffinity) != 0).astype(np.int32)
    masks = np.stack([contype, conaffinity], axis=1)[solid]
    alike = len(masks) > 0 and bool(np.all(masks == masks[0]))
    rows = max(1, _BLOCK // max(1, len(solid)))
    found, total = [], 0
    for start in range(0, len(solid), rows):
        one, two = solid[start : start + rows, None], solid[start:]
        allowed = (weld[one] != weld[two]) & (one < two)
        if not (alike and masks[0, 0] & masks[0, 1]):
            meets = (contype[one] & conaffinity[two]) != 0
            allowed &= meets | ((conaffinity[one] & contype[two]) != 0)
        allowed &= ~(fixed[one] & fixed[two]) & ~(flat[one] & flat[two])
        if rules.filter_parent:
            related = (weld[one] == parent[two]) | (parent[one] == weld[two])
            allowed &= ~(related & (weld[one] != -1) & (weld[two] != -1))
        first, second = np.nonzero(allowed)
        first, second = one[first, 0], two[second]
        kept = ~_are_among(links[first], links[second], rules.excludes)
        kept &= ~_are_among(first, second, rules.explicit)
        first, second = first[kept], second[kept]
        turned = kinds[first] > kinds[second]
        first, second = np.where(turned, (second, first), (first, second))
        found.append(keys.pack(first, second, -1))
        total += len(first)
        _check_number(total, len(solid))
    return found


def _check_number(pairs: int, shapes: int) -> None:
    if pairs > MOST_PAIRS:
        raise ValueError(
            f"System has more than {MOST_PAIRS:,} pairs of shapes that can touch "
            f"({shapes:,} shapes). Set contype and conaffinity so that fewer pairs can "
            "touch, or remove shapes."
        )


def _are_among(
    first: np.ndarray, second: np.ndarray, listed: tuple[tuple[int, int], ...]
) -> np.ndarray:
    """Test if pairs of integers, from -1, are listed, in any order."""
    marks = np.zeros(len(first), bool)
    if not listed:
        return marks
    ends = np.array(listed, np.int64)
    # Most pairs have an end that is not listed.
    is_end = np.zeros(
        2 + max(ends.max(), first.max(initial=-1), second.max(initial=-1)), bool
    )
    is_end[ends] = True
    some = np.flatnonzero(is_end[first] & is_end[second])
    key = lambda a, b: ((np.minimum(a, b) + 1) << 32) + np.maximum(a, b)
    wanted = key(first[some].astype(np.int64), second[some].astype(np.int64))
    marks[some] = np.isin(wanted, key(ends[:, 0], ends[:, 1]))
    return marks


def _can_move(still: set[int], weld_a: int, weld_b: int) -> bool:
    """Test if a joint lies between two links. Mocap links count as fixed."""
    return weld_a != weld_b and not (weld_a in still and weld_b in still)


def weld_links(parents: tuple[int, ...], jointed: tuple[bool, ...]) -> tuple[int, ...]:
    """Return the link that each link is rigidly attached to, or -1 for the world.

    **Arguments:**

    - `parents`: parent of each link, -1 for the world.
    - `jointed`: true for links with a joint, and for mocap links.

    **Returns:** for each link, itself if it is jointed, else the link that its parent
    is attached to.
    """
    welds: list[int] = []
    for link, parent in enumerate(parents):
        welds.append(link if jointed[link] else _at(welds, parent))
    return tuple(welds)


def _at(values, link: int) -> int:
    return -1 if link == -1 else values[link]


def _ordered(a: int, b: int, kinds: tuple[int, ...]) -> tuple[int, int]:
    return (a, b) if (kinds[a], a) <= (kinds[b], b) else (b, a)
