"""Connect: a point of one link stays at a point of another, as in a ball joint.

Source: MuJoCo documentation, *Computation*, "Equality"; `mj_instantiateEquality`.
"""

from typing import Any

from ..dynamics._weights import InverseWeights
from ..model import EqualityKind, System
from ..model._gather import take_or_zero
from ..spatial import safe_sqrt
from ._anchors import both_ends, end_dofs, end_links, select_movable
from ._constraint import AbstractConstraint, Moment
from ._equality import equality_constants, equality_rows, Violation
from ._rows import AbstractRows


class Connect(AbstractConstraint):
    """Points of two links, or two sites, that stay together."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        which = select_movable(sys, EqualityKind.CONNECT)
        if not which:
            return None
        weight = sum(
            take_or_zero(weights.link, links) for links in end_links(sys, which)
        )
        return equality_constants(sys, which, (weight, weight, weight))

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        which = select_movable(sys, EqualityKind.CONNECT)
        one, two = both_ends(sys, now, which)
        gap = one.pos - two.pos
        violation = Violation(
            jacobian=one.lin - two.lin,
            value=gap,
            rate=one.speed - two.speed,
            bias=one.bias - two.bias,
        )
        size = safe_sqrt(gap | gap)
        return (equality_rows(constants, violation, size, end_dofs(sys, which)),)
