r"""Equality constraints of links: connect and weld.

A connect holds a point of one link at a point of another, as a ball joint does. A weld holds
two frames together. With orientations $p_1$, $p_2$ of the frames (unit quaternions) its
violation of rotation is the vector part of $e = p_2^* p_1$, times a length. It moves as

$$\dot e = \tfrac12\,(0, w)\,e, \qquad w = R_2^T (\omega_1 - \omega_2).$$

Source: MuJoCo documentation, *Computation*, "Equality"; `mj_instantiateEquality`.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..dynamics.weights import InverseWeights
from ..kinematics.link_motion import (
    dof_axes,
    dof_order,
    moving_dofs,
    Pose,
    quaternions,
    take_poses,
)
from ..model import EqualityKind, System, Tree, tree
from ..model.arrays import concatenate, take, take_or_zero
from ..spatial import Mat3, Motion, quaternion_matrix, safe_sqrt, Vec3
from ..spatial.rotations import matrix_quaternion, normalize4
from ..spatial.vectors import vec3
from .costs import columns, impedance, Softness, softness, stiffness_weight, TwoSided
from .record import AbstractConstraint, RobotData
from .rows import AbstractRows, Rows, sparse_jacobian


# Softness, weights and offsets.


class EqualityConstants(NamedTuple):
    """Softness, whether they are active (1 or 0), and inverse weights of n constraints.

    - `weights`: one array `(n, *batch)` for each dimension.
    """

    soft: Softness
    active: Any
    weights: tuple[Any, ...]


def equality_constants(
    sys: System, which: tuple[int, ...], weights: tuple[Any, ...]
) -> EqualityConstants:
    """Compute the constants of the constraints `which`."""
    own = sys.equalities
    values = columns(own.solref, 2), columns(own.solimp, 5), own.active
    solref, solimp, active = take(values, which)
    soft = softness(solref, solimp, sys.dt[None], sys.safe_solref)
    return EqualityConstants(soft, active, weights)


class Violation(NamedTuple):
    """Violations of n equality constraints, one entry for each dimension.

    - `jacobian`: rows `(n, nv, *batch)`.
    - `value`, `rate`: violation and its rate, `(n, *batch)`.
    - `bias`: second derivative of the violation while all joint accelerations are zero.
    """

    jacobian: tuple[Any, ...]
    value: tuple[Any, ...]
    rate: tuple[Any, ...]
    bias: tuple[Any, ...]


def equality_rows(
    constants: EqualityConstants,
    violation: Violation,
    size,
    dofs: Sequence[Collection[int]],
) -> Rows:
    """Return the rows of n constraints.

    **Arguments:**

    - `dofs`: the degrees of freedom on which each constraint can act.
    - `size`: the violation of a constraint as one number, on which its impedance depends.
    """
    soft = constants.soft
    imp = impedance(soft, size)
    pull = soft.k * imp
    parts = zip(violation.value, violation.rate, violation.bias, strict=True)
    offsets = [soft.b * rate + pull * value + bias for value, rate, bias in parts]
    weights = [
        jnp.where(constants.active > 0.0, stiffness_weight(imp, weight), 0.0)
        for weight in constants.weights
    ]
    full = jnp.broadcast_shapes(*(x.shape for x in (*offsets, *weights)))
    join = lambda xs: jnp.concatenate([jnp.broadcast_to(x, full) for x in xs])
    every = [*dofs] * len(violation.jacobian)
    jacobian = sparse_jacobian(jnp.concatenate(violation.jacobian), every)
    return Rows(jacobian, TwoSided(join(weights)), (join(offsets),))


# Frames on links that move together.


class Anchors(NamedTuple):
    """Frames on links, in world axes; one row for each.

    - `pos`, `rot`: position and orientation.
    - `lin`, `ang`: Jacobians of velocity and angular velocity, components `(n, nv,
        *batch)`.
    - `speed`, `spin`: velocity and angular velocity.
    - `bias`, `spin_bias`: their rates while all joint accelerations are zero.
    """

    pos: Vec3
    rot: Mat3
    lin: Vec3
    ang: Vec3
    speed: Vec3
    spin: Vec3
    bias: Vec3
    spin_bias: Vec3


def anchors(
    sys: System, now: RobotData, links: tuple[int, ...], local: Pose
) -> Anchors:
    """Compute frames that are fixed to links (-1: the world).

    **Arguments:**

    - `local`: the frames in the links.
    """
    nodes = tree(sys)
    carriers = tuple(-1 if link < 0 else nodes.link_nodes[link] for link in links)
    frame = take_poses(now.kin.pose, carriers) @ take_poses(now.fixed.link, links)
    pose = frame @ local
    arm = pose.pos - take_or_zero(now.kin.origin, carriers)
    velocity = take_or_zero(now.velocities.velocity, carriers)
    rate = _bias(sys, now, carriers)
    speed = velocity.at(arm)
    lin, ang = point_jacobians(nodes, now, carriers, arm)
    return Anchors(
        pos=pose.pos,
        rot=pose.rot,
        lin=lin,
        ang=ang,
        speed=speed,
        spin=velocity.ang,
        bias=rate.at(arm) + velocity.ang.cross(speed),
        spin_bias=rate.ang,
    )


def _bias(sys: System, now: RobotData, carriers: tuple[int, ...]) -> Motion:
    """Return the bias accelerations of nodes, without gravity."""
    gravity = Vec3(*(sys.gravity[k][None] for k in range(3)))
    bias = now.velocities.bias
    real = Motion(bias.ang, bias.lin + gravity)
    return take_or_zero(real, carriers)


def point_jacobians(
    nodes: Tree, now: RobotData, carriers: tuple[int, ...], arm: Vec3
) -> tuple[Vec3, Vec3]:
    """Compute the Jacobians of velocity and angular velocity of points on nodes (-1: the
    world), components `(n, nv, *batch)`.

    **Arguments:**

    - `arm`: position of the points about the origins of the trees of their nodes.
    """
    axes = dof_axes(nodes, now.kin)
    moves = np.zeros((len(carriers), len(dof_order(nodes).nodes)))
    for row, carrier in enumerate(carriers):
        if carrier >= 0:
            moves[row] = nodes.ancestors[carrier][list(dof_order(nodes).nodes)]
    mask = moves.reshape(*moves.shape, *(1 for _ in arm.x.shape[1:]))
    mask = mask.astype(arm.x.dtype)
    by_dof = lambda v: Vec3(*(x[None] for x in v))
    by_row = lambda v: Vec3(*(x[:, None] for x in v))
    ang = by_dof(axes.ang) * mask
    lin = (by_dof(axes.lin) + by_dof(axes.ang).cross(by_row(arm))) * mask
    return lin, ang


def select(sys: System, kind: EqualityKind) -> tuple[int, ...]:
    """Return the equality constraints of a kind."""
    return tuple(k for k, own in enumerate(sys.equalities.kinds) if own is kind)


def select_movable(sys: System, kind: EqualityKind) -> tuple[int, ...]:
    """Return the connects or welds of which at least one end can move. The others, whose
    Jacobian is zero, are not part of the problem, as in MuJoCo."""
    which, nodes = select(sys, kind), tree(sys).link_nodes
    moves = lambda link: link >= 0 and nodes[link] >= 0
    pairs = zip(which, *end_links(sys, which), strict=True)
    return tuple(k for k, one, two in pairs if moves(one) or moves(two))


def end_links(
    sys: System, which: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the links of the first and second frames of connects or welds."""
    equalities, sites = sys.equalities, sys.sites
    first, second = (
        tuple(
            sites.links[equalities.objects[k][side]]
            if equalities.at_sites[k]
            else equalities.objects[k][side]
            for k in which
        )
        for side in (0, 1)
    )
    return first, second


