"""Static facts about the pairs that are listed when they are near."""

import dataclasses

from ..model._shape_kinds import AnyKind


@dataclasses.dataclass(frozen=True)
class PairGroup:
    """Pairs of the same kinds of shapes.

    - `kinds`: the kinds.
    - `pairs`: the pairs, as rows of `ListPlan`.
    - `num_points`: largest number of points of a pair.
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
    - `first`, `second`: shapes of each pair.
    - `explicit`: entry of each pair in `sys.pairs`; -1: none.
    - `condim`: dimension of the contact space of each pair.
    - `groups`: pairs by the kinds of their shapes.
    """

    geoms: tuple[int, ...]
    carriers: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    tables: tuple[int, ...]
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
