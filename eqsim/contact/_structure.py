"""Which nodes and degrees of freedom the rows of a convex problem act on."""

import dataclasses
import functools as ft
from typing import NamedTuple

from ..model import JointKind, System, Tree, tree
from ._plan import contact_plan, ContactPlan


class LimitedJoints(NamedTuple):
    """Joints with limits, and where their coordinates and degrees of freedom start."""

    joints: tuple[int, ...]
    coordinates: tuple[int, ...]
    dofs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Structure:
    """Static facts about a convex problem.

    - `tree`: tree of nodes.
    - `nv`: number of degrees of freedom.
    - `anchored`: node of each contact with the world.
    - `signs`: for each of them, -1 if the first shape moves, 1 if the second does.
    - `moving`: the two nodes of each contact between moving links.
    - `limited`: hinges and slides with limits.
    - `friction_dofs`: degrees of freedom with dry friction.
    - `balls`: spherical joints with limits.
    """

    tree: Tree
    nv: int
    anchored: tuple[int, ...]
    signs: tuple[float, ...]
    moving: tuple[tuple[int, int], ...]
    limited: LimitedJoints
    friction_dofs: tuple[int, ...]
    balls: LimitedJoints

    @property
    def moving_nodes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The first and the second nodes of contacts between moving links."""
        return tuple(one for one, _ in self.moving), tuple(
            two for _, two in self.moving
        )

    @property
    def has_rows(self) -> bool:
        """Whether there are any constraints."""
        joints = self.limited.joints or self.friction_dofs or self.balls.joints
        return bool(self.anchored or self.moving or joints)


def structure(sys: System) -> Structure:
    """Return the structure of a system's convex problem; the same object for systems of
    the same structure."""
    joints = sys.joints
    return _structure(
        tree(sys), contact_plan(sys), joints.kinds, joints.limited, joints.has_friction
    )


@ft.lru_cache(maxsize=256)
def _structure(
    tree: Tree,
    plan: ContactPlan,
    kinds: tuple[JointKind, ...],
    limited: tuple[bool, ...],
    has_friction: tuple[bool, ...],
) -> Structure:
    n = plan.num_anchored
    return Structure(
        tree=tree,
        nv=len(has_friction),
        anchored=tuple(max(ends) for ends in plan.nodes[:n]),
        signs=tuple(1.0 if ends[1] >= 0 else -1.0 for ends in plan.nodes[:n]),
        moving=plan.nodes[n:],
        limited=_limited(kinds, limited, (JointKind.REVOLUTE, JointKind.PRISMATIC)),
        friction_dofs=tuple(dof for dof, has in enumerate(has_friction) if has),
        balls=_limited(kinds, limited, (JointKind.SPHERICAL,)),
    )


def _limited(kinds, limited: tuple[bool, ...], which) -> LimitedJoints:
    found, q, dof = [], 0, 0
    for joint, kind in enumerate(kinds):
        if limited[joint] and kind in which:
            found.append((joint, q, dof))
        q, dof = q + kind.nq, dof + kind.nv
    return LimitedJoints(*(tuple(entry[k] for entry in found) for k in range(3)))