def end_dofs(sys: System, which: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the degrees of freedom that move one of the frames of connects or welds."""
    nodes, found = tree(sys), []
    for links in zip(*end_links(sys, which), strict=True):
        carriers = [nodes.link_nodes[link] for link in links if link >= 0]
        own = {dof for node in carriers for dof in moving_dofs(nodes, node)}
        found.append(tuple(sorted(own)))
    return found


def both_ends(
    sys: System, now: RobotData, which: tuple[int, ...]
) -> tuple[Anchors, Anchors]:
    """Compute the two frames that each connect or weld holds together."""
    equalities, sites = sys.equalities, sys.sites
    count = len(equalities.names)
    at_sites = any(equalities.at_sites[k] for k in which)
    # The orientation of the second frame is that of its link.
    relative = equalities.relative_quat
    same = np.tile(np.eye(4)[0], (count, 1))
    same = same.reshape(count, 4, *(1 for _ in relative.shape[2:]))
    quats = relative, jnp.asarray(same, relative.dtype)
    found = []
    for side, links in enumerate(end_links(sys, which)):
        pos, quat = equalities.anchors[:, side], quats[side]
        index = [
            count + equalities.objects[k][side] if equalities.at_sites[k] else k
            for k in which
        ]
        if at_sites:
            pos, quat = concatenate([(pos, quat), (sites.pos, sites.quat)])
        pos, quat = take((pos, quat), index)
        rot = quaternion_matrix(normalize4(quaternions(quat)))
        found.append(anchors(sys, now, links, Pose(rot, vec3(pos))))
    return found[0], found[1]


# Connect.


class Connect(AbstractConstraint):
    """Points of two links, or two sites, that stay together."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        which = select_movable(sys, EqualityKind.CONNECT)
        if not which:
            return None
        weight = sum(
            take_or_zero(weights.link, links) for links in end_links(sys, which)
        )
        return equality_constants(sys, which, (weight, weight, weight))

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        which = select_movable(sys, EqualityKind.CONNECT)
        one, two = both_ends(sys, now, which)
        gap = one.pos - two.pos
        violation = Violation(
            jacobian=one.lin - two.lin,
            value=gap,
            rate=one.speed - two.speed,
            bias=one.bias - two.bias,
        )
        size = safe_sqrt(gap.dot(gap))
        return (equality_rows(constants, violation, size, end_dofs(sys, which)),)


# Weld.


class Weld(AbstractConstraint):
    """Frames of two links, or two sites, that stay together."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        which = select_movable(sys, EqualityKind.WELD)
        if not which:
            return None
        ends = end_links(sys, which)
        lin = sum(take_or_zero(weights.link, links) for links in ends)
        ang = sum(take_or_zero(weights.link_rotation, links) for links in ends)
        return equality_constants(sys, which, (*3 * [lin], *3 * [ang]))

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        which = select_movable(sys, EqualityKind.WELD)
        one, two = both_ends(sys, now, which)
        length = take(sys.equalities.torque_scale, which)
        turn = _turn(one, two)
        gap, twist = one.pos - two.pos, turn.value * length
        by_row = length[:, None]
        violation = Violation(
            jacobian=(*(one.lin - two.lin), *(turn.jacobian * by_row)),
            value=(*gap, *twist),
            rate=(*(one.speed - two.speed), *(turn.rate * length)),
            bias=(*(one.bias - two.bias), *(turn.bias * length)),
        )
        size = safe_sqrt(gap.dot(gap) + twist.dot(twist))
        return (equality_rows(constants, violation, size, end_dofs(sys, which)),)


class _Turn(NamedTuple):
    """Vector part of the relative orientation, with the meaning of `Violation`."""

    value: Vec3
    rate: Vec3
    bias: Vec3
    jacobian: Vec3


def _turn(one: Anchors, two: Anchors) -> _Turn:
    # The sign of the quaternion does not matter: all parts below change with it.
    real, *imaginary = matrix_quaternion(two.rot.T @ one.rot)
    vector = Vec3(*imaginary)
    back = two.rot.T

    def moved(w: Vec3, real, vector: Vec3) -> Vec3:
        return ((w * real) + w.cross(vector)) * 0.5

    apart = one.spin - two.spin
    w = back @ apart
    w_rate = back @ ((one.spin_bias - two.spin_bias) - two.spin.cross(apart))
    rate = moved(w, real, vector)
    real_rate = w.dot(vector) * -0.5
    columns = lambda v: Vec3(*(x[:, None] for x in v))
    turned = _rows_times(back, one.ang - two.ang)
    return _Turn(
        value=vector,
        rate=rate,
        bias=moved(w_rate, real, vector) + moved(w, real_rate, rate),
        jacobian=moved(turned, real[:, None], columns(vector)),
    )


def weld_torques(one: Anchors, two: Anchors, force: Vec3) -> Vec3:
    """Compute the torques on the first links, in the world, of the forces of the rows of
    rotation, times the length that weighs them."""
    real, *imaginary = matrix_quaternion(two.rot.T @ one.rot)
    return two.rot @ (((force * real) + Vec3(*imaginary).cross(force)) * 0.5)


def _rows_times(matrix, vectors: Vec3) -> Vec3:
    """Multiply the vectors `(n, nv, *batch)` of each row with its matrix `(n, *batch)`."""
    wide = type(matrix)(*(x[:, None] for x in matrix))
    return wide @ vectors
