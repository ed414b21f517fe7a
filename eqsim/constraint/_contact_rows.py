"""Rows of contacts, from a point, the parameters of its pair, and the motion of its two
links."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..collision import ContactPoints
from ..model import Cone
from ..model._gather import per_row, take, take_or_zero
from ..spatial import Force, force_at, Motion, Vec3
from ._cones import Elliptic, Pyramid
from ._contact_groups import ContactGroup
from ._contact_parameters import ContactParameters
from ._costs import AbstractCost, OneSided, Residual
from ._jacobians import combine, PointJacobian
from ._rows import Rows
from ._softness import impedance, onset, stiffness_weight


class ContactRows(NamedTuple):
    """Rows of contacts that couple two links, `(n, *batch)`.

    - `arms`: position of each contact about the origins of the trees of both nodes.
    - `linear`, `angular`: axes of the residuals, see `PointJacobian`.
    - `cost`, `offset`: cost and offset, see `Rows`.
    """

    arms: tuple[Vec3, Vec3]
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...]
    cost: AbstractCost
    offset: Residual

    def residuals(self, one: Motion, two: Motion) -> Residual:
        """Compute the residuals from the motion of both nodes."""
        rate = two.at(self.arms[1]) - one.at(self.arms[0])
        along = [axis | rate for axis in self.linear]
        spin = two.ang - one.ang
        along += [axis | spin for axis in self.angular]
        return tuple(a + b for a, b in zip(along, self.offset, strict=True))

    def wrench(self, force: Residual) -> "ContactWrench":
        """Return the forces of the contacts from those of their residuals."""
        n = len(self.linear)
        twist = combine(self.angular, force[n:]) if self.angular else None
        return ContactWrench(self.arms, combine(self.linear, force[:n]), twist)


class ContactLaw(eqx.Module):
    """Settings that contacts of one dimension share.

    - `condim`: dimension of the contact space.
    - `cone`: the shape of friction cones.
    - `impratio`: ratio of frictional to normal impedance.
    - `width`: width of the onset of contacts, m; None if it is abrupt.
    """

    condim: int = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    impratio: Any
    width: Any

    @property
    def kind(self) -> type[OneSided] | type[Pyramid] | type[Elliptic]:
        """The class of the costs."""
        if self.condim == 1:
            return OneSided
        return Pyramid if self.cone is Cone.PYRAMIDAL else Elliptic


class ContactSource(eqx.Module):
    """Data for the rows of a group of contacts.

    - `group`: the group.
    - `cone`: the shape of friction cones.
    - `points`, `parameters`: all points and their parameters, those of other groups too.
    - `origin`, `velocity`: origin of the tree, and velocity, of each node.
    - `impratio`: ratio of frictional to normal impedance.
    - `width`: width of the onset of contacts, m; None if it is abrupt.
    """

    group: ContactGroup = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    points: ContactPoints
    parameters: ContactParameters
    origin: Vec3
    velocity: Motion
    impratio: Any
    width: Any

    @property
    def law(self) -> ContactLaw:
        """Settings that the contacts share."""
        return ContactLaw(self.group.condim, self.cone, self.impratio, self.width)

    def exists(self):
        """Return which of the points are contacts, `(n, *batch)`."""
        margin = self.parameters.friction.margin
        dist, valid, margin = take(
            (self.points.dist, self.points.valid, margin), self.group.points
        )
        return onset(dist - margin, self.width).exists & valid

    def rows(self) -> ContactRows:
        """Compute the rows of all points of the group."""
        points, parameters = take((self.points, self.parameters), self.group.points)
        ends = [
            take_or_zero((self.origin, self.velocity), nodes)
            for nodes in self.group.nodes
        ]
        return contact_rows(self.law, points, parameters, ends)


def contact_rows(
    law: ContactLaw,
    points: ContactPoints,
    parameters: ContactParameters,
    ends: Sequence[tuple[Vec3, Motion]],
) -> ContactRows:
    """Compute the rows of contacts between two links.

    **Arguments:**

    - `ends`: origin of the tree and velocity of the nodes of both links; zero for the
        world.
    """
    (one, first), (two, second) = ends
    arms = points.pos - one, points.pos - two
    rate = second.at(arms[1]) - first.at(arms[0])
    axes = _axes(law, points, parameters, None)
    velocity = [axis | rate for axis in axes.linear]
    velocity += [axis | (second.ang - first.ang) for axis in axes.angular]
    cost, offset = _cost(law, points, parameters, velocity)
    return ContactRows(arms, axes.linear, axes.angular, cost, offset)


class ContactWrench(NamedTuple):
    """Forces of contacts on the second shape, `(k, *batch)`.

    - `arms`: position of each contact about the origins of the trees of both nodes.
    - `force`, `torque`: force, and torque about the contact.
    """

    arms: tuple[Vec3, Vec3]
    force: Vec3
    torque: Vec3 | None

    def on_both(self) -> tuple[Force, Force]:
        """Return the forces on both sides, about the origins of their trees."""
        found = []
        for arm, sign in zip(self.arms, (-1.0, 1.0), strict=True):
            pull = force_at(arm, self.force * sign)
            if self.torque is not None:
                pull = Force(pull.ang + (self.torque * sign), pull.lin)
            found.append(pull)
        return found[0], found[1]


def contact_wrench(rows: ContactRows, solved, motion) -> ContactWrench:
    """Return the forces of contacts.

    **Arguments:**

    - `solved`: motion of both nodes at the solution, which decides on the pieces of costs.
    - `motion`: motion of both nodes for which the forces are computed.
    """
    piece = rows.cost.piece(lax.stop_gradient(rows.residuals(*solved)))
    return rows.wrench(rows.cost.force(piece, rows.residuals(*motion)))


def with_world(tree, batch):
    """Append zeros for the world."""

    def one(x):
        x = jnp.broadcast_to(x, (x.shape[0], *batch))
        return jnp.concatenate([x, jnp.zeros_like(x[:1])])

    return jtu.tree_map(one, tree)


def anchored_rows(source: ContactSource) -> Rows:
    """Compute the rows of contacts of which one side stands still."""
    group = source.group
    points, parameters = take((source.points, source.parameters), group.points)
    axes = _axes(source.law, points, parameters, group.signs)
    arm = points.pos - take(source.origin, group.moving)
    speed = take(source.velocity, group.moving)
    rate = speed.at(arm)
    velocity = [axis | rate for axis in axes.linear]
    velocity += [axis | speed.ang for axis in axes.angular]
    cost, offset = _cost(source.law, points, parameters, velocity)
    jacobian = PointJacobian(group.moving, arm, axes.linear, axes.angular)
    return Rows(jacobian, cost, offset)


class _Axes(NamedTuple):
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...]


def _axes(law: ContactLaw, points, parameters, signs) -> _Axes:
    """Return the axes of the residuals; with pyramids, friction axes are multiplied by
    their coefficients.

    **Arguments:**

    - `signs`: -1 for points whose frame is turned, as the moving shape is the first one.
    """
    frame = [Vec3(*points.frame[3 * k : 3 * k + 3]) for k in range(3)]
    if signs is not None:
        sign = per_row(signs, points.dist)
        frame = [axis * sign for axis in frame]
    condim = law.condim
    linear = frame[: min(condim, 3)]
    angular = frame[: max(0, condim - 3)]
    if law.cone is Cone.PYRAMIDAL:
        scales = parameters.friction.coefficients
        linear[1:] = [axis * mu for axis, mu in zip(linear[1:], scales[:2])]
        angular = [axis * mu for axis, mu in zip(angular, scales[2:])]
    return _Axes(tuple(linear), tuple(angular))


def _cost(
    law: ContactLaw,
    points: ContactPoints,
    parameters: ContactParameters,
    velocity: list,
) -> tuple[AbstractCost, Residual]:
    """Return the cost of each contact, and the residuals at zero acceleration."""
    soft, mu = parameters.soft, parameters.friction.coefficients
    begun = onset(points.dist - parameters.friction.margin, law.width)
    imp = impedance(soft, begun.violation)
    inverse, impratio = parameters.weight, law.impratio[None]
    pyramidal = law.cone is Cone.PYRAMIDAL
    if law.kind is Pyramid:
        # The pyramid is scaled by the coefficient along the first axis.
        square = mu[0] * mu[0]
        inverse = inverse * (2.0 * square * (1.0 + square) / impratio)
    weight = stiffness_weight(imp, inverse) * begun.share
    weight = jnp.where(begun.exists & points.valid, weight, 0.0)
    damping = soft.b if pyramidal else parameters.friction_damping
    offset = (
        soft.b * velocity[0] + soft.k * imp * begun.violation,
        *(damping * rate for rate in velocity[1:]),
    )
    if law.kind is OneSided:
        return OneSided(weight), offset
    if law.kind is Pyramid:
        return Pyramid(weight), offset
    own = mu[: law.condim - 1]
    regular = mu[0] / jnp.sqrt(impratio)
    return Elliptic(weight, own, regular + 0.0 * weight), offset
