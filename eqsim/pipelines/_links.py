r"""Joints between bodies, in blocks: one for all joints of a link.

A block finds the impulse $F$ (6 numbers) between a link and its parent and the rates
$\dot q^+$ of their joints, so that the two bodies move as the joints allow. With the
motion axes $S$, the relative velocity $V$, the mobility $K$ of the two bodies (the
sum of their inverse inertias), and $w$ the velocity that the joint is to take away,

$$V + K F = V - w + S(\dot q^+ - \dot q), \qquad
S^T F = h\,\tau - A(\dot q^+ - \dot q) - (h D + h^2 k)\,\dot q^+ + \text{limits, dry
friction},$$

with armature $A$, damping $D$ and springs $k$ of the joints, all implicit in the step
$h$. So $F = U(\dot q^+ - \dot q) - K^{-1} w$ with $U = K^{-1} S$, and
$(S^T U + A + hD + h^2k)\,\dot q^+ = \dots$ is a system of the size of the joints.

Bodies that take part in several blocks at once are split among them: each block sees
the $n$-th part of the mass of a body that has $n$ of them, and the velocity of the body
is the mean of those of its parts. So blocks that do not know of each other never add
energy (Tonge, Benevolenski, Voroshilov, *Mass splitting for jitter-free parallel rigid
body simulation*, 2012).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..contact._rows import ball_rotations
from ..kinematics._forward import Frames, move_joint, Pose
from ..model import JointKind, System, take, Tree
from ..spatial import (
    ArticulatedInertia,
    diagonal,
    Force,
    free_factor,
    free_solve,
    FreeFactor,
    Motion,
    point_stiffness,
    Vec3,
)
from ._bodies import (
    Bodies,
    BodyNumbers,
    frame_poses,
    Mobility,
    small_rotation,
    with_world,
)
from ._groups import Group


# Sweeps over the limits and dry frictions of joints that share a link.
_SWEEPS = 4


class Place(NamedTuple):
    """Where a joint puts its link: the frame of the link's node, and the motion axes
    about the actual center of mass of the link; relative to the tree's origin."""

    pose: Pose
    axes: tuple[Motion, ...]


def place(
    sys: System,
    tree: Tree,
    fixed: Frames,
    numbers: BodyNumbers,
    group: Group,
    bodies: Bodies,
    origin: Vec3,
    q,
) -> Place:
    """Where the joints at coordinates `q` put the links of a group, given where their
    parents are.

    **Arguments:**

    - `origin`: of the tree of each body, in the world.
    """
    pose = _parent_pose(numbers, group, bodies, origin)
    pose = pose @ take(fixed.offset, group.axes[0].nodes)
    raw = []
    for axes in group.axes:
        pose, axis, point = move_joint(
            sys, tree, axes.nodes, axes.kind, axes.axis, fixed, q, pose
        )
        raw.append((axis, point))
    return Place(pose, _about(group, take(bodies.com, group.bodies), raw))


def _parent_pose(numbers, group: Group, bodies: Bodies, origin: Vec3) -> Pose:
    rows = [parent + 1 for parent in group.parents]
    rot, pos = take(with_world(frame_poses(numbers, bodies)), rows)
    if min(group.parents) >= 0:
        return Pose(rot, pos)
    fixed = np.array([parent < 0 for parent in group.parents], pos.x.dtype)
    fixed = fixed.reshape(-1, *(1 for _ in pos.x.shape[1:]))
    one = {"xx": rot.xx + fixed, "yy": rot.yy + fixed, "zz": rot.zz + fixed}
    return Pose(rot._replace(**one), pos - (take(origin, group.bodies) * fixed))


def _about(group: Group, com: Vec3, raw) -> tuple[Motion, ...]:
    """Motion axes about the centers of mass of the links."""
    axes = []
    for kind, (axis, point) in zip((a.kind for a in group.axes), raw, strict=True):
        if kind is JointKind.PRISMATIC:
            axes.append(Motion(Vec3(*(x * 0.0 for x in axis)), axis))
        else:
            axes.append(Motion(axis, axis ^ (com - point)))
    return tuple(axes)


def joint_errors(numbers: BodyNumbers, group: Group, bodies: Bodies, at: Place):
    """The displacement of links from where their joints put them, as a motion about
    their centers of mass."""
    com, rot, offset = take((bodies.com, bodies.rot, numbers.com), group.bodies)
    ang = small_rotation(rot, at.pose.rot)
    return Motion(ang, com - (at.pose.pos + (at.pose.rot @ offset)))


