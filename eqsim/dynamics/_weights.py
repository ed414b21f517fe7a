r"""Inverse weights: how light a link or a degree of freedom is at the reference pose.

MuJoCo scales the softness of constraints by averages of diagonal entries of $M^{-1}$
and of $J M^{-1} J^T$ at the reference pose (`dof_invweight0`, `body_invweight0`). They
are computed here from the primary parameters, whenever a pipeline is called, and never
stored. They do not depend on the state, and for a robot that all environments share
they are computed once; so this is written with matrices, which compile fast.

Source: MuJoCo documentation, *Computation*, "Parameters"; `engine_setconst.c`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._staging import stage
from ..kinematics._axes import dof_axes, dof_nodes
from ..kinematics._forward import Frames, Kinematics, kinematics
from ..model import concatenate, JointKind, put, System, take, Tree
from ..spatial import Motion, Vec3, vec3
from ._dense import joint_space_matrix
from ._inertia import node_inertias, NodeBodies


class InverseWeights(NamedTuple):
    """Per degree of freedom `(nv, *batch)`, and of each link `(nlink, *batch)`."""

    dof: Any
    link: Any


def inverse_weights(
    sys: System, tree: Tree, fixed: Frames, bodies: NodeBodies
) -> InverseWeights:
    """Inverse weights at the reference coordinates."""
    kin = kinematics(sys, tree, fixed, sys.joints.ref)
    axes = dof_axes(tree, kin)
    inertia = node_inertias(bodies, kin).articulated()
    matrix = joint_space_matrix(tree, axes, inertia, sys.joints.armature)
    inverse = _invert(matrix)
    return InverseWeights(
        _dof(sys, tree, inverse), _link(sys, tree, fixed, kin, axes, inverse)
    )


@jax.custom_jvp
def _invert(matrix):
    """The inverse of a positive definite `(n, n, *batch)` matrix.

    Not by LAPACK: its batched kernels wait for threads of their device, and two devices
    of a CPU that share those threads wait for each other forever.
    """
    n = matrix.shape[0]
    numbers = jnp.arange(n).reshape(n, *(1 for _ in matrix.shape[1:]))

    def sweep(k, left):
        """Gauss-Jordan elimination of one row, in place; no pivots are needed."""
        rows, columns = numbers == k, numbers.swapaxes(0, 1) == k
        top = lax.dynamic_slice_in_dim(left, k, 1, axis=0)
        side = lax.dynamic_slice_in_dim(left, k, 1, axis=1)
        pivot = lax.dynamic_slice_in_dim(top, k, 1, axis=1)
        top = jnp.where(columns, 1.0, top) / pivot
        rest = jnp.where(columns, 0.0, left) - jnp.where(rows, 0.0, side) * top
        return jnp.where(rows, top, rest)

    return lax.fori_loop(0, n, sweep, matrix)


@_invert.defjvp
def _invert_jvp(primals, tangents):
    (matrix,), (rate,) = primals, tangents
    inverse = _invert(matrix)
    times = lambda a, b: jnp.sum(a[:, :, None] * b[None], axis=1)
    return inverse, -times(times(inverse, rate), inverse)


@stage
def _dof(sys: System, tree: Tree, inverse):
    """Diagonal entries, averaged over the axes of a joint."""
    weights = [inverse[i, i][None] for i in range(sys.nv)]
    mean = lambda run: sum(weights[k] for k in run) * (1 / 3)
    for i, dof in enumerate(tree.dofs):
        kind, link = tree.kinds[i], tree.links[i]
        if kind is JointKind.FREE:
            weights[dof : dof + 3] = 3 * [mean(range(dof, dof + 3))]
            weights[dof + 3 : dof + 6] = 3 * [mean(range(dof + 3, dof + 6))]
        elif kind is JointKind.SPHERICAL and tree.axes[i] == 0:
            weights[dof : dof + 3] = 3 * [mean(range(dof, dof + 3))]
        elif sys.links.translating[link]:
            weights[dof] = _inverse_mass(sys, [link])
    return concatenate(weights)


def _inverse_mass(sys: System, links):
    mass = take(sys.links.mass, links)
    return 1.0 / jnp.where(mass == 0.0, 1.0, mass)


@stage
def _link(sys, tree: Tree, fixed: Frames, kin: Kinematics, axes: Motion, inverse):
    r"""A third of the trace of $J M^{-1} J^T$ at the centre of mass of each link."""
    moving = [i for i, node in enumerate(tree.link_nodes) if node >= 0]
    nodes = [tree.link_nodes[i] for i in moving]
    place = fixed.link.pos + (fixed.link.rot @ vec3(sys.links.com))
    point = take(kin.arm, nodes) + (take(kin.pose.rot, nodes) @ take(place, moving))
    moves = tree.ancestors[np.ix_(nodes, dof_nodes(tree))].astype(inverse.dtype)
    moves = moves.reshape(*moves.shape, *(1 for _ in inverse.shape[2:]))
    each = lambda v: Vec3(*(x[None] for x in v))
    wide = Vec3(*(x[:, None] for x in point))
    jacobian = (each(axes.lin) + (each(axes.ang) ^ wide)) * moves
    trace = 0.0
    for row in jacobian:
        back = jnp.sum(row[:, :, None] * inverse[None], axis=1)
        trace = trace + jnp.sum(back * row, axis=1)
    weight = trace * (1 / 3)
    sliding = [i for i in moving if sys.links.translating[i]]
    rest = [k for k, i in enumerate(moving) if not sys.links.translating[i]]
    parts = [take(weight, rest), _inverse_mass(sys, sliding)]
    index = [moving[k] for k in rest] + sliding
    return put(concatenate(parts), index, len(tree.link_nodes))
