r"""Contacts as Newton's method sees them: those that exist, one after the other.

Of the many points that could touch, few do. A loop visits those that do, computes their
rows and Jacobians, and sums what they contribute to a Newton system, $J^T W J$ and $J^T f$.
Recomputing them in each visit is as fast as reading them, and memory does not grow with
the number of possible points. A line search, which visits each contact several times, keeps
the residuals of the first of them.
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

from ..dynamics._sparse import Places
from ..kinematics._structure import dof_order, moving_dofs
from ..model import Tree
from ..spatial import Motion
from ._contact_rows import ContactRows, ContactSource, rows_at
from ._costs import AbstractCost, Residual
from ._entries import add_products
from ._jacobians import Terms
from ._rows import AbstractSolverRows, Line, work


_MOST_KEPT = 32
"""Contacts of which a line search keeps the residuals, at most."""


class _Contact(NamedTuple):
    """One contact of each environment.

    - `jac`: Jacobian of each residual, `(nv, *batch)`.
    - `cost`, `offset`: cost and offset, see `Rows`.
    """

    jac: tuple[Any, ...]
    cost: AbstractCost
    offset: Residual

    def rates(self, qdd) -> Residual:
        """Compute what an acceleration adds to the residuals."""
        return tuple(jnp.sum(jac * qdd, axis=0, keepdims=True) for jac in self.jac)

    def residuals(self, qdd) -> Residual:
        """Compute the residuals at an acceleration."""
        pairs = zip(self.rates(qdd), self.offset, strict=True)
        return tuple(rate + offset for rate, offset in pairs)


class _OnLine(NamedTuple):
    """One or more contacts on a line of accelerations.

    - `start`, `change`: residuals at the start, and their change up to the end.
    - `cost`: their cost.
    """

    start: Residual
    change: Residual
    cost: AbstractCost

    def work(self, share):
        """Compute the work of row forces per share of the line, `(*batch)`."""
        return jnp.sum(work(self.cost, self.start, self.change, share), axis=0)


class _Kept(NamedTuple):
    """Quantities of the contacts that a line search reads.

    - `line`: the line.
    - `first`: the first contacts of each environment, `(m, *batch)`.
    - `count`: number of these, `(*batch)`.
    - `rest`: the first contact that is not among them, `(*batch)`.
    """

    line: Line
    first: _OnLine
    count: Any
    rest: Any


class _Coupling(NamedTuple):
    """Contributions of contacts to a Newton system.

    - `entries`: entries of $J^T W J$, those that contacts can change.
    - `tau`: joint forces at zero acceleration, `(nv, *batch)`.
    """

    entries: Any
    tau: Any


class VisitedContacts(AbstractSolverRows):
    """Contacts that exist.

    - `tree`: tree of nodes.
    - `axes`: motion axis of each degree of freedom.
    - `source`: data for their rows.
    - `following`: the first contact at or after each point; see `following_contacts`.
    """

    tree: Tree = eqx.field(static=True)
    axes: Motion
    source: ContactSource
    following: Any

    @property
    def piecewise_quadratic(self) -> bool:
        return self.source.kind.piecewise_quadratic

    def first_model(self, like) -> Any:
        still = jnp.zeros_like(like)
        return self._model(still, still, 0.0)[0]

    def next_model(self, old: Any, before, qdd, motion: Motion, tolerance: float):
        return self._model(before, qdd, tolerance)

    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        every = tuple(range(model.tau.shape[0]))
        stiffness = Terms(entries=((model.entries, self._places),))
        return Terms(dofs=((model.tau, every),)), stiffness

    @property
    def _places(self) -> Places:
        return contact_places(self.tree, self.source.group.nodes)

    def _model(self, before, qdd, tolerance: float) -> tuple[_Coupling, Any]:
        places = self._places

        def add(total, point):
            model, changed = total
            contact = self._contact(point)
            old = contact.cost.piece(contact.residuals(before))
            x = contact.residuals(qdd)
            new, moved = contact.cost.update(old, x, contact.offset, tolerance)
            force = contact.cost.model(new, contact.offset)
            parts = [jac * f for jac, f in zip(contact.jac, force, strict=True)]
            tau = ft.reduce(operator.add, parts)
            weights = contact.cost.stiffness(new)
            entries = add_products(model.entries, places, contact.jac, weights)
            return _Coupling(entries, model.tau + tau), changed | moved[0]

        unchanged = jnp.zeros(qdd.shape[1:], bool)
        entries = jnp.zeros((len(places), *qdd.shape[1:]), qdd.dtype)
        start = _Coupling(entries, jnp.zeros_like(qdd)), unchanged
        return for_each_contact(self.following, add, start, self.following[0])

    def _contact(self, point) -> _Contact:
        rows, nodes = self.source.row(point), self.source.group.nodes
        jac = contact_jacobian(self.tree, self.axes, nodes, rows, point)
        return _Contact(jac, rows.cost, rows.offset)

    def _on_line(self, line: Line, point) -> _OnLine:
        contact = self._contact(point)
        x, dx = contact.residuals(line.qdd), contact.rates(line.dqdd)
        return _OnLine(x, dx, contact.cost)

    def on_line(self, line: Line) -> Any:
        points = self.following.shape[0] - 1

        def visit(carry, _):
            point, count = carry
            exists = point < points
            row = _where_any(exists, lambda: self._on_line(line, point))
            after = rows_at(self.following, jnp.minimum(point + 1, points))[0]
            return (after, count + exists.astype(count.dtype)), row

        begin = self.following[0], jnp.zeros_like(self.following[0])
        length = min(points, _MOST_KEPT)
        (rest, count), first = lax.scan(visit, begin, None, length)
        return _Kept(line, first, count, rest)

    def work(self, on_line: Any, share) -> Any:
        kept: _Kept = on_line

        def visit(carry):
            k, total = carry
            own = k < kept.count
            new = total + rows_at(kept.first, k).work(share)
            # Without a kernel, the loop continues for the whole batch.
            return k + own.astype(k.dtype), jnp.where(own, new, total)

        going = lambda carry: jnp.any(carry[0] < kept.count)
        begin = jnp.zeros_like(kept.count), jnp.zeros_like(share)
        total = lax.while_loop(going, visit, begin)[1]
        if self.following.shape[0] - 1 <= _MOST_KEPT:
            return total
        add = lambda total, point: total + self._on_line(kept.line, point).work(share)
        return for_each_contact(self.following, add, total, kept.rest)


def visited_contacts(
    tree: Tree, axes: Motion, source: ContactSource
) -> VisitedContacts:
    """Find the contacts that exist."""
    return VisitedContacts(tree, axes, source, following_contacts(source.exists()))


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


@ft.lru_cache(maxsize=256)
def contact_places(
    tree: Tree, nodes: tuple[tuple[int, ...], tuple[int, ...]]
) -> Places:
    """Return the entries of $J^T W J$ that contacts between pairs of nodes can change:
    those of degrees of freedom that move one of the two nodes."""
    size, places = len(dof_order(tree).nodes), set()
    for pair in set(zip(*nodes, strict=True)):
        first, second = (set(moving_dofs(tree, node)) for node in pair)
        own = sorted(first ^ second)
        places |= {size * i + j for k, i in enumerate(own) for j in own[: k + 1]}
    return tuple(sorted(places))


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
