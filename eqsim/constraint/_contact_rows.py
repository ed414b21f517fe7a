"""Rows of contacts, from a point, the parameters of its pair, and the motion of its two
links."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ..collision import ContactPoints
from ..model import Cone
from ..model._gather import per_row, take, take_or_zero
from ..spatial import Motion, Vec3
from ._cones import Elliptic, Pyramid
from ._contact_groups import ContactGroup
from ._contact_parameters import ContactParameters
from ._costs import AbstractCost, OneSided, Residual
from ._jacobians import PointJacobian
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
    def kind(self) -> type[OneSided] | type[Pyramid] | type[Elliptic]:
        """The class of the costs."""
        if self.group.condim == 1:
            return OneSided
        return Pyramid if self.cone is Cone.PYRAMIDAL else Elliptic

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
        return self._rows(points, parameters, ends)

    def row(self, k) -> ContactRows:
        """Compute the rows of one point of each environment, the `k`-th of the group;
        rows of weight zero beyond the last one."""
        count = len(self.group.points)
        inside, k = k < count, jnp.minimum(k, count - 1)
        number = _table(self.group.points, k)
        points, parameters = rows_at((self.points, self.parameters), number)
        # Beyond the last node, all is zero: the world stands still.
        world = self.origin.x.shape[0]
        ends = []
        for nodes in self.group.nodes:
            node = _table([node if node >= 0 else world for node in nodes], k)
            ends.append(rows_at((self.origin, self.velocity), node))
        points = points._replace(valid=points.valid & inside[None])
        return self._rows(points, parameters, ends)

    def _rows(self, points, parameters, ends) -> ContactRows:
        (one, first), (two, second) = ends
        arms = points.pos - one, points.pos - two
        rate = second.at(arms[1]) - first.at(arms[0])
        axes = _axes(self, points, parameters, None)
        velocity = [axis | rate for axis in axes.linear]
        velocity += [axis | (second.ang - first.ang) for axis in axes.angular]
        cost, offset = _cost(self, points, parameters, velocity)
        return ContactRows(arms, axes.linear, axes.angular, cost, offset)


def rows_at(tree, index):
    """Return row `index` of each environment, of all arrays `(n, ..., *batch)`: shape `(1,
    ..., *batch)`; zeros beyond the last row."""

    def one(x):
        inner = x.ndim - 1 - index.ndim
        own = index.reshape(1, *(1 for _ in range(inner)), *index.shape)
        x = jnp.broadcast_to(x, (*x.shape[: 1 + inner], *index.shape))
        own = jnp.broadcast_to(own, (1, *x.shape[1:]))
        return jnp.take_along_axis(x, own, axis=0, mode="fill", fill_value=0)

    return jtu.tree_map(one, tree)


def _table(numbers, index):
    """Return entry `index` of a list of known numbers, in each environment."""
    column = np.asarray(numbers, np.int32).reshape(-1, *(1 for _ in index.shape))
    return rows_at(jnp.asarray(column), index)[0]


def anchored_rows(source: ContactSource) -> Rows:
    """Compute the rows of contacts of which one side stands still."""
    group = source.group
    points, parameters = take((source.points, source.parameters), group.points)
    axes = _axes(source, points, parameters, group.signs)
    arm = points.pos - take(source.origin, group.moving)
    speed = take(source.velocity, group.moving)
    rate = speed.at(arm)
    velocity = [axis | rate for axis in axes.linear]
    velocity += [axis | speed.ang for axis in axes.angular]
    cost, offset = _cost(source, points, parameters, velocity)
    jacobian = PointJacobian(group.moving, arm, axes.linear, axes.angular)
    return Rows(jacobian, cost, offset)


class _Axes(NamedTuple):
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...]


def _axes(source: ContactSource, points, parameters, signs) -> _Axes:
    """Return the axes of the residuals; with pyramids, friction axes are multiplied by
    their coefficients.

    **Arguments:**

    - `signs`: -1 for points whose frame is turned, as the moving shape is the first one.
    """
    frame = [Vec3(*points.frame[3 * k : 3 * k + 3]) for k in range(3)]
    if signs is not None:
        sign = per_row(signs, points.dist)
        frame = [axis * sign for axis in frame]
    condim = source.group.condim
    linear = frame[: min(condim, 3)]
    angular = frame[: max(0, condim - 3)]
    if source.cone is Cone.PYRAMIDAL:
        scales = parameters.friction.coefficients
        linear[1:] = [axis * mu for axis, mu in zip(linear[1:], scales[:2])]
        angular = [axis * mu for axis, mu in zip(angular, scales[2:])]
    return _Axes(tuple(linear), tuple(angular))


def _cost(
    source: ContactSource,
    points: ContactPoints,
    parameters: ContactParameters,
    velocity: list,
) -> tuple[AbstractCost, Residual]:
    """Return the cost of each contact, and the residuals at zero acceleration."""
    soft, mu = parameters.soft, parameters.friction.coefficients
    begun = onset(points.dist - parameters.friction.margin, source.width)
    imp = impedance(soft, begun.violation)
    inverse, impratio = parameters.weight, source.impratio[None]
    pyramidal = source.cone is Cone.PYRAMIDAL
    if source.kind is Pyramid:
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
    if source.kind is OneSided:
        return OneSided(weight), offset
    if source.kind is Pyramid:
        return Pyramid(weight), offset
    own = mu[: source.group.condim - 1]
    regular = mu[0] / jnp.sqrt(impratio)
    return Elliptic(weight, own, regular + 0.0 * weight), offset
