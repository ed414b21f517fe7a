r"""Contacts with pyramidal or elliptic friction cones.

Sources: MuJoCo documentation, *Computation*, "Contact" and "Friction cones";
`mj_instantiateContact`, `mj_makeImpedance`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..collision import ContactPlan, split_plan
from ..dynamics._weights import InverseWeights
from ..model import System, tree
from ..model._gather import per_row, take
from ..spatial import Vec3
from ._constraint import AbstractConstraint, Moment
from ._contact_groups import contact_groups, ContactGroup
from ._contact_parameters import contact_parameters, ContactParameters
from ._contact_rows import anchored_rows, ContactSource
from ._costs import Residual
from ._coupled_contacts import coupled_contacts, CoupledContacts
from ._jacobians import PointJacobian
from ._listed_contacts import listed_contacts
from ._rows import AbstractRows, Rows


class ContactConstants(NamedTuple):
    """Constants of contacts, which do not depend on the state.

    - `parameters`: parameters of the points that are always computed; None if there are
        none.
    - `weights`: inverse weights of the links.
    """

    parameters: ContactParameters | None
    weights: Any


class Contact(AbstractConstraint):
    """Contacts between shapes."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        plan, listed = split_plan(sys)
        if not plan.size and listed is None:
            return None
        parameters = contact_parameters(sys, plan, weights.link) if plan.size else None
        return ContactConstants(parameters, weights.link)

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        plan, listed = split_plan(sys)
        found: tuple[AbstractRows, ...] = ()
        if plan.size:
            found += point_rows(sys, plan, constants.parameters, now)
        if listed is not None:
            assert now.listing is not None, "a robot with listed pairs has a listing"
            where = now, now.frames, now.listing
            found += listed_contacts(sys, listed, constants.weights, *where)
        return found


def point_rows(
    sys: System, plan: ContactPlan, parameters: ContactParameters, now: Moment
) -> tuple[AbstractRows, ...]:
    """Return the rows of `now.points`, the points of a plan."""
    groups = contact_groups(sys, plan)
    return tuple(_group_rows(sys, parameters, now, group) for group in groups)


def contact_wrenches_in_world(
    sys: System,
    plan: ContactPlan,
    rows: Sequence[AbstractRows],
    forces: Sequence[Residual],
) -> tuple[Vec3, Vec3]:
    """Compute force and torque, at each point, on the second shape.

    **Arguments:**

    - `rows`: rows of contacts, of which the first are those of the groups of the plan.
    - `forces`: their forces.
    """
    pushes, twists, places = [], [], []
    for group, own, force in zip(contact_groups(sys, plan), rows, forces):
        linear, angular = _axes_of(own)
        along = zip((*linear, *angular), force, strict=True)
        parts = [axis * f for axis, f in along]
        push = sum(parts[1 : len(linear)], parts[0])
        twist = sum(parts[len(linear) :], push * 0.0)
        if group.anchored:
            sign = per_row(group.signs, force[0])
            push, twist = push * sign, twist * sign
        pushes.append(push)
        twists.append(twist)
        places += group.points
    order = sorted(range(len(places)), key=places.__getitem__)
    return take(_join(pushes), order), take(_join(twists), order)


def _join(vectors: list[Vec3]) -> Vec3:
    return Vec3(*(jnp.concatenate([v[k] for v in vectors]) for k in range(3)))


def _axes_of(rows: AbstractRows) -> tuple[tuple[Vec3, ...], tuple[Vec3, ...]]:
    if isinstance(rows, CoupledContacts):
        return rows.rows.linear, rows.rows.angular
    assert isinstance(rows, Rows) and isinstance(rows.jacobian, PointJacobian)
    return rows.jacobian.linear, rows.jacobian.angular


def _group_rows(
    sys: System, parameters: ContactParameters, now: Moment, group: ContactGroup
) -> AbstractRows:
    assert now.points is not None, "a robot with contacts has contact points"
    source = ContactSource(
        group=group,
        cone=sys.cone,
        points=now.points,
        parameters=parameters,
        origin=now.kin.origin,
        velocity=now.speed.velocity,
        impratio=sys.impratio,
        width=now.width,
    )
    if group.anchored:
        return anchored_rows(source)
    return coupled_contacts(tree(sys), now.kin, source)
