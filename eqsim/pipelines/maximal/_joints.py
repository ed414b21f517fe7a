r"""Joints as constraints between rigid bodies.

All joints of a link form one block. For each block, find the impulse $F$ (six
components) between the link and its parent, and the new rates $\dot q^+$ of its joints,
such that the two bodies move consistently with the joints:

$$V + K F = V - w + S(\dot q^+ - \dot q),$$

$$S^T F = h\,\tau - A(\dot q^+ - \dot q) - (h D + h^2 k)\,\dot q^+ + f.$$

$S$: motion axes; $V$: relative velocity of the bodies; $K$: sum of their inverse
inertias; $w$: relative velocity to remove; $A$, $D$, $k$: armature, damping, stiffness;
$f$: impulses of limits and dry friction. Eliminating $F = U(\dot q^+ - \dot q) - K^{-1}
w$ with $U = K^{-1} S$ gives a small system for the rates,

$$(S^T U + A + hD + h^2k)\,\dot q^+ = (S^T U + A)\,\dot q + S^T K^{-1} w + h\,\tau + f.$$

A body in $n$ blocks of a pass is split: each block uses $1/n$ of its inertia, and
averaging the velocities of the parts never adds energy (Tonge et al., *Mass splitting*,
2012).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ...constraint.joint_rows import ball_rotations
from ...dynamics.passive import armature, damping
from ...kinematics.link_motion import Frames, move_joint, Pose
from ...model import JointKind, System, Tree
from ...model.arrays import accumulate, concatenate, take
from ...spatial import clamp, Force, Motion, positive_part, Vec3
from ...spatial.clamps import at_least, at_most
from ...spatial.vectors import (
    ArticulatedInertia,
    diagonal,
    free_factor,
    free_solve,
    point_stiffness,
)
from ._rigid_bodies import (
    Bodies,
    body_layout,
    BodyParameters,
    InverseInertia,
    JointAxes,
    JointGroup,
    node_frames,
    of_bodies,
    small_rotation,
)


# Gauss-Seidel iterations over the limits and dry friction of joints that share a link.
_SWEEPS = 4


class JointFrames(NamedTuple):
    """Poses of links according to their joints: the frames of the links' nodes, and the
    motion axes about the links' actual centers of mass; both relative to the tree's
    origin."""

    pose: Pose
    axes: tuple[Motion, ...]


def joint_frames(
    sys: System,
    tree: Tree,
    frames: Frames,
    parameters: BodyParameters,
    group: JointGroup,
    bodies: Bodies,
    origin: Vec3,
    q,
) -> JointFrames:
    """Compute the poses of the links of a group from those of their parents and joint
    coordinates `q`.

    **Arguments:**

    - `origin`: origin of each body's tree, in the world.
    """
    pose = _parent_frames(parameters, group, bodies, origin)
    pose = pose @ take(frames.offset, group.axes[0].nodes)
    com, motions = take(bodies.com, group.bodies), []
    for axes in group.axes:
        pose, axis, point = move_joint(
            sys, tree, axes.nodes, axes.kind, axes.axis, frames, q, pose
        )
        turns = axes.kind is not JointKind.PRISMATIC
        motions.append(
            Motion(axis, axis.cross(com - point)) if turns else Motion(axis * 0.0, axis)
        )
    return JointFrames(pose, tuple(motions))


def _parent_frames(parameters, group: JointGroup, bodies: Bodies, origin: Vec3) -> Pose:
    rot, pos = of_bodies(node_frames(parameters, bodies), group.parents)
    if min(group.parents) >= 0:
        return Pose(rot, pos)
    fixed = _column([parent < 0 for parent in group.parents], pos.x)
    one = {"xx": rot.xx + fixed, "yy": rot.yy + fixed, "zz": rot.zz + fixed}
    return Pose(rot._replace(**one), pos - (take(origin, group.bodies) * fixed))


def _column(values, like):
    """Return static numbers as a column that broadcasts with the rows of `like`."""
    return np.array(values, like.dtype).reshape(-1, *(1 for _ in like.shape[1:]))


def joint_errors(
    parameters: BodyParameters, group: JointGroup, bodies: Bodies, frames: JointFrames
) -> Motion:
    """Return the displacement of links from the poses given by their joints, as a
    motion about their centers of mass."""
    com, rot, offset = take((bodies.com, bodies.rot, parameters.com), group.bodies)
    place = frames.pose.pos + (frames.pose.rot @ offset)
    return Motion(small_rotation(rot, frames.pose.rot), com - place)


def relative_velocity(group: JointGroup, bodies: Bodies) -> Motion:
    """Return the velocity of links relative to their parents, about the links' centers
    of mass."""
    link, parent = take(bodies, group.bodies), of_bodies(bodies, group.parents)
    arm = link.com - parent.com
    return link.velocity - Motion(parent.velocity.ang, parent.velocity.at(arm))


class AxisTerms(NamedTuple):
    r"""Terms along one motion axis of a group in a step `h`.

    - `rate`: $\dot q$.
    - `impulse`: $h\,\tau - (h D + h^2 k)\,\dot q$.
    - `inertia`: $A + h D + h^2 k$.
    - `lower`, `upper`: bounds of the new rate, from joint limits; None without limits.
    - `friction`: largest impulse of dry friction; None without friction.
    """

    rate: Any
    impulse: Any
    inertia: Any
    lower: Any
    upper: Any
    friction: Any


class BallLimit(NamedTuple):
    """The limit of the rotation angle of spherical joints: the rotation axis, as one
    entry for each motion axis of the group, and the largest rate about it."""

    axis: list
    upper: Any


class JointTerms(NamedTuple):
    """Terms along the motion axes of a group."""

    axes: list[AxisTerms]
    balls: list[BallLimit]


def joint_terms(
    sys: System, tree: Tree, group: JointGroup, q, qd, tau, h
) -> JointTerms:
    """Collect the terms along the joints of a group.

    **Arguments:**

    - `tau`: forces of actuators and springs, `(nv, *batch)`.
    """
    axes = [_axis_terms(sys, tree, axes, q, qd, tau, h) for axes in group.axes]
    return JointTerms(axes, _ball_limits(sys, tree, group, q, h))


def _axis_terms(sys: System, tree: Tree, axes: JointAxes, q, qd, tau, h) -> AxisTerms:
    joints = sys.joints
    dofs = [tree.dofs[node] for node in axes.nodes]
    own = [tree.joints[node] for node in axes.nodes]
    rate, force = take((qd, tau), dofs)
    resist, dry = take((damping(sys), joints.frictionloss), dofs)
    implicit = h * resist.slope(rate) + h * h * take(joints.stiffness, own)
    has_friction = [joints.has_friction[dof] for dof in dofs]
    friction = h * dry * _column(has_friction, dry) if any(has_friction) else None
    lower = upper = None
    limited = [joints.limited[j] and axes.kind.nv == 1 for j in own]
    if any(limited):
        flags = _column(limited, rate) > 0
        low, high = limit_gaps(sys, own, q)
        lower = jnp.where(flags, at_most(low, 0.0) / h, -jnp.inf)
        upper = jnp.where(flags, at_least(high, 0.0) / h, jnp.inf)
    force = force + resist.force(rate) - h * take(joints.stiffness, own) * rate
    diagonal = take(armature(sys), dofs) + implicit
    return AxisTerms(rate, h * force, diagonal, lower, upper, friction)


def _ball_limits(sys: System, tree: Tree, group: JointGroup, q, h) -> list[BallLimit]:
    found, joints = [], sys.joints
    for k, axes in enumerate(group.axes):
        own = [tree.joints[node] for node in axes.nodes]
        spherical = axes.kind is JointKind.SPHERICAL and axes.axis == 0
        if not spherical or not any(joints.limited[j] for j in own):
            continue
        axis, gap = ball_limit_gap(sys, own, q)
        flags = _column([joints.limited[j] for j in own], gap) > 0
        entries = [jnp.zeros_like(gap) for _ in group.axes]
        entries[k : k + 3] = axis
        upper = jnp.where(flags, at_least(gap, 0.0) / h, jnp.inf)
        found.append(BallLimit(entries, upper))
    return found


class JointSolution(NamedTuple):
    """The solved blocks of a group.

    - `impulse`: impulse on the links, about their centers of mass.
    - `rates`: new joint rates, axis by axis.
    - `constraint`: impulses of limits and dry friction, axis by axis.
    """

    group: JointGroup
    impulse: Force
    rates: list
    constraint: list


def solve_joints(
    group: JointGroup,
    bodies: Bodies,
    inverse: InverseInertia,
    axes: tuple[Motion, ...],
    remove: Motion,
    terms: JointTerms,
    compliance=(0.0, 0.0),
) -> JointSolution:
    """Solve the blocks of a group.

    **Arguments:**

    - `axes`: motion axes $S$, about the centers of mass of the links.
    - `remove`: relative velocity $w$ to remove.
    - `compliance`: compliance of the joints divided by $h^2$, in translation and
        rotation; added to $K$.
    """
    factored = free_factor(_relative_mobility(group, bodies, inverse, *compliance))
    response = [_impulse(factored, axis) for axis in axes]
    back = _impulse(factored, remove)
    own, n = terms.axes, range(len(axes))
    matrix = [[axes[max(i, j)].dot(response[min(i, j)]) for j in n] for i in n]
    load = [
        axes[i].dot(back)
        + own[i].impulse
        + (sum(matrix[i][j] * own[j].rate for j in n) + own[i].inertia * own[i].rate)
        for i in n
    ]
    for i in n:
        matrix[i][i] = matrix[i][i] + own[i].inertia
    rates, constraint = _solve_rates(matrix, load, terms)
    impulse = -back
    for force, new, axis in zip(response, rates, own, strict=True):
        impulse = impulse + (force * (new - axis.rate))
    return JointSolution(group, impulse, rates, constraint)


def _relative_mobility(
    group: JointGroup, bodies: Bodies, inverse: InverseInertia, linear, angular
) -> ArticulatedInertia:
    """Return $K$ about the links' centers of mass. It maps impulses to velocities, so
    the rotational block is eliminated first."""
    link, parent = take(inverse, group.bodies), of_bodies(inverse, group.parents)
    arm = of_bodies(bodies.com, group.parents) - take(bodies.com, group.bodies)
    one, two = (_column(share, link.mass) for share in group.shares)
    total = point_stiffness(arm, parent.rotational * two)
    mass = link.mass * one + parent.mass * two + linear
    soft = angular + jnp.zeros_like(mass)
    return ArticulatedInertia(
        total.ang + diagonal(mass, mass, mass),
        total.cross,
        total.lin + link.rotational * one + diagonal(soft, soft, soft),
    )


def _impulse(factored, motion: Motion) -> Force:
    """Return $K^{-1} V$: the impulse that produces a relative velocity."""
    lin, ang = free_solve(factored, Force(motion.lin, motion.ang))
    return Force(ang, lin)


def _solve_rates(matrix: list[list], load: list, terms: JointTerms):
    """Solve for the rates under limits and dry friction, by projected Gauss-Seidel from
    the solution without them; return the rates and the impulses of both."""
    factored = _factorize(matrix)
    rates, load = _substitute(factored, load), list(load)
    constraint = [jnp.zeros_like(rate) for rate in rates]
    for axis, upper in terms.balls:
        response = _substitute(factored, axis)
        excess = sum(a * r for a, r in zip(axis, rates, strict=True)) - upper
        ease = sum(a * d for a, d in zip(axis, response, strict=True))
        # There is no rotation axis at zero rotation.
        some = ease > 0.0
        push = jnp.where(some, positive_part(excess) / jnp.where(some, ease, 1.0), 0.0)
        for i, (a, d) in enumerate(zip(axis, response, strict=True)):
            rates[i], load[i] = rates[i] - push * d, load[i] - push * a
            constraint[i] = constraint[i] - push * a
    if all(axis.lower is None and axis.friction is None for axis in terms.axes):
        return rates, constraint
    turned, n = list(constraint), range(len(rates))
    for _ in range(_SWEEPS if len(rates) > 1 else 1):
        for i, axis in enumerate(terms.axes):
            force = load[i] - sum(matrix[i][j] * rates[j] for j in n if j != i)
            constraint[i] = turned[i]
            if axis.friction is not None:
                friction = -clamp(force, -axis.friction, axis.friction)
                force, constraint[i] = force + friction, constraint[i] + friction
            rates[i] = free = force / matrix[i][i]
            if axis.lower is not None:
                rates[i] = clamp(free, axis.lower, axis.upper)
                constraint[i] = constraint[i] + (rates[i] - free) * matrix[i][i]
    return rates, constraint


def _factorize(matrix: list[list]):
    """Factorize a small symmetric matrix of arrays as $L D L^T$."""
    n = len(matrix)
    lower: list[list[Any]] = [[None] * n for _ in range(n)]
    diag: list[Any] = []
    for j in range(n):
        d = matrix[j][j] - sum(lower[j][k] ** 2 * diag[k] for k in range(j))
        diag.append(d)
        for i in range(j + 1, n):
            rest = sum(lower[i][k] * lower[j][k] * diag[k] for k in range(j))
            lower[i][j] = (matrix[i][j] - rest) / d
    return lower, diag


def _substitute(factored, right: list) -> list:
    lower, diag = factored
    n, x = len(right), list(right)
    for i in range(n):
        x[i] = x[i] - sum(lower[i][k] * x[k] for k in range(i))
    x = [a / d for a, d in zip(x, diag, strict=True)]
    for i in reversed(range(n)):
        x[i] = x[i] - sum(lower[k][i] * x[k] for k in range(i + 1, n))
    return x


def net_impulse(solutions: list[JointSolution], bodies: Bodies) -> Force:
    """Sum the impulses of blocks on all bodies, with their reactions on the parents."""
    parts = []
    for group, impulse, *_ in solutions:
        n = bodies.com.x.shape[0]
        arm = take(bodies.com, group.bodies) - of_bodies(bodies.com, group.parents)
        back = Force(impulse.ang + arm.cross(impulse.lin), impulse.lin)
        own = accumulate(impulse, group.bodies, n)
        parts.append(own - accumulate(back, group.parents, n))
    return jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *parts)


def joint_rates(
    tree: Tree,
    solutions: list[JointSolution],
    bodies: Bodies,
    parameters: BodyParameters,
):
    """Return the rates of all joints in the order of `qd`; those of free joints are
    taken from their bodies."""
    index = [body_layout(tree).index[node] for node in range(tree.num_free)]
    rot, velocity, com = take((bodies.rot, bodies.velocity, parameters.com), index)
    free = [*velocity.at(-(rot @ com)), *(rot.T @ velocity.ang)]
    return _in_order(tree, free, [(s.group, s.rates) for s in solutions])


def joint_impulses(tree: Tree, solutions: list[JointSolution], like):
    """Return the impulses of limits and dry friction in the order of `qd`; `like` has
    the batch axes."""
    free = [jnp.zeros_like(like[: tree.num_free])] * 6
    return _in_order(tree, free, [(s.group, s.constraint) for s in solutions])


def _in_order(tree: Tree, free: list, parts: list):
    """Sort six rows of all free joints, and the axes of groups, by degree of
    freedom."""
    found = list(free)
    dofs = [dof + k for k in range(6) for dof in tree.dofs[: tree.num_free]]
    for group, values in parts:
        found += values
        dofs += [tree.dofs[node] for axes in group.axes for node in axes.nodes]
    return take(concatenate(found), sorted(range(len(dofs)), key=dofs.__getitem__))


# Distances of joints from their limits.


def limit_gaps(sys: System, joints: Sequence[int], q):
    """Return the distances of hinges and slides from their lower limits, negative
    within the range, and from their upper limits, positive within the range."""
    range_, margin = take((sys.joints.range, sys.joints.limit_margin), joints)
    at = take(q, [sys.joints.q_starts[j] for j in joints])
    return range_[:, 0] + margin - at, range_[:, 1] - margin - at


def ball_limit_gap(sys: System, joints: Sequence[int], q) -> tuple[Vec3, Any]:
    """Return the rotation axes of spherical joints, in the links, and the distances of
    their angles from the limits, positive within the range."""
    axis, angle = ball_rotations(sys, joints, q)
    range_, margin = take((sys.joints.range, sys.joints.limit_margin), joints)
    return axis, at_least(range_[:, 0], range_[:, 1]) - margin - angle
