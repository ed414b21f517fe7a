r"""The joint-space matrix entry by entry, for problems in which links act on each other, and
linear systems with its entries.

The composite-rigid-body algorithm gives $M$ (Featherstone, *Rigid Body Dynamics
Algorithms*, 2008, section 6.2); any symmetric 6x6 matrices may stand in for the
inertias of the nodes.

The matrix $P M P^T = L D L^T$ is factorized by columns. The order $P$ is that of minimum
degree: in the next column there are as few entries as possible. For the joint-space matrix
of a tree it goes from the leaves to the roots, and no zero entry fills.

Sources: Featherstone, section 6.5; George and Liu, *The evolution of the minimum degree
ordering algorithm*, SIAM Review 31, 1989.
"""

import functools as ft
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics.link_motion import ascend, dof_order
from ..model import Tree
from ..model.arrays import take, take_or_zero
from ..spatial import Motion
from ..spatial.vectors import ArticulatedInertia


# Linear systems.


Places = tuple[int, ...]
"""Entries `[i, j]`, `j <= i`, of a matrix with n columns, as numbers `n i + j`."""


class _Step(NamedTuple):
    """The elimination of one column.

    - `below`: rows of its other entries, counted from the next column on.
    - `left`, `right`: factors in `below` of each product that changes an entry.
    - `products`: product of each entry of the remaining columns; -1: none.
    - `rows`: place in `below` of each remaining row; -1: none.
    """

    below: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    products: tuple[int, ...]
    rows: tuple[int, ...]


class _Elimination(NamedTuple):
    """The order of an elimination.

    - `order`: row of the matrix that each step eliminates.
    - `back`: step that eliminates each row.
    - `places`: all entries, column by column.
    - `steps`: the steps.
    """

    order: tuple[int, ...]
    back: tuple[int, ...]
    places: Places
    steps: tuple[_Step, ...]


def linear_solver(size: int, parts: Sequence[tuple[Any, Places]]) -> Callable:
    """Factorize a positive definite matrix `(n, n, *batch)`.

    **Arguments:**

    - `size`: number of rows n.
    - `parts`: values `(k, *batch)` and their distinct entries; the matrix is their sum.

    **Returns:** a function of right hand sides `(n, *batch)` that computes the solution.
    """
    every = {place for _, places in parts for place in places}
    plan = _elimination(size, tuple(sorted(every)))
    spread = (take_or_zero(x, _rows_of(plan.places, places)) for x, places in parts)
    matrix, columns, inverse = ft.reduce(operator.add, spread), [], []
    for step in plan.steps:
        count = len(step.below)
        below = matrix[1 : 1 + count]
        inverse.append(1.0 / matrix[:1])
        columns.append(below * inverse[-1])
        matrix = matrix[1 + count :]
        if count:
            products = take(columns[-1], step.left) * take(below, step.right)
            matrix = matrix - take_or_zero(products, step.products)
    return ft.partial(_solve, plan, columns, inverse)


def _solve(plan: _Elimination, columns: list, inverse: list, right):
    done, rest = [], take(right, plan.order)
    for column, step in zip(columns, plan.steps, strict=True):
        done.append(rest[:1])
        rest = rest[1:]
        if step.below:
            rest = rest - take_or_zero(column * done[-1], step.rows)
    x = rest
    for k in reversed(range(len(columns))):
        first, below = done[k] * inverse[k], plan.steps[k].below
        if below:
            sums = jnp.sum(columns[k] * take(x, below), axis=0, keepdims=True)
            first = first - sums
        x = jnp.concatenate([first, x])
    return take(x, plan.back)


@ft.lru_cache(maxsize=1024)
def _rows_of(wanted: Places, places: Places) -> tuple[int, ...]:
    row = {place: k for k, place in enumerate(places)}
    return tuple(row.get(place, -1) for place in wanted)


@ft.lru_cache(maxsize=256)
def _elimination(size: int, places: Places) -> _Elimination:
    order, columns = _minimum_degree(size, places)
    back = sorted(range(size), key=order.__getitem__)
    columns = [sorted(back[row] for row in column) for column in columns]
    steps = tuple(_step(columns, k) for k in range(size))
    entry = lambda i, j: size * max(i, j) + min(i, j)
    stored = tuple(
        entry(order[k], order[row])
        for k, column in enumerate(columns)
        for row in (k, *column)
    )
    return _Elimination(tuple(order), tuple(back), stored, steps)


def _minimum_degree(size: int, places: Places) -> tuple[list[int], list[set[int]]]:
    """Return the order of elimination, and the rows below the diagonal of each column."""
    near: list[set[int]] = [set() for _ in range(size)]
    for place in places:
        i, j = divmod(place, size)
        if i != j:
            near[i].add(j)
            near[j].add(i)
    left, order, columns = set(range(size)), [], []
    while left:
        # Of equal ones the last, as children come after their parents.
        own = min(left, key=lambda k: (len(near[k]), -k))
        left.remove(own)
        order.append(own)
        columns.append(near[own])
        for k in near[own]:
            near[k] = (near[k] | near[own]) - {k, own}
    return order, columns


def _step(columns: list[list[int]], k: int) -> _Step:
    own = columns[k]
    place = {row: number for number, row in enumerate(own)}
    left, right, product = [], [], {}
    for number, column in enumerate(own):
        for row in own[number:]:
            product[row, column] = len(left)
            left.append(place[row])
            right.append(number)
    products = tuple(
        product.get((row, column), -1)
        for column in range(k + 1, len(columns))
        for row in (column, *columns[column])
    )
    rows = tuple(place.get(row, -1) for row in range(k + 1, len(columns)))
    below = tuple(row - k - 1 for row in own)
    return _Step(below, tuple(left), tuple(right), products, rows)


# Entries.


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
    values = take(axes, columns).dot(take(force, rows)) + take_or_zero(diagonal, own)
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
