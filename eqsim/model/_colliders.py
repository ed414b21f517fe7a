"""Which pairs of shapes can touch: one entry per pair of kinds."""

import dataclasses
from collections.abc import Callable

from ._kinds import GeomKind
from ._shape_kinds import AnyKind


@dataclasses.dataclass(frozen=True)
class Collider:
    """How the contact points of two kinds of shapes are found.

    **Arguments:**

    - `find`: takes two arrays of shapes (`eqsim.collision.Shape`), the first and the
        second ones of all pairs, `(npair, *batch)`, and returns a list of `num_points`
        points (`eqsim.collision.Point`). It may only index, reduce and reshape leading
        axes.
    - `num_points`: the most points at which one pair can touch. None, if the first kind is
        a height field: that is `HeightFields.capacity`. `find` then gets two more
        arguments, `eqsim.collision.Reach` and the capacity, and returns
        `eqsim.collision.ContactPoints`.
    - `one_by_one`: whether pairs are visited in a loop that skips those that are farther
        apart than their margin. It pays where `find` is long: the loop compiles it once,
        and runs it for what is near. `find` then gets a third argument, `(1, *batch)`:
        the distance beyond which points do not matter.
    - `measures`: whether the distance of the shapes is known, also where they are far
        apart. Distance sensors need it.
    - `nearest`: returns a list of one point, whose distance is that of the shapes; called
        with three arguments. None: the valid point of `find` with the smallest distance
        is that point.
    """

    find: Callable
    num_points: int | None
    one_by_one: bool = False
    measures: bool = True
    nearest: Callable | None = None

    @property
    def has_reach(self) -> bool:
        """Whether points are computed only within a margin."""
        return self.one_by_one or self.num_points is None


_REGISTRY: dict[tuple[AnyKind, AnyKind], Collider] = {}
_USED: set[tuple[AnyKind, AnyKind]] = set()


def register_collider(first: AnyKind, second: AnyKind, collider: Collider) -> None:
    """Registers how two kinds of shapes touch.

    **Arguments:**

    - `first`, `second`: in the order of `GeomKind`, after which kinds of `register_shape`
        come; `find` gets its shapes in this order.
    - `collider`: replaces the present one, if there is one.

    **Raises:** `ValueError` if the order is wrong; `RuntimeError` if the present collider
    has been used: programs that were compiled would keep it.
    """
    if first.value > second.value:
        raise ValueError(
            f"The kinds are {first.name} and {second.name}: put the one that comes first in "
            "GeomKind first; registered shapes come last."
        )
    if (first, second) in _USED:
        raise RuntimeError(
            f"The collider of {first.name} and {second.name} has been used by a robot. "
            "Register yours before the first robot with such shapes is simulated."
        )
    _REGISTRY[first, second] = collider


def has_collider(first: AnyKind, second: AnyKind) -> bool:
    """Whether two kinds of shapes, in the order of `GeomKind`, can touch."""
    return (first, second) in _REGISTRY


def collider_of(first: AnyKind, second: AnyKind) -> Collider:
    """The collider of two kinds of shapes, in the order of `GeomKind`."""
    if (first, second) not in _REGISTRY:
        raise ValueError(
            f"Shapes of the kinds {first.name} and {second.name} can touch, but have no "
            "collider. Register one with `eqsim.model.register_collider`, or set contype "
            "and conaffinity so that they do not touch."
        )
    _USED.add((first, second))
    return _REGISTRY[first, second]


def touching_kinds() -> tuple[tuple[GeomKind, GeomKind], ...]:
    """All pairs of MuJoCo's kinds that can touch, in the order of `GeomKind`."""
    return tuple(
        (one, two)
        for one, two in _sorted_pairs()
        if isinstance(one, GeomKind) and isinstance(two, GeomKind)
    )


def _sorted_pairs() -> list[tuple[AnyKind, AnyKind]]:
    return sorted(_REGISTRY, key=lambda pair: tuple(kind.value for kind in pair))


def measured_kinds() -> tuple[tuple[AnyKind, AnyKind], ...]:
    """All pairs of kinds whose distance is known, in the order of `GeomKind`."""
    return tuple(pair for pair in _sorted_pairs() if _REGISTRY[pair].measures)
