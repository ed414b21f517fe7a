r"""The joint-space matrix entry by entry, for problems in which links act on each
other.

The composite-rigid-body algorithm gives $M$ (Featherstone, *Rigid Body Dynamics
Algorithms*, 2008, section 6.2); any symmetric 6x6 matrices may stand in for the
inertias of the nodes.
"""

import functools as ft
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics._recursion import ascend
from ..kinematics._structure import dof_order
from ..model import take, Tree
from ..spatial import ArticulatedInertia, Force, Motion, Vec3


def joint_space_matrix(tree: Tree, axes: Motion, inertia: ArticulatedInertia, diagonal):
    """Compute $M$ from the inertias of the nodes.

    **Arguments:**

    - `axes`: motion axis of each degree of freedom, `(nv, *batch)`.
    - `inertia`: inertia of each node alone, `(nnode, *batch)`.
    - `diagonal`: added to the diagonal, `(nv, *batch)`.

    **Returns:** the matrix, `(nv, nv, *batch)`.
    """
    force = take(ascend(tree, inertia), dof_order(tree).nodes) @ axes
    by_row = lambda v: Vec3(*(x[:, None] for x in v))
    by_column = lambda v: Vec3(*(x[None] for x in v))
    entries = Motion(*map(by_column, axes)) | Force(*map(by_row, force))
    constant = lambda x: x.reshape(*x.shape, *(1 for _ in entries.shape[2:]))
    mask = constant(carries(tree)).astype(entries.dtype)
    eye = constant(np.eye(len(mask), dtype=entries.dtype))
    lower = entries * mask
    return lower + jnp.swapaxes(lower * (1.0 - eye), 0, 1) + diagonal[None] * eye


@ft.lru_cache(maxsize=256)
def carries(tree: Tree) -> np.ndarray:
    """Return the entries `[i, j]`, `j <= i`, at which $M$ is not zero: those at which
    the axis `j` moves the axis `i`."""
    nodes = np.array(dof_order(tree).nodes, int)
    return np.tril(tree.ancestors[np.ix_(nodes, nodes)])


class DenseFactor(NamedTuple):
    """Columns of the unit lower triangle below the diagonal, and the inverses of the
    diagonal."""

    columns: list
    inverse: list


def dense_factor(matrix) -> DenseFactor:
    r"""Factorize a positive definite matrix `(n, n, *batch)` as $L D L^T$."""
    columns, inverse = [], []
    for _ in range(matrix.shape[0]):
        below = matrix[1:, 0]
        inverse.append(1.0 / matrix[:1, 0])
        columns.append(below * inverse[-1])
        matrix = matrix[1:, 1:] - columns[-1][:, None] * below[None]
    return DenseFactor(columns, inverse)


def dense_solve(factored: DenseFactor, right):
    """Solve for right hand sides `(n, *batch)`."""
    done, rest = [], right
    for column in factored.columns:
        done.append(rest[:1])
        rest = rest[1:] - column * rest[:1]
    x = rest
    for column, d, y in zip(*(each[::-1] for each in (*factored, done)), strict=True):
        first = y * d - jnp.sum(column * x, axis=0, keepdims=True)
        x = jnp.concatenate([first, x])
    return x
