r"""The rows of MuJoCo's convex problem.

Each row has a residual $x = J a - a_\mathrm{ref}$, a weight $D$, and a force that is
the negative slope of its cost: $-D x$ while $x < 0$ for limits and for the edges of
friction pyramids, $-\mathrm{clip}(D x, \pm f)$ for dry friction. So forces are
piecewise linear in the acceleration, and the active set, which says on which piece each
row is, determines a Newton step.

Rows of contacts are kept as points: with normal $n$ and friction axes $m_k = \mu_k
t_k$, the four edges of a pyramid are $n \pm m_1, n \pm m_2$.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Kinematics
from ..model import per_row, System, take
from ..spatial import logarithm, Motion, normalize4, Vec3
from ._detect import ContactPoints
from ._parameters import ContactParameters
from ._softness import impedance, onset, Softness, softness, stiffness_weight
from ._structure import LimitedJoints, Structure


class PointRows(NamedTuple):
    """Rows of contact points, `(npoint, *batch)`.

    - `arms`: positions about the origins of the trees of the two nodes.
    - `normal`, `side1`, `side2`: normal, and friction axes times coefficients.
    - `offsets`: reference accelerations along them, negated.
    - `weight`: weight $D$ of each edge of the pyramid; zero where there is no contact.
    """

    arms: tuple[Vec3, Vec3]
    normal: Vec3
    side1: Vec3
    side2: Vec3
    offsets: tuple[Any, Any, Any]
    weight: Any


class JointRows(NamedTuple):
    """Rows on one degree of freedom, with residuals `sign * a + offset`."""

    offset: Any
    weight: Any


class BallRows(NamedTuple):
    """Limits of spherical joints, with residuals `-axis . a + offset`; the axis is in the
    child link."""

    axis: Vec3
    offset: Any
    weight: Any


class Rows(NamedTuple):
    """All rows of a problem.

    - `anchored`: contacts with the world.
    - `moving`: contacts between moving links.
    - `lower`, `upper`: limits of hinges and slides.
    - `friction`: dry friction.
    - `largest`: largest force of dry friction.
    - `ball`: limits of spherical joints.
    """

    anchored: PointRows
    moving: PointRows
    lower: JointRows
    upper: JointRows
    friction: JointRows
    largest: Any
    ball: BallRows


class _Contacts(NamedTuple):
    """Points with the normal, the friction axes times coefficients, the weight, and
    spring and damping of the reference acceleration."""

    pos: Vec3
    normal: Vec3
    side1: Vec3
    side2: Vec3
    weight: Any
    spring: Any
    damping: Any

    def rows(self, arms: tuple[Vec3, Vec3], velocity: Vec3) -> PointRows:
        """Return the rows at a relative velocity of the two surfaces."""
        offsets = (
            self.damping * (self.normal | velocity) + self.spring,
            self.damping * (self.side1 | velocity),
            self.damping * (self.side2 | velocity),
        )
        axes = self.normal, self.side1, self.side2
        return PointRows(arms, *axes, offsets, self.weight)


def point_rows(
    structure: Structure,
    kin: Kinematics,
    points: ContactPoints,
    parameters: ContactParameters,
    velocity: Motion,
    width,
) -> tuple[PointRows, PointRows]:
    """Compute the rows of contacts with the world, and between moving links.

    **Arguments:**

    - `velocity`: velocity of each node about the origin of its tree.
    - `width`: width of the onset of contacts, m.
    """
    friction, soft, frame = parameters.friction, parameters.soft, points.frame
    begun = onset(points.dist - friction.margin, width)
    imp = impedance(soft, begun.violation)
    weight = stiffness_weight(imp, parameters.weight) * begun.share
    contacts = _Contacts(
        points.pos,
        Vec3(*frame[0:3]),
        Vec3(*frame[3:6]) * friction.coefficient1,
        Vec3(*frame[6:9]) * friction.coefficient2,
        jnp.where(begun.exists & points.valid, weight, 0.0),
        soft.k * imp * begun.violation,
        soft.b,
    )
    n = len(structure.anchored)
    anchored, moving = range(n), range(n, points.dist.shape[0])
    return (
        _anchored_rows(structure, kin, take(contacts, anchored), velocity),
        _moving_rows(structure, kin, take(contacts, moving), velocity),
    )


def _anchored_rows(structure: Structure, kin, contacts: _Contacts, velocity: Motion):
    nodes = structure.anchored
    # The frame is turned where the moving shape is the first one.
    sign = per_row(structure.signs, contacts.weight)
    contacts = contacts._replace(
        normal=contacts.normal * sign,
        side1=contacts.side1 * sign,
        side2=contacts.side2 * sign,
    )
    arm = contacts.pos - take(kin.origin, nodes)
    return contacts.rows((arm, arm), take(velocity, nodes).at(arm))


def _moving_rows(structure: Structure, kin, contacts: _Contacts, velocity: Motion):
    first, second = structure.moving_nodes
    arms = (
        contacts.pos - take(kin.origin, first),
        contacts.pos - take(kin.origin, second),
    )
    speed = take(velocity, second).at(arms[1]) - take(velocity, first).at(arms[0])
    return contacts.rows(arms, speed)


def no_points(like) -> PointRows:
    """Return rows of no contacts, with the batch axes of `like`."""
    none = like[:0]
    vector = Vec3(none, none, none)
    return PointRows((vector, vector), vector, vector, vector, (none, none, none), none)


class JointSoftness(NamedTuple):
    """Softness of limits, dry friction and limits of spherical joints."""

    limit: Softness
    friction: Softness
    ball: Softness


def joint_softness(sys: System, structure: Structure) -> JointSoftness:
    """Compute the softness of all rows that are not contacts."""
    joints = sys.joints
    columns = lambda x, n: [x[:, k] for k in range(n)]
    soft = lambda ref, imp, index: softness(
        take(columns(ref, 2), index),
        take(columns(imp, 5), index),
        sys.dt[None],
        sys.safe_solref,
    )
    limit = joints.limit_solref, joints.limit_solimp
    friction = joints.friction_solref, joints.friction_solimp
    return JointSoftness(
        soft(*limit, structure.limited.joints),
        soft(*friction, structure.friction_dofs),
        soft(*limit, structure.balls.joints),
    )


def joint_rows(
    sys: System, structure: Structure, soft: JointSoftness, dof_weights, q, qd
):
    """Compute the rows of limits and dry friction: `lower`, `upper`, `friction`,
    `largest` and `ball` of `Rows`."""
    low, high, margin = _limits(sys, structure.limited)
    position = take(q, structure.limited.coordinates)
    rate, weight = take((qd, dof_weights), structure.limited.dofs)
    lower = _limit(soft.limit, position - low - margin, rate, weight)
    upper = _limit(soft.limit, high - position - margin, -rate, weight)
    rate, weight, largest = take(
        (qd, dof_weights, sys.joints.frictionloss), structure.friction_dofs
    )
    imp = impedance(soft.friction, jnp.zeros_like(rate))
    friction = JointRows(soft.friction.b * rate, stiffness_weight(imp, weight))
    ball = _ball(sys, structure.balls, soft.ball, dof_weights, q, qd)
    return lower, upper, friction, largest, ball


def _limits(sys: System, limited: LimitedJoints):
    joints = sys.joints
    values = joints.range[:, 0], joints.range[:, 1], joints.limit_margin
    return take(values, limited.joints)


def _limit(soft: Softness, violation, rate, weight) -> JointRows:
    imp = impedance(soft, violation)
    weight = jnp.where(violation < 0.0, stiffness_weight(imp, weight), 0.0)
    return JointRows(soft.b * rate + soft.k * imp * violation, weight)


def ball_rotations(sys: System, balls: Sequence[int], q) -> tuple[Vec3, Any]:
    """Compute axes, in the child links, and angles of the rotations of spherical joints;
    both are zero, with derivative zero, at no rotation."""
    quat = [take(q, [sys.joints.q_starts[j] + k for j in balls]) for k in range(4)]
    rotation = logarithm(normalize4(quat))
    square = rotation | rotation
    rest = square < 1e-20
    angle = jnp.where(rest, 0.0, jnp.sqrt(jnp.where(rest, 1.0, square)))
    return rotation * jnp.where(rest, 0.0, 1.0 / jnp.where(rest, 1.0, angle)), angle


def _ball(
    sys: System, balls: LimitedJoints, soft: Softness, dof_weights, q, qd
) -> BallRows:
    axis, angle = ball_rotations(sys, balls.joints, q)
    spin = Vec3(*(take(qd, [dof + k for dof in balls.dofs]) for k in range(3)))
    low, high, margin = _limits(sys, balls)
    violation = jnp.maximum(low, high) - angle - margin
    rows = _limit(soft, violation, -(axis | spin), take(dof_weights, balls.dofs))
    return BallRows(axis, rows.offset, rows.weight)
