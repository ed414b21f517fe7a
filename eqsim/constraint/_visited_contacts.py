r"""Contacts as Newton's method sees them: those that exist, one after the other.

Of the many points that could touch, few do. A loop finds those that do and computes their
rows and Jacobians; the solver then sums what they contribute to a Newton system, $J^T W J$
and $J^T f$. The first of them are kept. Where there are more, the others are computed
anew in each visit, so memory does not grow with the number of possible points.
"""

import functools as ft
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from ..kinematics._structure import dof_order
from ..model import Tree
from ..spatial import Motion
from ._contact_rows import ContactRows, ContactSource, rows_at
from ._costs import AbstractCost, Residual
from ._jacobians import Terms
from ._rows import AbstractSolverRows, Line, work
from ._triangle import add_products, zero_triangle


_MOST_KEPT = 32
"""Contacts of which rows and Jacobians are kept, at most."""


class JacobianRows(NamedTuple):
    """Contacts with dense Jacobians.

    - `jac`: Jacobian of each residual, `(n, nv, *batch)`.
    - `cost`, `offset`: cost and offset, see `Rows`.
    """

    jac: tuple[Any, ...]
    cost: AbstractCost
    offset: Residual

    def rates(self, qdd) -> Residual:
        """Compute what an acceleration adds to the residuals."""
        return tuple(jnp.sum(jac * qdd[None], axis=1) for jac in self.jac)

    def residuals(self, qdd) -> Residual:
        """Compute the residuals at an acceleration."""
        pairs = zip(self.rates(qdd), self.offset, strict=True)
        return tuple(rate + offset for rate, offset in pairs)


class _Coupling(NamedTuple):
    """Contributions of contacts to a Newton system.

    - `triangle`: lower triangle of $J^T W J$, row by row.
    - `tau`: joint forces at zero acceleration, `(nv, *batch)`.
    """

    triangle: Any
    tau: Any


class VisitedContacts(AbstractSolverRows):
    """Contacts that exist.

    - `tree`: tree of nodes.
    - `axes`: motion axis of each degree of freedom.
    - `source`: data for their rows.
    - `kept`: the first contacts of each environment, `(m, ...)`.
    - `count`: their number, `(*batch)`.
    - `rest`: the first contact that is not kept, `(*batch)`.
    - `following`: the first contact at or after each point; see `following_contacts`.
    """

    tree: Tree = eqx.field(static=True)
    axes: Motion
    source: ContactSource
    kept: JacobianRows
    count: Any
    rest: Any
    following: Any

    @property
    def piecewise_quadratic(self) -> bool:
        return self.kept.cost.piecewise_quadratic

    def first_model(self, like) -> Any:
        still = jnp.zeros_like(like)
        return self._model(still, still, 0.0)[0]

    def next_model(self, old: Any, before, qdd, motion: Motion, tolerance: float):
        return self._model(before, qdd, tolerance)

    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        return Terms(dense=(model.tau,)), Terms(dense=(model.triangle,))

    def _model(self, before, qdd, tolerance: float) -> tuple[_Coupling, Any]:
        def add(total, contact: JacobianRows):
            model, changed = total
            old = contact.cost.piece(contact.residuals(before))
            x = contact.residuals(qdd)
            new, moved = contact.cost.update(old, x, contact.offset, tolerance)
            force = contact.cost.model(new, contact.offset)
            jac = [each[0] for each in contact.jac]
            parts = [row * f for row, f in zip(jac, force, strict=True)]
            tau = ft.reduce(operator.add, parts)
            weights = contact.cost.stiffness(new)
            triangle = add_products(model.triangle, jac, weights)
            return _Coupling(triangle, model.tau + tau), changed | moved[0]

        unchanged = jnp.zeros(qdd.shape[1:], bool)
        start = _Coupling(zero_triangle(qdd), jnp.zeros_like(qdd)), unchanged
        return self._rest(add, self._fold(add, start, self.kept))

    def on_line(self, line: Line) -> Any:
        def residuals(contact: JacobianRows):
            return contact.residuals(line.qdd), contact.rates(line.dqdd)

        return line, self._map(residuals, self.kept)

    def work(self, on_line: Any, share) -> Any:
        line, (start, change) = on_line

        def kept(total, row):
            x, dx, cost = row
            return total + jnp.sum(work(cost, x, dx, share), axis=0)

        def one(total, contact: JacobianRows):
            x, dx = contact.residuals(line.qdd), contact.rates(line.dqdd)
            return kept(total, (x, dx, contact.cost))

        none = jnp.zeros_like(share)
        return self._rest(one, self._fold(kept, none, (start, change, self.kept.cost)))

    def _fold(self, add: Callable, total, rows):
        """Fold `add(total, row)` over rows of the contacts that are kept."""

        def going(carry):
            return jnp.any(carry[0] < self.count)

        def body(carry):
            k, total = carry
            own = k < self.count
            new = add(total, rows_at(rows, k))
            # Without a kernel, the whole batch goes on.
            keep = lambda x, y: jnp.where(own, x, y)
            return k + own.astype(k.dtype), jtu.tree_map(keep, new, total)

        begin = jnp.zeros_like(self.count)
        return lax.while_loop(going, body, (begin, total))[1]

    def _map(self, function: Callable, rows):
        """Compute `function(row)` of the contacts that are kept; zeros without one."""

        def visit(_, numbered):
            k, row = numbered
            row = jtu.tree_map(lambda x: x[None], row)
            return None, _where_any(k < self.count, lambda: function(row))

        return lax.scan(visit, None, (self._numbers(), rows))[1]

    def _numbers(self):
        return jnp.arange(self.kept.offset[0].shape[0], dtype=jnp.int32)

    def _rest(self, add: Callable, total):
        """Fold `add(total, contact)` over the contacts that are not kept."""
        if self.following.shape[0] - 1 <= self.kept.offset[0].shape[0]:
            return total
        one = ft.partial(_with_jacobian, self.tree, self.axes)
        visit = lambda total, point: add(total, one(self.source, point))
        return for_each_contact(self.following, visit, total, self.rest)


