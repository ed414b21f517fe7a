r"""The joint-space matrix entry by entry, for problems in which links act on each
other.

The composite-rigid-body algorithm gives $M$ (Featherstone, *Rigid Body Dynamics
Algorithms*, 2008, section 6.2); any symmetric 6x6 matrices may stand in for the
inertias of the nodes.
"""

import functools as ft
from typing import Any

import numpy as np

from ..kinematics._forward import ascend, dof_order
from ..model import Tree
from ..model._gather import take, take_or_zero
from ..spatial import ArticulatedInertia, Motion
from ._sparse import Places


def joint_space_entries(
    tree: Tree, axes: Motion, inertia: ArticulatedInertia, diagonal
) -> tuple[Any, Places]:
    """Compute the entries of $M$ that are not zero, from the inertias of the nodes.

    **Arguments:**

    - `axes`: motion axis of each degree of freedom, `(nv, *batch)`.
    - `inertia`: inertia of each node alone, `(nnode, *batch)`.
    - `diagonal`: added to the diagonal, `(nv, *batch)`.

    **Returns:** values `(k, *batch)`, and their entries in the lower triangle.
    """
    force = take(ascend(tree, inertia), dof_order(tree).nodes) @ axes
    rows, columns = np.nonzero(carries(tree))
    own = np.where(rows == columns, rows, -1)
    values = (take(axes, columns) | take(force, rows)) + take_or_zero(diagonal, own)
    places = rows * len(dof_order(tree).nodes) + columns
    return values, tuple(places.tolist())


def joint_space_matrix(tree: Tree, axes: Motion, inertia: ArticulatedInertia, diagonal):
    """Compute $M$, `(nv, nv, *batch)`; arguments as of `joint_space_entries`."""
    values, places = joint_space_entries(tree, axes, inertia, diagonal)
    return symmetric_matrix(values, places, len(dof_order(tree).nodes))


def symmetric_matrix(values, places: Places, size: int):
    """Return the symmetric matrix `(n, n, *batch)` of entries of its lower triangle."""
    index = np.full((size, size), -1)
    rows, columns = np.divmod(np.array(places, int), size)
    index[rows, columns] = index[columns, rows] = np.arange(len(places))
    entries = take_or_zero(values, index.ravel())
    return entries.reshape(size, size, *values.shape[1:])


@ft.lru_cache(maxsize=256)
def carries(tree: Tree) -> np.ndarray:
    """Return the entries `[i, j]`, `j <= i`, at which $M$ is not zero: those at which
    the axis `j` moves the axis `i`."""
    nodes = np.array(dof_order(tree).nodes, int)
    return np.tril(tree.ancestors[np.ix_(nodes, nodes)])


@ft.lru_cache(maxsize=256)
def lower_triangle(size: int) -> Places:
    """Return all entries of the lower triangle of a matrix, row by row."""
    rows, columns = np.tril_indices(size)
    return tuple((rows * size + columns).tolist())


def lower_entries(matrix) -> tuple[Any, Places]:
    """Return the lower triangle of a matrix `(n, n, *batch)`."""
    places = lower_triangle(matrix.shape[0])
    flat = matrix.reshape(-1, *matrix.shape[2:])
    return take(flat, places), places
