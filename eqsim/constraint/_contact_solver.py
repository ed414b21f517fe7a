r"""Contacts as Newton's method sees them: a list of those that exist.

A loop visits the contacts of each environment, computes their Jacobians, and sums what they
contribute to a Newton system, $J^T W J$ and $J^T f$. Recomputing a Jacobian in each visit
is as fast as reading it, and memory does not grow with the number of possible points. The
rows that reports and derivatives use are `CoupledContacts` (`contact.py`) and
`ListedContacts` (`listed_contacts.py`).
"""

import dataclasses
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

from .._lists import read_rows_of, table_rows, write_rows
from .._primitive import are_rows_together
from ..dynamics.joint_space import Places
from ..kinematics.link_motion import dof_order, moving_dofs
from ..model import Tree
from ..spatial import Motion
from .contact_rows import ContactRows
from .costs import AbstractCost, Elliptic, OneSided, Pyramid, Residual
from .held_costs import Held, HeldElliptic, HeldPyramid
from .rows import AbstractSolverRows, add_products, Line, Terms, work


# Lists of contacts.


class ContactRowList(NamedTuple):
    """The rows of contacts, `(capacity, *batch)`.

    - `pair`: number of the pair of nodes of each contact.
    - `rows`: their rows.
    - `count`: number of contacts, `(*batch)`.
    """

    pair: Any
    rows: ContactRows
    count: Any

    @property
    def capacity(self) -> int:
        return self.pair.shape[0]


CONTACTS_TOGETHER = 8
"""Contacts of each environment that are visited together, except in kernels."""
FEW_NUMBERS = 32
"""The same for visits that read few numbers of each contact."""


def visit_contacts(count, visit: Callable, start, together: int = CONTACTS_TOGETHER):
    """Fold `visit(carry, k, used)` over the contacts of each environment; `k` and `used`
    have shape `(n, *batch)`.

    In kernels n is one. Elsewhere n contacts are visited together, the first n without a
    loop; then it continues for the whole batch. `used` is false where there are no more
    contacts; these repeat the first one, whose numbers may be undefined.
    """
    size = together if are_rows_together() else 1
    number = jnp.arange(size, dtype=jnp.int32).reshape(-1, *(1 for _ in count.shape))

    def body(carry):
        k, kept = carry
        place = k + number
        used = place < count[None]
        return k + size, visit(kept, jnp.where(used, place, 0), used)

    going = lambda carry: jnp.any(carry[0] < count)
    if size == 1:
        return lax.while_loop(going, body, (0, start))[1]
    first = body((jnp.zeros((), jnp.int32), start))
    return lax.while_loop(going, body, first)[1]


def for_each_contact(count, add: Callable, start, together: int = CONTACTS_TOGETHER):
    """Fold `add(total, k, used)` over the contacts of each environment, see
    `visit_contacts`; `k` and `used` have shape `(1, *batch)`.

    Several contacts may be added to zero apart, so `add` adds to numbers, and to flags by
    `|`.
    """
    if not are_rows_together():
        return visit_contacts(count, add, start)
    zero = jtu.tree_map(jnp.zeros_like, start)

    def join(total, found, used):
        inner = found.ndim - used.ndim
        used = used.reshape(used.shape[0], *(1 for _ in range(inner)), *used.shape[1:])
        found = jnp.where(used, found, jnp.zeros_like(found))
        if total.dtype == bool:
            return total | jnp.any(found, axis=0)
        return total + jnp.sum(found, axis=0, dtype=total.dtype)

    def visit(total, k, used):
        one = lambda k, used: add(zero, k[None], used[None])
        found = jax.vmap(one)(k, used)
        return jtu.tree_map(lambda x, y: join(x, y, used), total, found)

    return visit_contacts(count, visit, start, together)


def list_rows(capacity: int, count, row: Callable) -> Any:
    """Return a list of `row(k)`, arrays `(1, *batch)`, of the contacts of each
    environment."""
    place = jnp.zeros_like(count)[None]
    shapes = jtu.tree_map(lambda x: x.dtype, eqx.filter_eval_shape(row, place))
    batch = count.shape
    start = jtu.tree_map(lambda dtype: lax.empty((capacity, *batch), dtype), shapes)

    def visit(rows, k, used):
        found = row(k) if k.shape[0] == 1 else _rows_of(row, k)
        write = lambda x, value: write_rows(x, k, value, used)
        return jtu.tree_map(write, rows, found)

    return visit_contacts(count, visit, start)


def _rows_of(row: Callable, k):
    found = jax.vmap(lambda k: row(k[None]))(k)
    return jtu.tree_map(lambda x: x[:, 0], found)


