r"""The rows of MuJoCo's convex problem.

Each row has a residual $x = J a - a_\mathrm{ref}$, a weight $D$, and a force that is
the negative slope of its cost: $-D x$ while $x < 0$ for limits and for the edges of
friction pyramids, $-\mathrm{clip}(D x, \pm f)$ for dry friction. So forces are
piecewise linear in the acceleration, and which piece holds is all that Newton's method
needs to know.

Rows of contacts are kept as points: with normal $n$ and friction axes $m_k = \mu_k
t_k$, the four edges of a pyramid are $n \pm m_1, n \pm m_2$.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Kinematics
from ..model import JointKind, System, take, Tree
from ..spatial import (
    logarithm,
    Motion,
    normalize4,
    Vec3,
)
from ._detect import ContactPoints
from ._parameters import ContactParameters
from ._plan import ContactPlan
from ._softness import impedance, onset, Softness, softness, stiffness_weight


class PointRows(NamedTuple):
    """Contact points: `arms` are their places about the origins of the two nodes."""

    arms: tuple[Vec3, Vec3]
    normal: Vec3
    side1: Vec3
    side2: Vec3
    offsets: tuple[Any, Any, Any]
    weight: Any


class JointRows(NamedTuple):
    """Rows on one degree of freedom: `sign * a + offset`."""

    offset: Any
    weight: Any


class BallRows(NamedTuple):
    """Limits of spherical joints: `-axis . a + offset`, axis in the child link."""

    axis: Vec3
    offset: Any
    weight: Any


class Rows(NamedTuple):
    """All rows: contacts with the world, contacts between moving links, lower and upper
    limits, dry friction (with the largest force), limits of spherical joints."""

    anchored: PointRows
    moving: PointRows
    lower: JointRows
    upper: JointRows
    friction: JointRows
    largest: Any
    ball: BallRows


def limited_joints(sys: System, spherical: bool) -> list[int]:
    """The joints with a limit: spherical ones, or hinges and slides."""
    kinds = (JointKind.SPHERICAL,)
    if not spherical:
        kinds = (JointKind.REVOLUTE, JointKind.PRISMATIC)
    joints = sys.joints
    return [
        j for j in range(sys.njoint) if joints.limited[j] and joints.kinds[j] in kinds
    ]


def limited_dofs(sys: System) -> list[int]:
    """The degrees of freedom with a lower and an upper limit."""
    return [sys.joints.v_starts[j] for j in limited_joints(sys, False)]


def friction_dofs(sys: System) -> list[int]:
    """The degrees of freedom with dry friction."""
    return [i for i, has in enumerate(sys.joints.has_friction) if has]


def point_rows(
    tree: Tree,
    plan: ContactPlan,
    kin: Kinematics,
    points: ContactPoints,
    numbers: ContactParameters,
    velocity: Motion,
    width,
) -> tuple[PointRows, PointRows]:
    """Rows of contacts with the world, and between moving links, with the width of
    their onset."""
    frame = points.frame
    normal = Vec3(*frame[0:3])
    side1 = Vec3(*frame[3:6]) * numbers.friction.coefficient1
    side2 = Vec3(*frame[6:9]) * numbers.friction.coefficient2
    begun = onset(points.dist - numbers.friction.margin, width)
    imp = impedance(numbers.soft, begun.violation)
    weight = stiffness_weight(imp, numbers.weight) * begun.share
    weight = jnp.where(begun.exists & points.valid, weight, 0.0)
    spring = numbers.soft.k * imp * begun.violation
    data = (points.pos, normal, side1, side2, weight, spring, numbers.soft.b)
    n = plan.num_anchored
    out = []
    for which, with_world in ((range(n), True), (range(n, plan.size), False)):
        pos, normal, side1, side2, weight, spring, damping = take(data, which)
        ends = [plan.nodes[k] for k in which]
        if with_world:
            # The moving side counts; signs turn the frame if it is the first shape.
            nodes = [max(end) for end in ends]
            sign = [1.0 if end[1] >= 0 else -1.0 for end in ends]
            sign = jnp.asarray(sign, weight.dtype)
            sign = sign.reshape(-1, *(1 for _ in weight.shape[1:]))
            normal, side1, side2 = normal * sign, side1 * sign, side2 * sign
            arm = pos - take(kin.origin, nodes)
            arms, speed = (arm, arm), take(velocity, nodes).at(arm)
        else:
            one, two = [end[0] for end in ends], [end[1] for end in ends]
            roots = [[tree.roots[node] for node in side] for side in (one, two)]
            arms = tuple(pos - take(kin.origin, root) for root in roots)
            speed = take(velocity, two).at(arms[1]) - take(velocity, one).at(arms[0])
        offsets = (
            damping * (normal | speed) + spring,
            damping * (side1 | speed),
            damping * (side2 | speed),
        )
        out.append(PointRows(arms, normal, side1, side2, offsets, weight))
    return out[0], out[1]


def no_points(like) -> PointRows:
    """Rows of no contacts, with the batch axes of `like`."""
    none = like[:0]
    vector = Vec3(none, none, none)
    return PointRows((vector, vector), vector, vector, vector, (none, none, none), none)


class JointSoftness(NamedTuple):
    """State-independent numbers of limits, dry friction and spherical limits."""

    limit: Softness
    friction: Softness
    ball: Softness


def joint_softness(sys: System) -> JointSoftness:
    """Softness of all rows that are not contacts."""
    joints = sys.joints
    columns = lambda x, n: [x[:, k] for k in range(n)]
    soft = lambda ref, imp, index: softness(
        take(columns(ref, 2), index),
        take(columns(imp, 5), index),
        sys.dt[None],
        sys.safe_solref,
    )
    hinges, balls = limited_joints(sys, False), limited_joints(sys, True)
    return JointSoftness(
        soft(joints.limit_solref, joints.limit_solimp, hinges),
        soft(joints.friction_solref, joints.friction_solimp, friction_dofs(sys)),
        soft(joints.limit_solref, joints.limit_solimp, balls),
    )


def joint_rows(sys: System, soft: JointSoftness, dof_weights, q, qd):
    """Rows of limits and dry friction: lower, upper, friction, largest, ball."""
    joints = sys.joints
    hinges, dofs = limited_joints(sys, False), limited_dofs(sys)
    low, high, margin = take(
        (joints.range[:, 0], joints.range[:, 1], joints.limit_margin), hinges
    )
    at = take(q, [joints.q_starts[j] for j in hinges])
    rate, weight = take((qd, dof_weights), dofs)
    lower = _limit(soft.limit, at - low - margin, rate, weight)
    upper = _limit(soft.limit, high - at - margin, -rate, weight)
    rubbing = friction_dofs(sys)
    rate, weight, largest = take((qd, dof_weights, joints.frictionloss), rubbing)
    imp = impedance(soft.friction, jnp.zeros_like(rate))
    friction = JointRows(soft.friction.b * rate, stiffness_weight(imp, weight))
    return lower, upper, friction, largest, _ball(sys, soft.ball, dof_weights, q, qd)


def _limit(soft: Softness, violation, rate, weight) -> JointRows:
    imp = impedance(soft, violation)
    weight = jnp.where(violation < 0.0, stiffness_weight(imp, weight), 0.0)
    return JointRows(soft.b * rate + soft.k * imp * violation, weight)


def ball_rotations(sys: System, balls: Sequence[int], q) -> tuple[Vec3, Any]:
    """Axes, in the child links, and angles of the rotations of spherical joints; both
    zero, with derivative zero, where there is none."""
    quat = [take(q, [sys.joints.q_starts[j] + k for j in balls]) for k in range(4)]
    rotation = logarithm(normalize4(quat))
    square = rotation | rotation
    rest = square < 1e-20
    angle = jnp.where(rest, 0.0, jnp.sqrt(jnp.where(rest, 1.0, square)))
    return rotation * jnp.where(rest, 0.0, 1.0 / jnp.where(rest, 1.0, angle)), angle


def _ball(sys: System, soft: Softness, dof_weights, q, qd) -> BallRows:
    joints, balls = sys.joints, limited_joints(sys, True)
    axis, angle = ball_rotations(sys, balls, q)
    starts = [joints.v_starts[j] for j in balls]
    spin = Vec3(*(take(qd, [start + k for start in starts]) for k in range(3)))
    low, high, margin = take(
        (joints.range[:, 0], joints.range[:, 1], joints.limit_margin), balls
    )
    violation = jnp.maximum(low, high) - angle - margin
    rows = _limit(soft, violation, -(axis | spin), take(dof_weights, starts))
    return BallRows(axis, rows.offset, rows.weight)