def relative_velocities(group: Group, bodies: Bodies) -> Motion:
    """Velocities of links against their parents, about the links' centers of mass."""
    one = take(bodies, group.bodies)
    two = take(with_world(bodies), [parent + 1 for parent in group.parents])
    arm = one.com - two.com
    lin = one.velocity.lin - (two.velocity.lin + (two.velocity.ang ^ arm))
    return Motion(one.velocity.ang - two.velocity.ang, lin)


class JointNumbers(NamedTuple):
    """What acts along the motion axes of a group in a step `h`, axis by axis.

    - `rate`: $\\dot q$ before.
    - `push`: $h \\tau - (hD + h^2k) \\dot q$.
    - `inertia`: $A + hD + h^2k$.
    - `lower`, `upper`: between what the new rate must be.
    - `dry`: largest impulse of dry friction.
    - `balls`: of each limit of a spherical joint, the axis and the largest rate.
    """

    rate: list
    push: list
    inertia: list
    lower: list
    upper: list
    dry: list
    balls: list


def joint_numbers(
    sys: System, tree: Tree, group: Group, q, qd, tau, h, share
) -> JointNumbers:
    """The numbers of a group; `share` of an excess over a limit is taken back."""
    joints = sys.joints
    balls = _ball_limits(sys, tree, group, q, h, share)
    out = JointNumbers([], [], [], [], [], [], balls)
    for axes in group.axes:
        dofs = [tree.dofs[node] for node in axes.nodes]
        own = [tree.joints[node] for node in axes.nodes]
        starts = [joints.q_starts[j] for j in own]
        rate, force = take((qd, tau), dofs)
        armature, damping, dry = take(
            (joints.armature, joints.damping, joints.frictionloss), dofs
        )
        resist = h * damping + h * h * take(joints.stiffness, own)
        out.rate.append(rate)
        out.push.append(h * force - resist * rate)
        out.inertia.append(armature + resist)
        out.dry.append(h * dry if any(joints.has_friction[i] for i in dofs) else None)
        limited = [joints.limited[j] and axes.kind.nv == 1 for j in own]
        if not any(limited):
            out.lower.append(None)
            out.upper.append(None)
            continue
        flags = np.array(limited).reshape(-1, *(1 for _ in rate.shape[1:]))
        low, high, margin = take(
            (joints.range[:, 0], joints.range[:, 1], joints.limit_margin), own
        )
        low, high = low + margin, high - margin
        below, above = low - take(q, starts), high - take(q, starts)
        below = below * jnp.where(below > 0.0, share, 1.0) / h
        above = above * jnp.where(above < 0.0, share, 1.0) / h
        out.lower.append(jnp.where(flags, below, -jnp.inf))
        out.upper.append(jnp.where(flags, above, jnp.inf))
    return out


def _ball_limits(sys: System, tree: Tree, group: Group, q, h, share):
    """Axes of the rotations of limited spherical joints, and their largest rates."""
    found, joints = [], sys.joints
    for k, axes in enumerate(group.axes):
        own = [tree.joints[node] for node in axes.nodes]
        spherical = axes.kind is JointKind.SPHERICAL and axes.axis == 0
        if not spherical or not any(joints.limited[j] for j in own):
            continue
        axis, angle = ball_rotations(sys, own, q)
        low, high, margin = take(
            (joints.range[:, 0], joints.range[:, 1], joints.limit_margin), own
        )
        left = jnp.maximum(low, high) - margin - angle
        left = left * jnp.where(left < 0.0, share, 1.0) / h
        flags = np.array([joints.limited[j] for j in own])
        flags = flags.reshape(-1, *(1 for _ in angle.shape[1:]))
        entries = [angle * 0.0 for _ in group.axes]
        entries[k : k + 3] = axis
        found.append((entries, jnp.where(flags, left, jnp.inf)))
    return found


class Blocks(NamedTuple):
    """Impulses on the links of a group, about their centers of mass; the new rates of
    their joints, and the impulses of limits and dry friction, axis by axis."""

    impulse: Force
    rates: list
    held: list


def solve_blocks(
    group: Group,
    bodies: Bodies,
    mobility: Mobility,
    axes: tuple[Motion, ...],
    wanted: Motion,
    numbers: JointNumbers,
    compliance,
) -> Blocks:
    """Solves the blocks of a group.

    **Arguments:**

    - `axes`: $S$, about the centers of mass of the links.
    - `wanted`: $w$, the velocity to take away.
    - `compliance`: of the joints over $h^2$, in translation and rotation.
    """
    factor = free_factor(_together(group, bodies, mobility, compliance))
    response = [_impulse(factor, axis) for axis in axes]
    back = _impulse(factor, wanted)
    rates, held = _rates(*_system(axes, response, back, numbers), numbers)
    return Blocks(_sum(response, back, rates, numbers.rate), rates, held)


