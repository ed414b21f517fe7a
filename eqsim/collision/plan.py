"""Static facts about the points at which shapes can touch, and about listed pairs."""

import dataclasses
import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from ..model import candidate_pairs, GeomKind, JointKind, System, Transmission, tree
from ..model.kinds import AnyKind, kind_order
from ..model.pairs import collider_of
from ._direction_tables import TABLE_SIZE


# Static facts about the pairs that are listed when they are near.


@dataclasses.dataclass(frozen=True)
class PairGroup:
    """Pairs of the same kinds of shapes and of the same number of points.

    - `kinds`: the kinds.
    - `pairs`: the pairs, as rows of `ListPlan`.
    - `num_points`: largest number of points of a pair. On a height field, more are dropped.
    """

    kinds: tuple[AnyKind, AnyKind]
    pairs: tuple[int, ...]
    num_points: int


@dataclasses.dataclass(frozen=True)
class ListPlan:
    """Static facts about the pairs that are listed when they are near.

    - `geoms`: shapes of the pairs; other fields count shapes by their place here.
    - `carriers`: node that carries each shape; -1: the world.
    - `spans`: first vertex of the hull of each shape that is a mesh, and the end.
    - `tables`: first entry of each shape that is a mesh in `DirectionTables`.
    - `grids`: first entry in `Grids.heights`, rows and columns of each shape that is a height
        field; else zeros.
    - `first`, `second`: shapes of each pair.
    - `explicit`: entry of each pair in `sys.pairs`; -1: none.
    - `condim`: dimension of the contact space of each pair.
    - `groups`: pairs by the kinds of their shapes.
    """

    geoms: tuple[int, ...]
    carriers: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    tables: tuple[int, ...]
    grids: tuple[tuple[int, int, int], ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    explicit: tuple[int, ...]
    condim: tuple[int, ...]
    groups: tuple[PairGroup, ...]

    @property
    def nodes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Nodes that carry the first and the second shape of each pair."""
        one, two = (
            tuple(self.carriers[geom] for geom in side)
            for side in (self.first, self.second)
        )
        return one, two

    def condims(self, group: PairGroup) -> list[int]:
        """Return the dimensions of the contacts of a group of pairs."""
        return sorted({self.condim[pair] for pair in group.pairs})

    def capacity(self, condim: int) -> int:
        """Return the largest number of contacts of a dimension."""
        return sum(
            group.num_points
            for group in self.groups
            for pair in group.pairs
            if self.condim[pair] == condim
        )


# Static facts about the points at which shapes can touch.


@dataclasses.dataclass(frozen=True)
class ContactPlan:
    """Static facts about the possible contact points.

    Points are in the order in which they are computed: kind of pair by kind of pair, and
    pair by pair.

    **Arguments:**

    - `kinds`: for each group of pairs of the same kinds, those kinds.
    - `num_points`: for each group, the number of points of each pair.
    - `geoms`: for each group, the first and the second shapes of its pairs.
    - `group_pairs`: for each group, its entries in `pairs`.
    - `pairs`: `(geom1, geom2, explicit)`, see `candidate_pairs`.
    - `carriers`: the node that carries each shape; -1: the world.
    - `point_pairs`: the pair of each point.
    - `nodes`: the nodes that carry the two shapes of each point; -1: the world.
    """

    kinds: tuple[tuple[AnyKind, AnyKind], ...]
    num_points: tuple[int, ...]
    geoms: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    group_pairs: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int, int], ...]
    carriers: tuple[int, ...]
    point_pairs: tuple[int, ...]
    nodes: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Number of possible points."""
        return len(self.point_pairs)


def contact_plan(sys: System) -> ContactPlan:
    """Return the plan of a system; the same object for systems of the same structure."""
    nodes = tree(sys).link_nodes
    carriers = tuple(-1 if link < 0 else nodes[link] for link in sys.geoms.links)
    return _plan(
        sys.geoms.kinds, _capacities(sys), carriers, tuple(candidate_pairs(sys))
    )


def _capacities(sys: System) -> tuple[int, ...]:
    """Return the capacity of each shape that is a height field; 0 for others."""
    data, capacity = sys.geoms.data, sys.height_fields.capacity
    return tuple(
        capacity[data[geom]] if kind is GeomKind.HFIELD else 0
        for geom, kind in enumerate(sys.geoms.kinds)
    )


def split_plan(sys: System) -> tuple[ContactPlan, ListPlan | None]:
    """Divide the pairs of a system: those whose points are all computed, and those that
    are listed when they are near.

    Up to `MOST_ANCHORED` points against the world that have a closed form are computed:
    they are rows of single links, which cost less than visits. If other pairs are listed,
    points of links that cannot leave their place, such as those of an arm on a table, are
    listed too: they seldom touch the world.
    """
    nodes = tree(sys).link_nodes
    carriers = tuple(-1 if link < 0 else nodes[link] for link in sys.geoms.links)
    acts_on_contacts = Transmission.BODY in sys.actuators.transmissions
    rules = sys.geoms.priority, sys.geoms.condim, sys.pairs.condim
    hulls, data = sys.meshes.hulls, sys.geoms.data
    spans = tuple(
        (*hulls.span(data[geom]), TABLE_SIZE * data[geom])
        if kind is GeomKind.MESH
        else (0, 0, 0)
        for geom, kind in enumerate(sys.geoms.kinds)
    )
    fields = sys.height_fields
    first = tuple(fields.span(k)[0] for k in range(len(fields.rows)))
    facts = tuple(zip(first, fields.rows, fields.columns, strict=True))
    grids = tuple(
        facts[data[geom]] if kind is GeomKind.HFIELD else (0, 0, 0)
        for geom, kind in enumerate(sys.geoms.kinds)
    )
    links = _mobile_links(sys.links.parents, sys.joints.kinds, sys.joints.links)
    mobile = tuple(link >= 0 and links[link] for link in sys.geoms.links)
    given = sys.geoms.kinds, _capacities(sys), carriers, tuple(candidate_pairs(sys))
    return _split(*given, (spans, grids), rules, mobile, acts_on_contacts)


@ft.lru_cache(maxsize=256)
def _mobile_links(parents, kinds, joint_links) -> tuple[bool, ...]:
    """Return which links can leave their place: one of the first joints between the world
    and the link is free or prismatic."""
    own = [[] for _ in parents]
    for kind, link in zip(kinds, joint_links, strict=True):
        own[link].append(kind)
    # The joints of the first link, on the way from the world, that has some.
    first = []
    for link, parent in enumerate(parents):
        above = first[parent] if parent >= 0 else []
        first.append(above or own[link])
    return tuple(bool({JointKind.FREE, JointKind.PRISMATIC} & {*x}) for x in first)


MOST_ANCHORED = 48
"""Points against the world that are rows of their own."""


@ft.lru_cache(maxsize=256)
def _split(kinds, room, carriers, pairs, tables, rules, mobile, whole: bool):
    pairs = tuple(pair for pair in pairs if carriers[pair[0]] != carriers[pair[1]])
    both = lambda pair: (kinds[pair[0]], kinds[pair[1]])
    on_world = lambda pair: min(carriers[pair[0]], carriers[pair[1]]) < 0
    closed = lambda pair: not collider_of(*both(pair)).has_reach
    few = [pair for pair in pairs if on_world(pair) and closed(pair)]
    if len(few) < len(pairs):
        few = [pair for pair in few if mobile[pair[0]] or mobile[pair[1]]]
    few = _with_fewest_points(
        few, lambda pair: collider_of(*both(pair)).num_points or 0
    )
    chosen = {*few}
    if whole or len(chosen) == len(pairs):
        return _plan(kinds, room, carriers, pairs), None
    dense = tuple(pair for pair in pairs if pair in chosen)
    listed = tuple(pair for pair in pairs if pair not in chosen)
    found = _list_plan(kinds, room, carriers, listed, tables, rules)
    return _plan(kinds, room, carriers, dense), found


def _with_fewest_points(pairs, num_points: Callable) -> list:
    """Return pairs with at most `MOST_ANCHORED` points in all, those with the fewest points
    first: spheres touch the ground more often than each of the corners of a box."""
    chosen, total = [], 0
    for number in sorted(set(map(num_points, pairs))):
        own = [pair for pair in pairs if num_points(pair) == number]
        total += number * len(own)
        if total > MOST_ANCHORED:
            break
        chosen += own
    return chosen


def _list_plan(kinds, room, carriers, pairs, tables, rules) -> ListPlan:
    spans, grids = tables
    both = lambda pair: (kinds[pair[0]], kinds[pair[1]])
    ends = lambda pair: (carriers[pair[0]], carriers[pair[1]])
    # Neighbors of a pair belong to the same links, and are near at the same time.
    pairs = sorted(
        pairs,
        key=lambda p: (*(k.value for k in both(p)), max(ends(p)), min(ends(p)), p),
    )
    geoms = sorted({geom for pair in pairs for geom in pair[:2]})
    place = {geom: k for k, geom in enumerate(geoms)}
    groups = []
    alike = lambda pair: (both(pair), room[pair[0]])
    for own, capacity in dict.fromkeys(map(alike, pairs)):
        numbers = tuple(k for k, p in enumerate(pairs) if alike(p) == (own, capacity))
        count = collider_of(*own).num_points
        groups.append(PairGroup(own, numbers, capacity if count is None else count))
    return ListPlan(
        geoms=tuple(geoms),
        carriers=tuple(carriers[geom] for geom in geoms),
        spans=tuple(spans[geom][:2] for geom in geoms),
        tables=tuple(spans[geom][2] for geom in geoms),
        grids=tuple(grids[geom] for geom in geoms),
        first=tuple(place[pair[0]] for pair in pairs),
        second=tuple(place[pair[1]] for pair in pairs),
        explicit=tuple(pair[2] for pair in pairs),
        condim=tuple(pair_dimension(pair, *rules) for pair in pairs),
        groups=tuple(groups),
    )


def pair_priority(pair, priority: Sequence[int]) -> int:
    """Return 1 if the first shape of a pair has the higher priority, -1 if the second
    does, else 0."""
    one, two = (priority[geom] for geom in pair[:2])
    return (one > two) - (one < two)


def pair_dimension(pair, priority, condim, pair_condim) -> int:
    """Return the dimension of the contact space (`condim`) of a pair."""
    if pair[2] >= 0:
        return pair_condim[pair[2]]
    one, two = (condim[geom] for geom in pair[:2])
    return {1: one, -1: two, 0: max(one, two)}[pair_priority(pair, priority)]


@ft.lru_cache(maxsize=256)
def _plan(geom_kinds, room, carriers, pairs) -> ContactPlan:
    """Arguments: kinds of the shapes; of each, the capacity if it is a height field; what
    carries it; and the pairs."""
    pairs = tuple(pair for pair in pairs if carriers[pair[0]] != carriers[pair[1]])
    kind = lambda pair: (geom_kinds[pair[0]], geom_kinds[pair[1]], room[pair[0]])
    groups = sorted(
        {kind(pair) for pair in pairs},
        key=lambda k: (kind_order(k[0]), kind_order(k[1]), k[2]),
    )
    # Pairs with the world first, then by node.
    ends = lambda i: (carriers[pairs[i][0]], carriers[pairs[i][1]])
    by_node = lambda i: (min(ends(i)) >= 0, max(ends(i)), min(ends(i)), i)
    kinds, num_points, geoms, group_pairs, points = [], [], [], [], []
    for *both, capacity in groups:
        group = sorted(
            (i for i, pair in enumerate(pairs) if kind(pair) == (*both, capacity)),
            key=by_node,
        )
        number = collider_of(*both).num_points
        number = capacity if number is None else number
        kinds.append(tuple(both))
        num_points.append(number)
        first, second = (tuple(pairs[i][k] for i in group) for k in (0, 1))
        geoms.append((first, second))
        group_pairs.append(tuple(group))
        points += [i for i in group for _ in range(number)]
    return ContactPlan(
        kinds=tuple(kinds),
        num_points=tuple(num_points),
        geoms=tuple(geoms),
        group_pairs=tuple(group_pairs),
        pairs=pairs,
        carriers=carriers,
        point_pairs=tuple(points),
        nodes=tuple(map(ends, points)),
    )


def gaps(sys: System) -> tuple[Any, Any] | None:
    """Return the gaps of shapes and of explicit pairs; None: there are none."""
    one, two = sys.geoms.gap, sys.pairs.gap
    if one is None and two is None:
        return None
    zero = jnp.zeros_like
    return (
        zero(sys.geoms.margin) if one is None else one,
        zero(sys.pairs.margin) if two is None else two,
    )
