r"""Contact forces that explain a measured change of velocity, and how much they violate
the laws of contact and friction.

With accelerations $\bar a$ and velocities $v$ after an interval $\delta$ as measured, the
forces $f$ in the friction cones minimize

$$\tfrac12 |a - \bar a|_M^2 + \tfrac1\delta c \cdot f + \tfrac12 f^\top R f, \qquad
M a = \tau + J^\top f.$$

This is the dual of the problem that `eqsim.constraint` solves, with the rows $x = J (a -
\bar a) + c / \delta$.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._batching import batch_last, full_batch
from ..collision import contact_plan
from ..constraint import AbstractConstraint, AbstractRows, Elliptic, OneSided, RobotData
from ..constraint.contact_rows import (
    anchored_rows,
    contact_groups,
    contact_parameters,
    ContactGroup,
    ContactParameters,
    ContactSource,
)
from ..constraint.equalities import point_jacobians
from ..constraint.newton import node_motion
from ..constraint.rows import AbstractJacobian, DenseJacobian, Rows
from ..dynamics.weights import InverseWeights
from ..model import Cone, System, tree
from ..model.arrays import take
from ..pipelines.forward_dynamics import (
    derive,
    forward,
    Prepared,
    Settings,
    solved_forces,
    StepInputs,
)
from ..spatial import safe_sqrt, Vec3


_REGULARIZATION = 1e-3
"""Regularization of forces, relative to the inverse weight of a contact: forces are unique
where several contacts share a load."""


class ContactLaw(AbstractConstraint):
    """Contacts that act in a measured interval, at a cost for each violation.

    Friction cones are elliptic, whatever `System.cone`.

    - `acceleration`, `velocity`: measured acceleration, and velocity after the interval,
        `(nv,)`.
    - `interval`: duration of the change of velocity. `ahead`: time to the next
        coordinates, s.
    - `complementarity`, `dissipation`: weights of the violations, see `Violation`.
    - `reach`: distance within which points are computed, m.
    """

    acceleration: Any
    velocity: Any
    interval: Any
    ahead: Any
    complementarity: Any
    dissipation: Any
    reach: Any

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        return contact_parameters(sys, contact_plan(sys), weights.link)

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        return tuple(
            self._group_rows(sys, constants, now, group)
            for group in contact_groups(sys)
        )

    def _group_rows(
        self, sys: System, parameters: ContactParameters, now: RobotData, group
    ) -> Rows:
        jacobian = _jacobian(sys, parameters, now, group)
        assert now.every_point is not None
        points, own = take((now.every_point, parameters), group.points)
        rates = self._times(sys, now, jacobian, self.acceleration)
        speeds = self._times(sys, now, jacobian, self.velocity)
        distance = points.dist - own.friction.margin
        after = distance + self.ahead[None] * speeds[0]
        cost = self.complementarity[None] * jnp.abs(after) / self.ahead[None]
        friction = own.friction.coefficients[: group.condim - 1]
        if friction:
            pairs = zip(friction, speeds[1:], strict=True)
            slip = safe_sqrt(sum((mu * speed) ** 2 for mu, speed in pairs))
            cost = cost + self.dissipation[None] * slip
        costs = (cost, *(self.dissipation[None] * speed for speed in speeds[1:]))
        pairs = zip(costs, rates, strict=True)
        offset = tuple(c / self.interval[None] - rate for c, rate in pairs)
        weight = jnp.where(points.valid, 1.0 / (_REGULARIZATION * own.weight), 0.0)
        if not friction:
            return Rows(jacobian, OneSided(weight), offset)
        mu = friction[0] + 0.0 * weight
        return Rows(jacobian, Elliptic(weight, friction, mu), offset)

    def _times(self, sys: System, now: RobotData, jacobian: AbstractJacobian, rate):
        return jacobian.times(node_motion(tree(sys), now.kin, rate), rate)


def _jacobian(
    sys: System, parameters: ContactParameters, now: RobotData, group: ContactGroup
) -> AbstractJacobian:
    """Compute how contacts move along the normal and their friction axes."""
    assert now.every_point is not None
    source = ContactSource(
        group=group,
        cone=Cone.ELLIPTIC,
        points=now.every_point,
        parameters=parameters,
        origin=now.kin.origin,
        velocity=now.velocities.velocity,
        impratio=sys.impratio,
        width=None,
    )
    if group.anchored:
        return anchored_rows(source).jacobian
    rows, nodes = source.rows(), tree(sys)
    ends = [
        point_jacobians(nodes, now, carriers, arm)
        for carriers, arm in zip(group.nodes, rows.arms, strict=True)
    ]
    lin, ang = (ends[1][k] - ends[0][k] for k in (0, 1))
    by_row = lambda axis: Vec3(*(x[:, None] for x in axis))
    along = [by_row(axis) | lin for axis in rows.linear]
    return DenseJacobian((*along, *(by_row(axis) | ang for axis in rows.angular)))


class Explanation(NamedTuple):
    """Accelerations and contact forces that explain a measurement best.

    - `acceleration`: $a$, `(nv,)`.
    - `violation`: $\\tfrac1\\delta c \\cdot f + \\tfrac12 f^\\top R f$ of each contact, N
        m/s$^2$, `(n,)`.
    - `penetration`: depth of each contact times the square root of the mass that it moves,
        `(n,)`.
    """

    acceleration: Any
    violation: Any
    penetration: Any


def explain(sys: System, settings: Settings, q, qd, ctrl) -> Explanation:
    """Find contact forces.

    **Arguments:**

    - `settings`: constraints, of which the first is a `ContactLaw`; solver.
    - `q`, `qd`, `ctrl`: state and commands.
    """
    constants, law = _derive(sys, settings), _law(settings)
    if constants.geoms.margin is not None:
        margin = constants.geoms.margin + law.reach
        constants = eqx.tree_at(lambda c: c.geoms.margin, constants, margin)
    inputs = StepInputs(q, qd, jnp.zeros(sys.na, q.dtype), ctrl, None)
    return Explanation(*_explain(Prepared(sys, settings, constants), inputs))


def _law(settings: Settings) -> ContactLaw:
    law = settings.constraints[0]
    assert isinstance(law, ContactLaw)
    return law


@batch_last
def _explain(prepared: Prepared, inputs: StepInputs):
    now = forward(prepared, full_batch(inputs, prepared))
    return now.solution.qdd, _violations(prepared, now), _depths(prepared, now)


def _violations(prepared: Prepared, now: RobotData):
    """Compute the violation of each contact."""
    law, found = _law(prepared.settings), []
    at = lambda qdd: (node_motion(tree(prepared.sys), now.kin, qdd), qdd)
    measured, explained = at(law.acceleration), at(now.solution.qdd)
    forces = solved_forces(prepared, now)[ContactLaw]
    for rows, force in zip(now.problem.rows[ContactLaw], forces, strict=True):
        # The cost is homogeneous of degree two: at the solution it is -x f / 2.
        costs = rows.residuals(*measured), rows.residuals(*explained)
        trio = zip(*costs, force, strict=True)
        found.append(sum((c - 0.5 * x) * f for c, x, f in trio))
    return jnp.concatenate(found)


def _depths(prepared: Prepared, now: RobotData):
    """Compute the depth of each contact times the square root of the mass it moves."""
    parameters: ContactParameters = prepared.constants.constraints[0]
    points = now.every_point
    assert points is not None
    distance = points.dist - parameters.friction.margin
    depth = jnp.where(points.valid, jnp.minimum(distance, 0.0), 0.0)
    return depth / jnp.sqrt(parameters.weight)


_derive = batch_last(derive)
