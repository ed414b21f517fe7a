r"""Contacts with pyramidal or elliptic friction cones.

Sources: MuJoCo documentation, *Computation*, "Contact" and "Friction cones";
`mj_instantiateContact`, `mj_makeImpedance`.
"""

import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..collision import contact_plan, ContactPlan, ContactPoints
from ..dynamics._weights import InverseWeights
from ..kinematics._axes import dof_axes
from ..model import Cone, per_row, System, take, take_or_zero, tree
from ..spatial import Vec3
from ._cones import Elliptic, Pyramid
from ._constraint import AbstractConstraint, Moment
from ._contact_parameters import (
    contact_dimensions,
    contact_parameters,
    ContactParameters,
)
from ._costs import AbstractCost, OneSided, Residual
from ._coupled_contacts import CoupledContacts
from ._jacobians import PointJacobian
from ._rows import AbstractRows, Rows
from ._softness import impedance, onset, stiffness_weight


class ContactGroup(NamedTuple):
    """Points that are treated alike.

    - `points`: their places among all points.
    - `condim`: dimension of the contact space.
    - `nodes`: nodes of the first and second shapes.
    - `anchored`: whether one of the two shapes stands still, and the points are rows of a
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


def contact_groups(sys: System) -> tuple[ContactGroup, ...]:
    """Return the groups of the contact points of a system."""
    plan = contact_plan(sys)
    return _groups(plan, contact_dimensions(sys, plan))


_MOST_ANCHORED = 48
"""Points against the world that are rows of their own, where other points are visited in
a loop anyway: more join the loop, which costs only what touches."""


@ft.lru_cache(maxsize=256)
def _groups(plan: ContactPlan, condim: tuple[int, ...]) -> tuple[ContactGroup, ...]:
    groups = []
    alone = plan.num_anchored == plan.size or plan.num_anchored <= _MOST_ANCHORED
    for anchored in (True, False):
        places = range(plan.size)
        side = [k for k in places if (alone and k < plan.num_anchored) == anchored]
        for size in sorted({condim[k] for k in side}):
            own = tuple(k for k in side if condim[k] == size)
            first, second = (tuple(plan.nodes[k][i] for k in own) for i in (0, 1))
            groups.append(ContactGroup(own, size, (first, second), anchored))
    return tuple(groups)


class Contact(AbstractConstraint):
    """Contacts between shapes."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        plan = contact_plan(sys)
        if not plan.size:
            return None
        return contact_parameters(sys, plan, weights.link)

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        assert now.points is not None, "a robot with contacts has contact points"
        groups = contact_groups(sys)
        return tuple(_group_rows(sys, constants, now, group) for group in groups)


def contact_wrenches_in_world(
    sys: System, rows: Sequence[AbstractRows], forces: Sequence[Residual]
) -> tuple[Vec3, Vec3]:
    """Compute force and torque, at each point, on the second shape.

    **Arguments:**

    - `rows`: rows of the contacts, one for each group.
    - `forces`: their forces.
    """
    pushes, twists, places = [], [], []
    for group, own, force in zip(contact_groups(sys), rows, forces, strict=True):
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
        return rows.linear, rows.angular
    assert isinstance(rows, Rows) and isinstance(rows.jacobian, PointJacobian)
    return rows.jacobian.linear, rows.jacobian.angular


class _Axes(NamedTuple):
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...]


def _group_rows(
    sys: System, parameters: ContactParameters, now: Moment, group: ContactGroup
) -> AbstractRows:
    points, parameters = take((now.points, parameters), group.points)
    axes = _axes(sys, points, parameters, group)
    if group.anchored:
        nodes = group.moving
        arm = points.pos - take(now.kin.origin, nodes)
        speed = take(now.speed.velocity, nodes)
        rate, spin = speed.at(arm), speed.ang
    else:
        one, two = (take_or_zero(now.speed.velocity, nodes) for nodes in group.nodes)
        arms = tuple(
            points.pos - take_or_zero(now.kin.origin, nodes) for nodes in group.nodes
        )
        rate, spin = two.at(arms[1]) - one.at(arms[0]), two.ang - one.ang
    velocity = [axis | rate for axis in axes.linear]
    velocity += [axis | spin for axis in axes.angular]
    weight, cost, offset = _cost(sys, points, parameters, group, now.width, velocity)
    if group.anchored:
        jacobian = PointJacobian(group.moving, arm, axes.linear, axes.angular)
        return Rows(jacobian, cost, offset)
    nodes = tree(sys)
    return CoupledContacts(
        tree=nodes,
        nodes=group.nodes,
        axes=dof_axes(nodes, now.kin),
        arms=arms,
        linear=axes.linear,
        angular=axes.angular,
        exists=weight,
        cost=cost,
        offset=offset,
    )


def _axes(
    sys: System,
    points: ContactPoints,
    parameters: ContactParameters,
    group: ContactGroup,
) -> _Axes:
    """Return the axes of the residuals; with pyramids, friction axes are multiplied by
    their coefficients."""
    frame = [Vec3(*points.frame[3 * k : 3 * k + 3]) for k in range(3)]
    if group.anchored:
        # The frame is turned where the moving shape is the first one.
        sign = per_row(group.signs, points.dist)
        frame = [axis * sign for axis in frame]
    linear = frame[: min(group.condim, 3)]
    angular = frame[: max(0, group.condim - 3)]
    if sys.cone is Cone.PYRAMIDAL:
        scales = parameters.friction.coefficients
        linear[1:] = [axis * mu for axis, mu in zip(linear[1:], scales[:2])]
        angular = [axis * mu for axis, mu in zip(angular, scales[2:])]
    return _Axes(tuple(linear), tuple(angular))


def _cost(
    sys: System,
    points: ContactPoints,
    parameters: ContactParameters,
    group: ContactGroup,
    width,
    velocity: list,
) -> tuple[Any, AbstractCost, Residual]:
    """Return the weight of each contact, its cost, and the residuals at zero
    acceleration."""
    soft, mu = parameters.soft, parameters.friction.coefficients
    begun = onset(points.dist - parameters.friction.margin, width)
    imp = impedance(soft, begun.violation)
    inverse = parameters.weight
    pyramidal, frictionless = sys.cone is Cone.PYRAMIDAL, group.condim == 1
    if pyramidal and not frictionless:
        # The pyramid is scaled by the coefficient along the first axis.
        square = mu[0] * mu[0]
        inverse = inverse * (2.0 * square * (1.0 + square) / sys.impratio[None])
    weight = stiffness_weight(imp, inverse) * begun.share
    weight = jnp.where(begun.exists & points.valid, weight, 0.0)
    damping = soft.b if pyramidal else parameters.friction_damping
    offset = (
        soft.b * velocity[0] + soft.k * imp * begun.violation,
        *(damping * rate for rate in velocity[1:]),
    )
    if frictionless:
        return weight, OneSided(weight), offset
    if pyramidal:
        return weight, Pyramid(weight), offset
    own = mu[: group.condim - 1]
    regular = mu[0] / jnp.sqrt(sys.impratio[None])
    return weight, Elliptic(weight, own, regular + 0.0 * weight), offset
