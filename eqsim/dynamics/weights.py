r"""Inverse weights of links, degrees of freedom and tendons at the reference pose.

MuJoCo scales the softness of constraints by averages of diagonal entries of $M^{-1}$
and of $J M^{-1} J^T$ at the reference pose (`dof_invweight0`, `body_invweight0`,
`tendon_invweight0`). They are computed from the primary parameters by `prepare`, and are not
part of a `System`.

With the inward pass of the articulated-body algorithm ($U = I^A S$, $d = S^T U + $
armature), the inverse inertia of a link, $\Omega = J M^{-1} J^T$, is computed from that
of its parent $p$, in O(n):

$\Omega_i = L \Omega_p L^T + S d^{-1} S^T, \quad L = 1 - S d^{-1} U^T, \qquad
(M^{-1})_{ii} = d^{-1} + d^{-2}\, U^T \Omega_p U$

Sources: MuJoCo documentation, *Computation*, "Parameters"; `engine_setconst.c`. Kreutz-
Delgado, Jain and Rodriguez, *Recursive formulation of operational space control*, 1992.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..kinematics.link_motion import (
    Frames,
    join_dofs,
    Kinematics,
    kinematics,
    levels,
    moving_links,
    rows,
    split_dofs,
)
from ..kinematics.tendon_paths import tendon_frames, tendon_kinematics
from ..model import System, Tree
from ..model.arrays import accumulate, concatenate, per_row, put, take
from ..spatial import Force, Mat3, Motion, Vec3
from ..spatial.vectors import (
    ArticulatedInertia,
    free_solve,
    FreeFactor,
    matrix_from_columns,
    Sym3,
)
from .articulated import Factor, factor, link_centers, node_inertias, NodeBodies, solve
from .passive import armature
from .tendon_forces import (
    apply_updates,
    armature_jacobian,
    armature_updates,
    ArmatureUpdate,
    constrained_tendons,
    has_tendon_armature,
)


class InverseWeights(NamedTuple):
    """Inverse weights at the reference coordinates.

    - `dof`: per degree of freedom, `(nv, *batch)`.
    - `link`, `link_rotation`: weights of translations and rotations of each link,
        `(nlink, *batch)`.
    - `tendon`: weight of each tendon, `(ntendon, *batch)`; zero for those without constraints.
    """

    dof: Any
    link: Any
    link_rotation: Any
    tendon: Any


def inverse_weights(
    sys: System, tree: Tree, fixed: Frames, bodies: NodeBodies
) -> InverseWeights:
    """Compute the inverse weights at the reference coordinates."""
    kin = kinematics(sys, tree, fixed, sys.joints.ref)
    inertia = node_inertias(bodies, kin)
    factored = factor(tree, kin, inertia, armature(sys))
    inverse, single = _inverse_inertias(tree, factored)
    invert = lambda b: solve(tree, kin, factored, b, None)
    updates: list[ArmatureUpdate] = []
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, tree, fixed, kin, sys.joints.ref)
        updates = armature_updates(sys, jac, invert)
        for update in updates:
            y = split_dofs(tree, update.qdd)[2]
            single = single - update.scale[None] * y * y
            half = update.motion * (0.5 * update.scale[None])
            inverse = _subtract_products(inverse, update.motion, half)
    return InverseWeights(
        _dof_weights(sys, tree, rows(inverse, 0, tree.num_free), single),
        _link_weights(sys, tree, fixed, kin, inverse),
        _rotation_weights(sys, tree, inverse),
        _tendon_weights(sys, tree, fixed, kin, factored, updates),
    )


def _inverse_inertias(tree: Tree, factored: Factor):
    r"""Compute $\Omega$ of each node about the origin of its tree, and $(M^{-1})_{ii}$ of
    each node that is not free.

    With $z = d^{-1} \Omega_p U - \tfrac12 (M^{-1})_{ii} S$ the recursion at the top of
    the module is $\Omega = \Omega_p - S z^T - z S^T$.
    """
    found, weights = [], []
    for level in levels(tree):
        axis, force, inverse = factored.joints[level.depth]
        if level.depth:
            above = take(found[-1], level.parents)
        else:
            above = _zero_inertia(inverse)
        # The matrix maps forces to motions here, and its transpose is itself.
        motion = Motion(*(above @ Motion(*force)))
        weight = inverse + inverse**2 * motion.dot(force)
        z = (motion * inverse) - (axis * (0.5 * weight))
        own = _subtract_products(above, axis, z)
        if level.num_free:
            assert factored.free is not None, "free joints are factorized"
            own = concatenate([_invert(factored.free), own])
        found.append(own)
        weights.append(weight)
    return concatenate(found), concatenate(weights)


def _zero_inertia(like) -> ArticulatedInertia:
    zero = jnp.zeros_like(like)
    return ArticulatedInertia(Sym3(*6 * [zero]), Mat3(*9 * [zero]), Sym3(*6 * [zero]))


def _invert(factored: FreeFactor) -> ArticulatedInertia:
    """Compute the inverse of a factorized inertia, column by column."""
    one, zero = jnp.ones_like(factored.lin.xx), jnp.zeros_like(factored.lin.xx)
    none = Vec3(zero, zero, zero)
    units = (Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one))
    by_ang = [free_solve(factored, Force(unit, none)) for unit in units]
    by_lin = [free_solve(factored, Force(none, unit)) for unit in units]
    return ArticulatedInertia(
        Sym3.of(matrix_from_columns(*(m.ang for m in by_ang))),
        matrix_from_columns(*(m.ang for m in by_lin)),
        Sym3.of(matrix_from_columns(*(m.lin for m in by_lin))),
    )


def _subtract_products(matrix: ArticulatedInertia, s: Motion, z: Motion):
    """Return the matrix minus $s z^T + z s^T$."""
    (a, b), (c, d) = s, z
    return ArticulatedInertia(
        matrix.ang - Sym3.of(a.outer(c) + c.outer(a)),
        matrix.cross - (a.outer(d) + c.outer(b)),
        matrix.lin - Sym3.of(b.outer(d) + d.outer(b)),
    )


def _dof_weights(sys: System, tree: Tree, root: ArticulatedInertia, single):
    """Average diagonal entries of $M^{-1}$ over the axes of a joint."""
    lin, ang = root.lin.trace * (1 / 3), root.ang.trace * (1 / 3)
    joints, links = tree.joints[tree.num_free :], tree.links[tree.num_free :]
    total = take(accumulate(single, joints, sys.njoint), joints)
    mean = total * (1.0 / per_row([joints.count(joint) for joint in joints], total))
    # Armature does not count for links that only slide.
    slides = [sys.links.translating[link] for link in links]
    mean = jnp.where(per_row(slides, mean) > 0, _inverse_mass(sys, links), mean)
    return join_dofs(tree, 3 * [lin], 3 * [ang], mean)


def _link_weights(
    sys: System,
    tree: Tree,
    fixed: Frames,
    kin: Kinematics,
    inverse: ArticulatedInertia,
):
    r"""Compute a third of the trace of $J M^{-1} J^T$ at the center of mass of each
    link."""
    links, nodes = moving_links(tree)
    point = link_centers(sys, tree, fixed, kin)
    ang, cross, lin = take(inverse, nodes)
    axial = Vec3(cross.zy - cross.yz, cross.xz - cross.zx, cross.yx - cross.xy)
    trace = lin.trace + 2.0 * point.dot(axial)
    trace = trace + ang.trace * point.dot(point) - point.dot(ang @ point)
    slides = per_row([sys.links.translating[link] for link in links], trace) > 0
    weight = jnp.where(slides, _inverse_mass(sys, links), trace * (1 / 3))
    return put(weight, links, sys.nlink)


def _rotation_weights(sys: System, tree: Tree, inverse: ArticulatedInertia):
    r"""Compute a third of the trace of $J M^{-1} J^T$ for rotations of each link."""
    links, nodes = moving_links(tree)
    return put(take(inverse.ang, nodes).trace * (1 / 3), links, sys.nlink)


def _inverse_mass(sys: System, links: Sequence[int]):
    mass = take(sys.links.mass, links)
    return 1.0 / jnp.where(mass == 0.0, 1.0, mass)


def _tendon_weights(
    sys: System,
    tree: Tree,
    fixed: Frames,
    kin: Kinematics,
    factored: Factor,
    updates: list[ArmatureUpdate],
):
    """Compute $J M^{-1} J^T$ of the tendons with constraints; zero for others."""
    chosen = constrained_tendons(sys)
    index = [k for k, wanted in enumerate(chosen) if wanted]
    if not index:
        return jnp.zeros((sys.ntendon, *kin.arm.x.shape[1:]), kin.arm.x.dtype)
    q, local = sys.joints.ref, tendon_frames(sys, fixed)
    jac = take(tendon_kinematics(sys, tree, local, kin, q, chosen).jac, index)
    # Tendons are one more batch axis of one solve.
    last = lambda x: x[..., None]
    kin, factored, updates = jtu.tree_map(last, (kin, factored, updates))
    right = jnp.moveaxis(jac, 0, -1)
    qdd, _ = apply_updates(updates, *solve(tree, kin, factored, right, None))
    return put(jnp.moveaxis(jnp.sum(right * qdd, axis=0), -1, 0), index, sys.ntendon)
