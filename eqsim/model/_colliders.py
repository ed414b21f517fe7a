"""Registry of colliders: one for each pair of kinds of shapes that can touch."""

import dataclasses
from collections.abc import Callable

from ._kinds import GeomKind
from ._shape_kinds import AnyKind


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


_REGISTRY: dict[tuple[AnyKind, AnyKind], Collider] = {}
_USED: set[tuple[AnyKind, AnyKind]] = set()


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
    if (first, second) in _USED:
        raise RuntimeError(
            f"The collider of {first.name} and {second.name} has been used by a robot. "
            "Register yours before the first robot with such shapes is simulated."
        )
    _REGISTRY[first, second] = collider


def has_collider(first: AnyKind, second: AnyKind) -> bool:
    """Test if two kinds of shapes, in the order of `GeomKind`, can touch."""
    return (first, second) in _REGISTRY


def collider_of(first: AnyKind, second: AnyKind) -> Collider:
    """Return the collider of two kinds of shapes, in the order of `GeomKind`."""
    if (first, second) not in _REGISTRY:
        raise ValueError(
            f"Shapes of the kinds {first.name} and {second.name} can touch, but have no "
            "collider. Register one with `eqsim.model.register_collider`, or set contype "
            "and conaffinity so that they do not touch."
        )
    _USED.add((first, second))
    return _REGISTRY[first, second]


def touching_kinds() -> tuple[tuple[GeomKind, GeomKind], ...]:
    """Return all pairs of built-in kinds that can touch, in the order of `GeomKind`."""
    return tuple(
        (one, two)
        for one, two in _sorted_pairs()
        if isinstance(one, GeomKind) and isinstance(two, GeomKind)
    )


def _sorted_pairs() -> list[tuple[AnyKind, AnyKind]]:
    return sorted(_REGISTRY, key=lambda pair: tuple(kind.value for kind in pair))


def measured_kinds() -> tuple[tuple[AnyKind, AnyKind], ...]:
    """Return all pairs of kinds whose distance is exact, in the order of `GeomKind`."""
    return tuple(pair for pair in _sorted_pairs() if _REGISTRY[pair].measures)
