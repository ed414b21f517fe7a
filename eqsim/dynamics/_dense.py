r"""The joint-space matrix entry by entry, for problems in which links act on each
other.

The composite-rigid-body algorithm gives $M$ (Featherstone, *Rigid Body Dynamics
Algorithms*, 2008, section 6.2); any symmetric 6x6 matrices may stand in for the
inertias of the nodes. Batch axes are last, and so the factorization runs on whole
batches.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics._axes import dof_nodes
from ..kinematics._recursion import ascend
from ..model import take, Tree
from ..spatial import ArticulatedInertia, Force, Motion, Vec3


def joint_space_matrix(tree: Tree, axes: Motion, inertia: ArticulatedInertia, diagonal):
    """$M$ of given inertias of the nodes: `(nv, nv, *batch)`."""
    nodes = dof_nodes(tree)
    force = _times(take(ascend(tree, inertia), nodes), axes)
    related = tree.ancestors[np.ix_(nodes, nodes)]
    # Among the six of a free joint, each is an ancestor of the others: keep j <= i.
    return _assemble(axes, force, diagonal, _Mask(np.tril(related)))


def _times(inertia: ArticulatedInertia, axes: Motion) -> Force:
    return inertia @ axes


class _Mask:
    """A constant matrix of zeros and ones, compared by value."""

    def __init__(self, array: np.ndarray):
        self.array, self.key = array, (array.shape, array.tobytes())

    def __eq__(self, other):
        return isinstance(other, _Mask) and self.key == other.key

    def __hash__(self):
        return hash(self.key)


def _assemble(axes: Motion, force: Force, diagonal, lower: _Mask):
    """The symmetric matrix with entries `axes[j] | force[i]` where `lower[i, j]`."""
    rows = lambda v: Vec3(*(x[:, None] for x in v))
    columns = lambda v: Vec3(*(x[None] for x in v))
    below = Motion(*map(columns, axes)) | Force(*map(rows, force))
    above = Motion(*map(rows, axes)) | Force(*map(columns, force))
    ones = [1] * (below.ndim - 2)
    mask = lambda array: array.reshape(*array.shape, *ones).astype(below.dtype)
    strict = np.triu(lower.array.T, 1)
    eye = np.eye(len(strict), dtype=bool)
    full = below * mask(lower.array) + above * mask(strict)
    return full + diagonal[None] * mask(eye)


class DenseFactor(NamedTuple):
    """Columns of the unit lower triangle, and the inverse diagonal."""

    columns: list
    inverse: list


def dense_factor(matrix) -> DenseFactor:
    r"""$L D L^T$ of a positive definite `(n, n, *batch)` matrix."""
    columns, inverse = [], []
    for _ in range(matrix.shape[0]):
        d, column, matrix = _eliminate(matrix)
        inverse.append(d)
        columns.append(column)
    return DenseFactor(columns, inverse)


def _eliminate(matrix):
    """Inverse of the first pivot, the column below it, and what is left."""
    d = 1.0 / matrix[:1, 0]
    column = matrix[1:, 0] * d
    return d, column, matrix[1:, 1:] - column[:, None] * matrix[None, 0, 1:]


def dense_solve(factored: DenseFactor, right):
    """Solves for right hand sides `(n, *batch)`."""
    done, rest = [], right
    for column in factored.columns:
        top, rest = rest[:1], rest[1:]
        done.append(top)
        rest = rest - column * top
    below = jnp.zeros((0, *done[0].shape[1:]), right.dtype)
    for column, d, y in zip(factored.columns[::-1], factored.inverse[::-1], done[::-1]):
        x = y * d - jnp.sum(column * below, axis=0, keepdims=True)
        below = jnp.concatenate([jnp.broadcast_to(x, (1, *x.shape[1:])), below])
    return below
