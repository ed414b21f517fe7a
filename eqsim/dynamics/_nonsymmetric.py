r"""The matrix of the implicit integrator entry by entry, and its factorization.

$M + h K$ has the entries of $M$, but is not symmetric, because the derivative $K$ of
gyroscopic and fluid forces is not. It is eliminated from the leaves of the tree to its
roots, in which order no zero entry fills, and without pivoting: for small $h$ it is close
to $M$, which is positive definite. MuJoCo does the same (`mju_factorLUSparse`).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics._forward import ascend, dof_order
from ..model import Tree
from ..model._gather import take
from ..spatial import Force, Motion, RigidInertia, Vec3
from ..spatial._matrix6 import Matrix6
from ._coriolis import axis_rates, gyroscopic
from ._joint_space import carries


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
    upper = by_row(axes) | by_column(above)
    lower = (by_column(rates) | by_row(below)) + (by_column(axes) | by_row(left))
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