def numbers_where(flags) -> tuple[Any, Any]:
    """Return the numbers of the rows whose flag is set, as a list, and their number."""
    place = jnp.cumsum(flags, axis=0, dtype=jnp.int32) - 1
    start = lax.empty(flags.shape, jnp.int32)
    count = jnp.sum(flags, axis=0, dtype=jnp.int32)
    if are_rows_together():
        number = jnp.arange(flags.shape[0], dtype=jnp.int32)
        number = number.reshape(-1, *(1 for _ in flags.shape[1:]))
        return write_rows(start, place, number, flags), count

    def visit(carry, row):
        number, k = carry
        return (
            write_rows(number, *(x[None] for x in (row[0], k, row[1]))),
            k + 1,
        ), None

    begin = start, jnp.zeros(flags.shape[1:], jnp.int32)
    return lax.scan(visit, begin, (place, flags))[0][0], count


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
    - `nodes`: first and second node of each pair; -1: the world.
    - `axes`: motion axis of each degree of freedom.
    - `list`: rows of the contacts.
    """

    tree: Tree = eqx.field(static=True)
    nodes: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    axes: Motion
    list: ContactRowList

    @property
    def piecewise_quadratic(self) -> bool:
        return self.list.rows.cost.piecewise_quadratic

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
        return contact_places(self.tree, self.nodes)

    def _model(self, before, qdd, tolerance: float) -> tuple[_Coupling, Any]:
        places = self._places

        def add(total, k, used):
            model, changed = total
            contact = self._contact(k, used)
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
        return for_each_contact(self.list.count, add, start)

    def stiffness(self, qdd) -> Terms:
        """Compute $J^T W J$ on the pieces of the cost at an acceleration."""
        places = self._places

        def add(entries, k, used):
            contact = self._contact(k, used)
            piece = contact.cost.piece(contact.residuals(qdd))
            weights = contact.cost.stiffness(piece)
            return add_products(entries, places, contact.jac, weights)

        start = jnp.zeros((len(places), *qdd.shape[1:]), qdd.dtype)
        total = for_each_contact(self.list.count, add, start)
        return Terms(entries=((total, places),))

    def _contact(self, k, used=True) -> _Contact:
        pair, rows = read_rows_of((self.list.pair, self.list.rows), k)
        jac = contact_jacobian(self.tree, self.axes, self.nodes, rows, pair)
        return _Contact(jac, _only(rows.cost, used), rows.offset)

    def on_line(self, line: Line) -> Any:
        def row(k):
            contact = self._contact(k)
            return contact.residuals(line.qdd), contact.rates(line.dqdd)

        return list_rows(self.list.capacity, self.list.count, row)

    def work(self, on_line: Any, share) -> Any:
        def add(total, k, used):
            (start, change), cost = read_rows_of((on_line, self.list.rows.cost), k)
            cost = _only(cost, used)
            return total + jnp.sum(work(cost, start, change, share), axis=0)

        zero = jnp.zeros_like(share)
        return for_each_contact(self.list.count, add, zero, FEW_NUMBERS)


def _only(cost: AbstractCost, used) -> AbstractCost:
    """Return a cost that is zero where it is not used."""
    assert isinstance(
        cost, OneSided | Pyramid | Elliptic | Held | HeldPyramid | HeldElliptic
    ), "contacts have these costs"
    return dataclasses.replace(cost, weight=jnp.where(used, cost.weight, 0.0))


def contact_jacobian(
    tree: Tree, axes: Motion, nodes, rows: ContactRows, pair
) -> tuple[Any, ...]:
    """Compute the Jacobian of each residual of one contact, `(nv, *batch)`.

    **Arguments:**

    - `axes`: motion axis of each degree of freedom.
    - `nodes`: first and second node of all pairs; -1: the world.
    - `rows`: rows of the contact.
    - `pair`: number of its pair, `(1, *batch)`.
    """
    moves = _moving_dofs(tree, nodes, pair, axes.ang.x.dtype)
    first, second = (
        (axes.lin + axes.ang.cross(arm)) * mask
        for arm, mask in zip(rows.arms, moves, strict=True)
    )
    jac = [v.dot(second - first) for v in rows.linear]
    if rows.angular:
        turns = axes.ang * (moves[1] - moves[0])
        jac += [v.dot(turns) for v in rows.angular]
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


def _moving_dofs(tree: Tree, nodes, pair, dtype) -> list:
    """Return, for the two links of a contact, which degrees of freedom move them: zeros
    and ones, `(nv, *batch)`."""
    subtrees = _subtrees(tree)
    column = lambda x: x.reshape(-1, *(1 for _ in pair.shape[1:]))
    first, last = column(subtrees.first), column(subtrees.last)
    masks = []
    for own in nodes:
        # No degree of freedom moves the world.
        number = np.array(own)
        place = table_rows(np.where(number < 0, -1, subtrees.place[number]), pair)
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