def visited_contacts(
    tree: Tree, axes: Motion, source: ContactSource
) -> VisitedContacts:
    """Find the contacts that exist, and compute the rows of the first of them."""
    following = following_contacts(source.exists())
    points = following.shape[0] - 1

    def visit(carry, _):
        point, count = carry
        exists = point < points
        row = _where_any(exists, lambda: _with_jacobian(tree, axes, source, point))
        after = rows_at(following, jnp.minimum(point + 1, points))[0]
        return (after, count + exists.astype(count.dtype)), row

    begin = following[0], jnp.zeros_like(following[0])
    length = min(points, _MOST_KEPT)
    (rest, count), kept = lax.scan(visit, begin, None, length)
    return VisitedContacts(tree, axes, source, kept, count, rest, following)


def _where_any(condition, function: Callable):
    """Compute `function()`, without its leading axis, where any environment needs it;
    else zeros."""
    value = lambda: jtu.tree_map(lambda x: x[0], function())
    zeros = lambda: jtu.tree_map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(value)
    )
    return lax.cond(jnp.any(condition), value, zeros)


def following_contacts(exists):
    """Return the first contact at or after each point; the number of points where there
    is none. Shape `(n + 1, *batch)`."""
    count = exists.shape[0]
    point = jnp.arange(count + 1, dtype=jnp.int32)
    point = point.reshape(-1, *(1 for _ in exists.shape[1:]))
    exists = jnp.concatenate([exists, jnp.ones_like(exists[:1])])
    return lax.cummin(jnp.where(exists, point, count), axis=0, reverse=True)


def for_each_contact(following, add: Callable, total, start):
    """Fold `add(total, point)` over the contacts of each environment, from one on."""
    count = following.shape[0] - 1

    def going(carry):
        return jnp.any(carry[0] < count)

    def body(carry):
        point, total = carry
        after = jnp.minimum(point + 1, count)
        return rows_at(following, after)[0], add(total, point)

    return lax.while_loop(going, body, (start, total))[1]


def _with_jacobian(
    tree: Tree, axes: Motion, source: ContactSource, point
) -> JacobianRows:
    rows = source.row(point)
    nodes = source.group.nodes
    jac = contact_jacobian(tree, axes, nodes, rows, point)
    return JacobianRows(tuple(each[None] for each in jac), rows.cost, rows.offset)


def contact_jacobian(
    tree: Tree, axes: Motion, nodes, rows: ContactRows, point
) -> tuple[Any, ...]:
    """Compute the Jacobian of each residual of one contact, `(nv, *batch)`.

    **Arguments:**

    - `axes`: motion axis of each degree of freedom.
    - `nodes`: first and second node of all contacts; -1: the world.
    - `rows`: rows of the contact.
    - `point`: its number.
    """
    moves = _moving_dofs(tree, nodes, point, axes.ang.x.dtype)
    first, second = (
        (axes.lin + (axes.ang ^ arm)) * mask
        for arm, mask in zip(rows.arms, moves, strict=True)
    )
    jac = [v | (second - first) for v in rows.linear]
    if rows.angular:
        turns = axes.ang * (moves[1] - moves[0])
        jac += [v | turns for v in rows.angular]
    return tuple(jac)


def _moving_dofs(tree: Tree, nodes, point, dtype) -> list:
    """Return, for the two links of a contact, which degrees of freedom move them: zeros
    and ones, `(nv, *batch)`."""
    subtrees = _subtrees(tree)
    column = lambda x: x.reshape(-1, *(1 for _ in point.shape))
    first, last = column(subtrees.first), column(subtrees.last)
    masks = []
    for own in nodes:
        # No degree of freedom moves the world.
        number = np.array(own)
        place = np.where(number < 0, -1, subtrees.place[number]).astype(np.int32)
        place = rows_at(jnp.asarray(column(place)), point)
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