def _system(axes: tuple[Motion, ...], response: list, back: Force, numbers):
    """Matrix (its lower part) and right side of the equations for the rates."""
    n = len(axes)
    matrix = [[axes[i] | response[j] for j in range(i + 1)] for i in range(n)]
    full = lambda i, j: matrix[max(i, j)][min(i, j)]
    load = []
    for i in range(n):
        carried = sum(full(i, j) * numbers.rate[j] for j in range(n))
        load.append((axes[i] | back) + numbers.push[i] + carried)
        load[i] = load[i] + numbers.inertia[i] * numbers.rate[i]
        matrix[i][i] = matrix[i][i] + numbers.inertia[i]
    return matrix, load


def _sum(response: list, back: Force, rates: list, before: list) -> Force:
    impulse = -back
    for force, new, old in zip(response, rates, before, strict=True):
        impulse = impulse + (force * (new - old))
    return impulse


def _together(
    group: Group, bodies: Bodies, mobility: Mobility, compliance
) -> ArticulatedInertia:
    """The mobility of two bodies against each other, as seen at the link's center of
    mass. Impulse and velocity change places: the block of rotations is eliminated
    first."""
    shares = [
        np.array(share, float).reshape(-1, *(1 for _ in mobility.mass.shape[1:]))
        for share in group.shares
    ]
    shares = [jnp.asarray(share, mobility.mass.dtype) for share in shares]
    own = take(mobility, group.bodies)
    above, com = take(
        (with_world(mobility), with_world(bodies.com)),
        [parent + 1 for parent in group.parents],
    )
    arm = com - take(bodies.com, group.bodies)
    total = point_stiffness(arm, above.inertia * shares[1])
    mass = own.mass * shares[0] + above.mass * shares[1] + compliance[0]
    soft = compliance[1] + jnp.zeros_like(mass)
    return ArticulatedInertia(
        total.ang + diagonal(mass, mass, mass),
        total.cross,
        total.lin + (own.inertia * shares[0]) + diagonal(soft, soft, soft),
    )


def _impulse(factor: FreeFactor, motion: Motion) -> Force:
    """The impulse that gives a relative velocity."""
    lin, ang = free_solve(factor, Force(motion.lin, motion.ang))
    return Force(ang, lin)


def _rates(matrix: list[list], load: list, numbers: JointNumbers) -> tuple[list, list]:
    """Solves for the rates, with limits and dry friction; their impulses come second,
    None where there is neither."""
    factor = _decompose(matrix)
    rates = _substitute(factor, load)
    n = len(rates)
    turned: list[Any] = [None] * n
    for axis, largest in numbers.balls:
        direction = _substitute(factor, axis)
        excess = sum(a * r for a, r in zip(axis, rates, strict=True)) - largest
        along = sum(a * d for a, d in zip(axis, direction, strict=True))
        # Where there is no rotation there is no axis.
        some = along > 0.0
        push = jnp.where(
            some, jnp.maximum(excess, 0.0) / jnp.where(some, along, 1.0), 0.0
        )
        rates = [r - push * d for r, d in zip(rates, direction, strict=True)]
        pushes = [-push * a for a in axis]
        load = [x + p for x, p in zip(load, pushes, strict=True)]
        turned = [
            p if t is None else t + p for t, p in zip(turned, pushes, strict=True)
        ]
    bounded = [x for x in [*numbers.lower, *numbers.dry] if x is not None]
    held = list(turned)
    for _ in range(_SWEEPS if n > 1 else 1):
        if not bounded:
            break
        for i in range(n):
            others = (
                matrix[max(i, j)][min(i, j)] * rates[j] for j in range(n) if j != i
            )
            force, own = load[i] - sum(others), turned[i]
            if numbers.dry[i] is not None:
                rub = -jnp.clip(force, -numbers.dry[i], numbers.dry[i])
                force, own = force + rub, rub if own is None else own + rub
            rate = force / matrix[i][i]
            if numbers.lower[i] is not None:
                free = rate
                rate = jnp.clip(free, numbers.lower[i], numbers.upper[i])
                stop = (rate - free) * matrix[i][i]
                own = stop if own is None else own + stop
            rates[i], held[i] = rate, own
    return rates, held


def _decompose(matrix: list[list]):
    """$L D L^T$ of a small symmetric matrix of arrays."""
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


def _substitute(factor, right: list) -> list:
    lower, diag = factor
    n, x = len(right), list(right)
    for i in range(n):
        x[i] = x[i] - sum(lower[i][k] * x[k] for k in range(i))
    x = [a / d for a, d in zip(x, diag, strict=True)]
    for i in reversed(range(n)):
        x[i] = x[i] - sum(lower[k][i] * x[k] for k in range(i + 1, n))
    return x
