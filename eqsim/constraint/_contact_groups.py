"""Contact points that are treated alike."""

import functools as ft
from typing import NamedTuple

from ..collision import contact_plan, ContactPlan
from ..collision._plan import MOST_ANCHORED
from ..model import System
from ._contact_parameters import contact_dimensions


class ContactGroup(NamedTuple):
    """Points that are treated alike.

    - `points`: their places among all points.
    - `condim`: dimension of the contact space.
    - `nodes`: nodes of the first and second shapes.
    - `anchored`: true if one of the two shapes stands still, and the points are rows of a
        single node.
    """

    points: tuple[int, ...]
    condim: int
    nodes: tuple[tuple[int, ...], tuple[int, ...]]
    anchored: bool

    @property
    def moving(self) -> tuple[int, ...]:
        """Nodes of the shapes that move, where the others stand still."""
        return tuple(map(max, *self.nodes))

    @property
    def signs(self) -> tuple[float, ...]:
        """1 where the second shape is the one that moves, else -1."""
        return tuple(1.0 if two >= 0 else -1.0 for two in self.nodes[1])


def contact_groups(
    sys: System, plan: ContactPlan | None = None
) -> tuple[ContactGroup, ...]:
    """Return the groups of the contact points of a plan; None: of all pairs."""
    plan = contact_plan(sys) if plan is None else plan
    return _groups(plan, contact_dimensions(sys, plan))


@ft.lru_cache(maxsize=256)
def _groups(plan: ContactPlan, condim: tuple[int, ...]) -> tuple[ContactGroup, ...]:
    groups, places = [], range(plan.size)
    on_world = [min(nodes) < 0 for nodes in plan.nodes]
    alone = all(on_world) or sum(on_world) <= MOST_ANCHORED
    for anchored in (True, False):
        side = [k for k in places if (alone and on_world[k]) == anchored]
        for size in sorted({condim[k] for k in side}):
            own = tuple(k for k in side if condim[k] == size)
            first, second = (tuple(plan.nodes[k][i] for k in own) for i in (0, 1))
            groups.append(ContactGroup(own, size, (first, second), anchored))
    return tuple(groups)
