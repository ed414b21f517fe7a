"""Static facts about the points at which shapes can touch."""

import dataclasses
import functools as ft

from ..model import candidate_pairs, collider_of, GeomKind, System, tree
from ..model._shape_kinds import AnyKind


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
    kinds, data, capacity = sys.geoms.kinds, sys.geoms.data, sys.height_fields.capacity
    room = tuple(
        capacity[data[geom]] if kind is GeomKind.HFIELD else 0
        for geom, kind in enumerate(kinds)
    )
    return _plan(kinds, room, carriers, tuple(candidate_pairs(sys)))


@ft.lru_cache(maxsize=256)
def _plan(geom_kinds, room, carriers, pairs) -> ContactPlan:
    """Arguments: kinds of the shapes; of each, the capacity if it is a height field; what
    carries it; and the pairs."""
    pairs = tuple(pair for pair in pairs if carriers[pair[0]] != carriers[pair[1]])
    kind = lambda pair: (geom_kinds[pair[0]], geom_kinds[pair[1]], room[pair[0]])
    groups = sorted(
        {kind(pair) for pair in pairs}, key=lambda k: (k[0].value, k[1].value, k[2])
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
