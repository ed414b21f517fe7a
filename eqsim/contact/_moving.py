r"""Contacts between moving links, which couple branches of the tree.

Of the many points that could touch, few do. A loop visits those that do, and sums what
they contribute to a Newton system: $J^T W J$ and $J^T f$.
"""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from ..kinematics._structure import dof_order
from ..model import take, Tree
from ..spatial import Motion
from ._active import active_edges, changes, edge_forces, edge_stiffnesses, edges
from ._rows import PointRows
from ._structure import Structure


class Contact(NamedTuple):
    """One contact of each problem.

    - `jac`: Jacobians of normal and sides, `(nv, *batch)`.
    - `offsets`: residuals along these at zero acceleration, `(1, *batch)`.
    - `weight`: weight of each edge, `(1, *batch)`.
    """

    jac: tuple[Any, Any, Any]
    offsets: tuple[Any, Any, Any]
    weight: Any

    def residuals(self, qdd) -> tuple:
        """Compute the residuals of the four edges at an acceleration."""
        along = (
            jnp.sum(jac * qdd, axis=0, keepdims=True) + offset
            for jac, offset in zip(self.jac, self.offsets, strict=True)
        )
        return edges(*along)


class Coupling(NamedTuple):
    """What contacts between moving links add to a Newton system.

    - `matrix`: lower triangle of $J^T W J$, row by row.
    - `tau`: joint forces at zero acceleration, `(nv, *batch)`.
    - `changed`: whether the active set has changed since the previous iterate.
    """

    matrix: Any
    tau: Any
    changed: Any


def newton_coupling(
    structure: Structure, axes: Motion, rows: PointRows, before, qdd
) -> Coupling:
    """Compute the contribution to the Newton system at `qdd`.

    **Arguments:**

    - `axes`: motion axis of each degree of freedom.
    - `before`: previous iterate.
    """

    def add(total: Coupling, point) -> Coupling:
        contact = _contact(structure, axes, rows, point)
        x, constant = contact.residuals(qdd), edges(*contact.offsets)
        old = active_edges(contact.weight, contact.residuals(before))
        new = active_edges(contact.weight, x)
        changed = total.changed
        for a, b, y, size in zip(new, old, x, constant, strict=True):
            changed = changed | changes(a, b, y, jnp.abs(size))[0]
        w = edge_stiffnesses(contact.weight, new)
        force = edge_forces(*(-a * b for a, b in zip(w, constant, strict=True)))
        tau = sum(jac * f for jac, f in zip(contact.jac, force, strict=True))
        matrix = _add_product(total.matrix, contact.jac, w)
        return Coupling(matrix, total.tau + tau, changed)

    unchanged = jnp.zeros(qdd.shape[1:], bool)
    start = Coupling(_zero_triangle(qdd), jnp.zeros_like(qdd), unchanged)
    return _for_each_contact(rows.weight, add, start)


def weighted_coupling(structure: Structure, axes: Motion, rows: PointRows, w: tuple):
    """Compute the lower triangle of $J^T W J$ for given weights of the edges."""

    def add(total, point):
        contact = _contact(structure, axes, rows, point)
        return _add_product(total, contact.jac, _at(w, point))

    weight = ft.reduce(jnp.add, w)
    return _for_each_contact(weight, add, _zero_triangle(axes.ang.x + weight[:1]))


def _for_each_contact(weight, add: Callable, total):
    """Fold `add(total, point)` over the points with a weight, in each problem."""
    count = weight.shape[0]
    point = jnp.arange(count + 1, dtype=jnp.int32)
    point = point.reshape(-1, *(1 for _ in weight.shape[1:]))
    exists = jnp.concatenate([weight > 0.0, jnp.ones_like(weight[:1], bool)])
    # The first contact at or after each point; `count` after the last one.
    following = lax.cummin(jnp.where(exists, point, count), axis=0, reverse=True)

    def going(carry):
        return jnp.any(carry[0] < count)

    def body(carry):
        point, total = carry
        after = jnp.minimum(point + 1, count)
        return _at(following, after)[0], add(total, point)

    return lax.while_loop(going, body, (following[0], total))[1]


