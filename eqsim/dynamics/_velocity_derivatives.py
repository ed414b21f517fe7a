r"""The derivative of smooth forces by the velocity, kind by kind of force.

$-\frac{\partial \tau}{\partial \dot q} = \mathrm{diag}(d) + J^T B J + C$: joint damping and
actuators of hinges and slides are diagonal, what acts on a node adds to a matrix $B$ of
this node, and what couples degrees of freedom is a matrix $C$. As in MuJoCo, entries of $C$
between branches of the tree are left out. Coriolis forces are in `_coriolis.py`. MuJoCo:
`mjd_smooth_vel`.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics._forward import Frames, Kinematics
from ..model import JointKind, System, Transmission, Tree
from ..model._gather import accumulate, put, take
from ..spatial import ArticulatedInertia, Motion, Vec3
from ..spatial._matrix6 import Matrix6
from ._actuation import Actuation, velocity_gain
from ._ellipsoids import Ellipsoids
from ._joint_space import carries
from ._passive import damping as joint_damping, fluid_damping
from ._tendons import damping_slopes, TendonKinematics
from ._transmission import Moments


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
    count = len(ends.single)
    diagonal, start = [*range(count)], count
    for k, kind, _ in ends.multiple:
        entries = range(start, start + kind.nv)
        start += kind.nv
        if not actuators.has_velocity_gain[k]:
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
    pairs = enumerate(moments.ends.others)
    return [row for row, out in pairs if actuators.has_velocity_gain[owners[out]]]


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
        own = axis | (take(nodes, carriers) @ axis)
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
