"""Derivatives of forces with respect to velocity, for implicit integrators.

First Coriolis, centrifugal and gyroscopic forces; then the nonsymmetric matrix of the
implicit integrator; then smooth forces, kind by kind.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics.link_motion import ascend, dof_order, Frames, Kinematics
from ..model import JointKind, System, Transmission, Tree
from ..model.arrays import accumulate, per_row, put, take, take_or_zero
from ..spatial import Force, Mat3, Motion, Vec3
from ..spatial.vectors import ArticulatedInertia, Matrix6, RigidInertia, skew
from .actuation import Actuation, velocity_gain
from .fluid import Ellipsoids
from .joint_space import carries
from .passive import damping as joint_damping, fluid_damping
from .tendon_forces import damping_slopes, TendonKinematics
from .transmission import Moments


# The derivative of Coriolis, centrifugal and gyroscopic forces by the velocity.
#
# With $v_i$ the velocity and $I_i$ the inertia of node $i$, the force that holds it on its
# way is $f_i = I_i a_i + v_i \times^* I_i v_i$ (see `algorithms.py`). Its derivative by the
# velocity of the degree of freedom $j$, whose axis is $S_j$, is
#
# $\frac{\partial f_i}{\partial \dot q_j} = I_i G_j + B_i S_j, \qquad
# B_i = (v_i \times^*) I_i - I_i (v_i \times) + (\cdot) \times^* I_i v_i$
#
# with $G_j = (v_{\mathrm{before}} + v_{\mathrm{after}}) \times S_j$ of the velocities on the
# two sides of the joint. Both sum over subtrees, like inertias, so the matrix costs no more
# than the joint-space inertia matrix. Sources: Singh, Russell and Wensing, *Efficient
# analytical derivatives of rigid-body dynamics using spatial vector algebra*, 2022; MuJoCo:
# `mjd_rne_vel`.


class Gyroscopic(NamedTuple):
    r"""The matrices $B$: a motion $(a, l)$ gives the moment $A a$ and the force
    $-2 P \times a$.

    - `ang`: $A$.
    - `momentum`: linear momentum $P$.
    """

    ang: Mat3
    momentum: Vec3

    def __matmul__(self, v: Motion) -> Force:
        return Force(self.ang @ v.ang, v.ang.cross(self.momentum) * 2.0)

    def transposed(self, v: Motion) -> Vec3:
        """Compute the angular part of $B^T$ times a motion; the linear part is zero."""
        return (self.ang.T @ v.ang) + (self.momentum.cross(v.lin) * 2.0)


def gyroscopic(inertia: RigidInertia, velocity: Motion) -> Gyroscopic:
    """Compute the matrices of the nodes."""
    w, u = velocity
    moment, ang = inertia.moment, inertia.ang.full()
    arm, turn, slide = skew(moment), skew(w), skew(u)
    spin = (ang @ w) + moment.cross(u)
    matrix = (turn @ ang) - (ang @ turn) - (slide @ arm) - (arm @ slide) - skew(spin)
    return Gyroscopic(matrix, (u * inertia.mass) - moment.cross(w))


def axis_rates(tree: Tree, axes: Motion, velocity: Motion) -> Motion:
    """Compute $G$ of each degree of freedom, `(nv, *batch)`."""
    order = dof_order(tree).nodes
    after = take(velocity, [_last_node(tree)[node] for node in order])
    before = take_or_zero(velocity, [tree.base[node] for node in order])
    rate = (before + after).cross(axes)
    # Free joints move along axes of the world, and turn about axes of the body.
    free = [node < tree.num_free for node in order]
    if any(free):
        own = take(velocity, [node if mark else 0 for node, mark in zip(order, free)])
        lin = own.lin.cross(axes.ang) + axes.lin.cross(own.ang)
        rate = Motion(rate.ang, rate.lin + (lin * per_row(free, lin.x)))
    return rate


@ft.lru_cache(maxsize=256)
def _last_node(tree: Tree) -> tuple[int, ...]:
    """Return, for each node, the last node of its joint."""
    last = {joint: node for node, joint in enumerate(tree.joints)}
    return tuple(last[joint] for joint in tree.joints)


def free_gyroscopic(inertia: RigidInertia, velocity: Motion) -> Matrix6:
    r"""Compute the derivative of the force on free bodies by their motion, where the
    coordinates are those of free joints: the velocity of the origin of the body, and the
    angular velocity in the axes of the body.

    The moment is $\omega \times (I a) - (I \omega) \times a$ and the force
    $-(\omega \times h) \times a - \omega \times (h \times a)$.
    """
    w, moment, ang = velocity.ang, inertia.moment, inertia.ang.full()
    turn = skew(w)
    force = skew(moment.cross(w)) - (turn @ skew(moment))
    zero = Mat3(*(jnp.zeros_like(x) for x in force))
    return Matrix6((turn @ ang) - skew(ang @ w), zero, force, zero)


# The matrix of the implicit integrator entry by entry, and its factorization.
#
# $M + h K$ has the entries of $M$, but is not symmetric, because the derivative $K$ of
# gyroscopic and fluid forces is not. It is eliminated from the leaves of the tree to its
# roots, in which order no zero entry fills, and without pivoting: for small $h$ it is close
# to $M$, which is positive definite. MuJoCo does the same (`mju_factorLUSparse`).


def damping_matrix(
    tree: Tree,
    axes: Motion,
    inertia: RigidInertia,
    velocity: Motion,
    damping: Matrix6 | None,
):
    r"""Compute the derivative $K$ of Coriolis forces, and of forces on nodes.

    **Arguments:**

    - `axes`: motion axis of each degree of freedom, `(nv, *batch)`.
    - `inertia`, `velocity`: inertia and motion of each node, `(nnode, *batch)`.
    - `damping`: negative derivative of the force on each node by its motion.

    **Returns:** the matrix, `(nv, nv, *batch)`.
    """
    nodes = dof_order(tree).nodes
    matrices = ascend(tree, (inertia, gyroscopic(inertia, velocity)))
    total, gyro = take(matrices, nodes)
    rates = axis_rates(tree, axes, velocity)
    above, below = (total @ rates) + (gyro @ axes), total @ axes
    turned = gyro.transposed(axes)
    left = Force(turned, Vec3(*(jnp.zeros_like(x) for x in turned)))
    if damping is not None:
        drag = take(ascend(tree, damping), nodes)
        above, left = above + (drag @ axes), left + (drag.T @ axes)
    by_row = lambda v: type(v)(*(Vec3(*(x[:, None] for x in part)) for part in v))
    by_column = lambda v: type(v)(*(Vec3(*(x[None] for x in part)) for part in v))
    upper = by_row(axes).dot(by_column(above))
    lower = by_column(rates).dot(by_row(below)) + by_column(axes).dot(by_row(left))
    constant = lambda x: x.reshape(*x.shape, *(1 for _ in upper.shape[2:]))
    mask = carries(tree).astype(np.float64)
    strict = mask - np.eye(len(mask))
    cast = lambda x: constant(x).astype(upper.dtype)
    return upper * cast(mask.T) + lower * cast(strict)


class Factors(NamedTuple):
    """Columns above and rows left of the diagonal, as they are when their degree of
    freedom is eliminated, and inverses of the pivots; the last degree of freedom
    first."""

    columns: list
    rows: list
    inverse: list


def eliminate(matrix) -> Factors:
    """Factorize a matrix `(n, n, *batch)`, the last row and column first."""
    columns, rows, inverse = [], [], []
    for _ in range(matrix.shape[0]):
        columns.append(matrix[:-1, -1])
        rows.append(matrix[-1, :-1])
        inverse.append(1.0 / matrix[-1, -1])
        ratio = columns[-1] * inverse[-1][None]
        matrix = matrix[:-1, :-1] - ratio[:, None] * rows[-1][None]
    return Factors(columns, rows, inverse)


def transposed(factored: Factors) -> Factors:
    """Return the factorization of the transposed matrix."""
    return Factors(factored.rows, factored.columns, factored.inverse)


def substitute(factored: Factors, right):
    """Solve for a right hand side `(n, *batch)`."""
    done = []
    for column, inverse in zip(factored.columns, factored.inverse, strict=True):
        done.append(right[-1:] * inverse[None])
        right = right[:-1] - column * done[-1]
    x = right
    for row, inverse, scaled in zip(
        *(each[::-1] for each in (factored.rows, factored.inverse, done)), strict=True
    ):
        own = scaled - inverse[None] * jnp.sum(row * x, axis=0, keepdims=True)
        x = jnp.concatenate([x, own])
    return x


# The derivative of smooth forces by the velocity, kind by kind of force.
#
# $-\frac{\partial \tau}{\partial \dot q} = \mathrm{diag}(d) + J^T B J + C$: joint damping and
# actuators of hinges and slides are diagonal, what acts on a node adds to a matrix $B$ of
# this node, and what couples degrees of freedom is a matrix $C$. As in MuJoCo, entries of $C$
# between branches of the tree are left out. Coriolis forces stand above. MuJoCo:
# `mjd_smooth_vel`.


class SmoothDamping(NamedTuple):
    """Derivatives of smooth forces by velocities.

    - `joints`: derivative of each degree of freedom, `(nv, *batch)`.
    - `nodes`: force on each node by its motion, `(nnode, *batch)`; None for zero.
    - `coupling`: derivatives between degrees of freedom, `(nv, nv, *batch)`; None for
        zero.
    """

    joints: Any
    nodes: Matrix6 | None = None
    coupling: Any | None = None

    def add_nodes(self, more: Matrix6) -> "SmoothDamping":
        """Return the sum with forces on nodes."""
        return self._replace(nodes=more if self.nodes is None else self.nodes + more)

    def add_coupling(self, more) -> "SmoothDamping":
        """Return the sum with a coupling of degrees of freedom."""
        total = more if self.coupling is None else self.coupling + more
        return self._replace(coupling=total)


def implicit_joint_damping(sys: System, qd) -> SmoothDamping:
    """Compute the damping of the joints alone."""
    return SmoothDamping(joint_damping(sys).slope(qd))


def smooth_damping(
    sys: System,
    tree: Tree,
    qd,
    *,
    fixed: Frames,
    kin: Kinematics,
    velocity: Motion,
    shapes: Ellipsoids | None,
    drive: Actuation,
    tendons: TendonKinematics | None,
) -> SmoothDamping:
    """Compute the damping by joints, the fluid, tendons and actuators.

    **Arguments:**

    - `fixed`, `kin`, `velocity`: frames, poses and velocities of the nodes.
    - `shapes`: result of `fluid_ellipsoids`.
    - `drive`: the actuators.
    - `tendons`: kinematics of the tendons; None if no tendon matters.
    """
    total = implicit_joint_damping(sys, qd)
    if sys.has_fluid:
        own = fluid_damping(sys, tree, fixed, kin, velocity, shapes)
        total = total.add_nodes(own)
    dampers = [k for k, has in enumerate(sys.tendons.has_damping) if has]
    if dampers and tendons is not None:
        jac = tendons.jac
        slope = damping_slopes(sys, jnp.sum(jac * qd[None], axis=1))
        jac, slope = take((jac, slope), dampers)
        total = total.add_coupling(_weighted_squares(tree, jac, slope))
    if drive.moments is not None and sys.actuators.active:
        total = _add_actuators(sys, tree, kin, drive, total)
    return total


def _weighted_squares(tree: Tree, rows, weight):
    r"""Compute $\sum_k w_k J_k^T J_k$ without the entries between branches."""
    weighted = rows * weight[:, None]
    total = sum(weighted[k][:, None] * rows[k][None] for k in range(rows.shape[0]))
    mask = carries(tree)
    mask = (mask | mask.T).astype(np.float64)
    mask = mask.reshape(*mask.shape, *(1 for _ in rows.shape[2:]))
    return total * mask.astype(rows.dtype)


def _add_actuators(
    sys: System, tree: Tree, kin: Kinematics, drive: Actuation, total
) -> SmoothDamping:
    moments, actuators = drive.moments, sys.actuators
    assert moments is not None, "asked only if there are actuators"
    ends, own = moments.ends, -velocity_gain(sys, drive)
    has_gain = _with_velocity_gain(sys)
    count = len(ends.single)
    diagonal, start = [*range(count)], count
    for k, kind, _ in ends.multiple:
        entries = range(start, start + kind.nv)
        start += kind.nv
        if not has_gain[k]:
            continue
        if actuators.transmissions[k] is Transmission.ORIENTATION:
            diagonal += entries
            continue
        x = [moments.entries[i : i + 1] for i in entries]
        dofs = [ends.dofs[i] for i in entries]
        scale = take(own, [actuators.out_starts[k]])
        if kind is JointKind.FREE:
            total = total.add_nodes(_on_free_joint(tree, kin, x, dofs, scale))
        else:
            total = total.add_coupling(_on_ball(sys.nv, x, dofs, scale))
    rows = _coupling_rows(sys, moments)
    if rows:
        scale = take(own, [ends.others[row] for row in rows])
        squares = _weighted_squares(tree, take(moments.rows, rows), scale)
        total = total.add_coupling(squares)
    entries, scale = take((moments.entries, take(own, ends.outputs)), diagonal)
    dofs = [ends.dofs[i] for i in diagonal]
    joints = total.joints + accumulate(scale * entries**2, dofs, sys.nv)
    return total._replace(joints=joints)


def _coupling_rows(sys: System, moments: Moments) -> list[int]:
    """Return which rows of the moments belong to actuators that feel velocities."""
    actuators = sys.actuators
    counts = enumerate(actuators.num_outputs)
    owners = [k for k, count in counts for _ in range(count)]
    pairs, has_gain = enumerate(moments.ends.others), _with_velocity_gain(sys)
    return [row for row, out in pairs if has_gain[owners[out]]]


def _with_velocity_gain(sys: System) -> list[bool]:
    """Return which actuators have forces that may depend on their velocities."""
    models = [own for own in sys.actuator_models if not own.changes_control]
    attached = {k for own in models for k in own.actuators}
    marks = enumerate(sys.actuators.has_velocity_gain)
    return [mark or k in attached for k, mark in marks]


def _on_free_joint(tree: Tree, kin: Kinematics, x, dofs, scale) -> Matrix6:
    """Compute the damping of a free link by an actuator with moments `x` on its joint."""
    node = tree.dofs.index(dofs[0])
    ang, lin = take(kin.pose.rot, [node]) @ Vec3(*x[3:]), Vec3(*x[:3])
    scaled = ang * scale, lin * scale
    blocks = (a.outer(b) for a in scaled for b in (ang, lin))
    return put(Matrix6(*blocks), [node], tree.size)


def _on_ball(nv: int, x, dofs, scale):
    """Compute the damping among the degrees of freedom of a ball joint by an actuator
    with moments `x`."""
    index = [i * nv + j for i in dofs for j in dofs]
    values = jnp.concatenate([a * b * scale for a in x for b in x])
    return put(values, index, nv * nv).reshape(nv, nv, *values.shape[1:])


class SymmetricDamping(NamedTuple):
    """As `SmoothDamping`, with symmetric matrices of the nodes."""

    joints: Any
    nodes: ArticulatedInertia | None
    coupling: Any | None


def symmetric_damping(
    sys: System, tree: Tree, kin: Kinematics, damping: SmoothDamping
) -> SymmetricDamping:
    """Return the symmetric part.

    Of links that only slide, MuJoCo keeps the diagonal.
    """
    joints, nodes, coupling = damping
    sliding = _sliding_links(tree, sys.links.translating)
    if nodes is not None:
        nodes = nodes.symmetric()
    if not sliding:
        return SymmetricDamping(joints, nodes, coupling)
    rows = [i for i in range(tree.size) if tree.links[i] in sliding]
    dofs = [tree.dofs[i] for i in rows]
    if nodes is not None:
        carriers = [tree.link_nodes[tree.links[i]] for i in rows]
        axis = take(kin.axis, [i - tree.num_free for i in rows])
        own = axis.dot(take(nodes, carriers) @ axis)
        joints = joints + accumulate(own, dofs, sys.nv)
        kept = [i for i in range(tree.size) if i not in rows]
        nodes = put(take(nodes, kept), kept, tree.size)
    if coupling is not None:
        mask = np.ones((sys.nv, sys.nv))
        mask[dofs] = mask[:, dofs] = 0.0
        mask[dofs, dofs] = 1.0
        mask = mask.reshape(*mask.shape, *(1 for _ in coupling.shape[2:]))
        coupling = coupling * mask.astype(coupling.dtype)
    return SymmetricDamping(joints, nodes, coupling)


@ft.lru_cache(maxsize=256)
def _sliding_links(tree: Tree, translating: tuple[bool, ...]) -> tuple[int, ...]:
    """List the links that slide along several axes and do nothing else."""
    return tuple(
        link
        for link, mark in enumerate(translating)
        if mark and tree.links.count(link) > 1
    )