def _at(tree, index):
    """Return row `index` of each problem, of all arrays; zeros beyond the last row."""
    index = index[None]

    def one(x):
        x = jnp.broadcast_to(x, x.shape[:1] + index.shape[1:])
        return jnp.take_along_axis(x, index, axis=0, mode="fill", fill_value=0)

    return jtu.tree_map(one, tree)


def _contact(structure: Structure, axes: Motion, rows: PointRows, point) -> Contact:
    """Compute the Jacobians of one contact of each problem."""
    row = _at(rows, point)
    moves = _moving_dofs(structure, point, row.weight.dtype)
    first, second = (
        (axes.lin + (axes.ang ^ arm)) * mask
        for arm, mask in zip(row.arms, moves, strict=True)
    )
    jac = tuple(v | (second - first) for v in (row.normal, row.side1, row.side2))
    return Contact(jac, row.offsets, row.weight)


def _moving_dofs(structure: Structure, point, dtype) -> list:
    """Return, for the two links of a contact, which degrees of freedom move them: zeros
    and ones, `(nv, *batch)`."""
    tree = structure.tree
    subtrees = _subtrees(tree)
    column = lambda x: x.reshape(-1, *(1 for _ in point.shape))
    first, last = column(subtrees.first), column(subtrees.last)
    masks = []
    for nodes in structure.moving_nodes:
        place = jnp.asarray(column(subtrees.place[list(nodes)]))
        place = _at(place, point)
        masks.append(((first <= place) & (place < last)).astype(dtype))
    return masks


class _Subtrees(NamedTuple):
    """Nodes in depth-first order, in which every subtree is an interval.

    - `place`: position of each node.
    - `first`, `last`: interval of the nodes that each degree of freedom moves.
    """

    place: np.ndarray
    first: np.ndarray
    last: np.ndarray


@ft.lru_cache(maxsize=256)
def _subtrees(tree: Tree) -> _Subtrees:
    path = lambda node: tuple(np.flatnonzero(tree.ancestors[node]))
    place = np.empty(tree.size, np.int32)
    place[sorted(range(tree.size), key=path)] = np.arange(tree.size)
    size = np.sum(tree.ancestors, axis=0, dtype=np.int32)
    nodes = list(dof_order(tree).nodes)
    return _Subtrees(place, place[nodes], (place + size)[nodes])


class _Triangle(NamedTuple):
    """The lower triangle of a matrix, row by row: rows and columns of its entries, and
    the entry at each place of the full symmetric matrix."""

    rows: np.ndarray
    columns: np.ndarray
    entries: np.ndarray


@ft.lru_cache(maxsize=256)
def _triangle(n: int) -> _Triangle:
    rows, columns = np.tril_indices(n)
    entries = np.zeros((n, n), int)
    entries[rows, columns] = entries[columns, rows] = np.arange(len(rows))
    return _Triangle(rows, columns, entries)


def full_matrix(triangle, n: int):
    """Return the symmetric matrix `(n, n, *batch)` with a given lower triangle."""
    entries = take(triangle, _triangle(n).entries.ravel())
    return entries.reshape(n, n, *triangle.shape[1:])


def _zero_triangle(like):
    size = len(_triangle(like.shape[0]).rows)
    return jnp.zeros((size, *like.shape[1:]), like.dtype)


def _add_product(triangle, jac: tuple, weights: tuple):
    """Add the lower triangle of $J^T W J$ of one contact, given weights of its edges."""
    (n, m1, m2), (a, b, c, d) = jac, weights
    weighted = (
        n * (a + b + c + d) + m1 * (a - b) + m2 * (c - d),
        n * (a - b) + m1 * (a + b),
        n * (c - d) + m2 * (c + d),
    )
    rows, columns, _ = _triangle(n.shape[0])
    for left, right in zip(weighted, jac, strict=True):
        triangle = triangle + take(left, rows) * take(right, columns)
    return triangle
