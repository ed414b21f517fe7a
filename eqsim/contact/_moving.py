"""Contacts between moving links, which couple branches of the tree.

Of the many points that could touch, few do. They are visited one after the other, each
problem of a batch going through its own, as often as the fullest one needs: none is
left out, however many there are. The Jacobians of the first few are kept from one
Newton step to the next.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from ..kinematics._axes import dof_nodes
from ..model import Tree
from ..spatial import Motion, Vec3
from ._active import edge_forces, edge_pieces, edge_weights, edges, flips, Layout
from ._rows import PointRows


# So many contacts of each problem are kept.
_STORED = 6


class Contact(NamedTuple):
    """One contact of each problem: Jacobians of normal and sides `(nv, *batch)`,
    offsets and weight `(1, *batch)`; a weight of zero if there is none."""

    jac: tuple[Any, Any, Any]
    offsets: tuple[Any, Any, Any]
    weight: Any

    def residuals(self, qdd) -> tuple:
        """Those of the four edges, at an acceleration."""
        along = [
            jnp.sum(j * qdd, axis=0, keepdims=True) + offset
            for j, offset in zip(self.jac, self.offsets)
        ]
        return edges(*along)


class Coupling(NamedTuple):
    """What contacts between moving links add on given pieces: $J^T W J$, the joint
    forces at zero acceleration, and whether any piece has changed."""

    matrix: Any
    pull: Any
    flipped: Any


class Touching(NamedTuple):
    """The contacts that exist: for each point, its number among those of its problem,
    from 1 on (0: it does not touch); how many the fullest problem has; and the first
    few, ready for use, along a leading axis."""

    rank: Any
    count: Any
    first: Contact


def touching(tree: Tree, where: Layout, axes: Motion, rows: PointRows) -> Touching:
    """Finds the contacts that exist, in each problem of a batch."""
    rank, count = _ranks(rows.weight)
    like = axes.ang.x + rows.weight[:1]
    stack = lambda x: jnp.zeros((_STORED, *x.shape), x.dtype)
    jac, row = stack(like), stack(like[:1])
    init = Contact((jac, jac, jac), (row, row, row), row)
    table = _bits(tree, where)

    def store(k, first):
        contact = _contact(table, axes, *_pick(rows, rank, k))
        put = lambda every, x: lax.dynamic_update_index_in_dim(every, x, k, 0)
        return jtu.tree_map(put, first, contact)

    first = lax.fori_loop(0, jnp.minimum(count, _STORED), store, init)
    return Touching(rank, count, first)


def newton_coupling(
    tree: Tree, where: Layout, axes: Motion, rows: PointRows, now: Touching, before, qdd
) -> Coupling:
    """The contribution to a Newton step at `qdd`; `before` is the point at which the
    pieces were read off last."""
    table = _bits(tree, where)

    def step(k, total):
        stored = lambda: jtu.tree_map(
            lambda x: lax.dynamic_index_in_dim(x, k, 0, keepdims=False), now.first
        )
        found = lambda: _contact(table, axes, *_pick(rows, now.rank, k))
        contact = lax.cond(k < _STORED, stored, found)
        return _add_newton(before, qdd, total, contact)

    return lax.fori_loop(0, now.count, step, _nothing(qdd))


def weighted_coupling(tree: Tree, where: Layout, axes: Motion, rows: PointRows, w):
    """$J^T W J$ of given weights of the edges."""
    rows = rows._replace(weight=ft.reduce(jnp.add, w))
    rank, count = _ranks(rows.weight)
    table = _bits(tree, where)

    def step(k, total):
        row, index = _pick(rows, rank, k)
        contact = _contact(table, axes, row, index)
        weights = [jnp.where(row.weight > 0.0, x, 0.0) for x in _at(w, index)]
        return _add_weighted(total, contact, weights)

    init = _nothing(axes.ang.x + rows.weight[:1]).matrix
    return lax.fori_loop(0, count, step, init)


def _ranks(weight):
    exists = weight > 0.0
    count = jnp.cumsum(exists.astype(jnp.int32), axis=0)
    return jnp.where(exists, count, 0), jnp.max(count[-1])


def _nothing(like) -> Coupling:
    matrix = jnp.zeros((like.shape[0], *like.shape), like.dtype)
    return Coupling(matrix, jnp.zeros_like(like), jnp.zeros(like.shape[1:], bool))


def _add_newton(before, qdd, total: Coupling, contact: Contact) -> Coupling:
    w, x = contact.weight, contact.residuals(qdd)
    old, new = edge_pieces(w, contact.residuals(before)), edge_pieces(w, x)
    offsets = edges(*contact.offsets)
    changed = [
        flips(*leaves)[0]
        for leaves in zip(new, old, x, (jnp.abs(e) for e in offsets), strict=True)
    ]
    weights = edge_weights(w, new)
    pull = [-a * b for a, b in zip(weights, offsets)]
    return Coupling(
        _add_weighted(total.matrix, contact, weights),
        total.pull + sum(j * f for j, f in zip(contact.jac, edge_forces(*pull))),
        total.flipped | ft.reduce(jnp.logical_or, changed),
    )


def _add_weighted(total, contact: Contact, weights):
    left = _weigh(contact, weights)
    for one, two in zip(left, contact.jac):
        total = total + one[:, None] * two[None]
    return total


def _weigh(contact: Contact, weights) -> tuple:
    """$W J$, of the normal and the two sides."""
    n, m1, m2 = contact.jac
    a, b, c, d = weights
    return (
        n * (a + b + c + d) + m1 * (a - b) + m2 * (c - d),
        n * (a - b) + m1 * (a + b),
        n * (c - d) + m2 * (c + d),
    )


def _at(tree, index):
    """Row `index` of each problem, of all arrays."""
    return jtu.tree_map(lambda x: jnp.take_along_axis(x, index[None], axis=0), tree)


def _pick(rows: PointRows, rank, k) -> tuple[PointRows, Any]:
    """The row of contact number `k` of each problem, and which point it is."""
    places = jnp.arange(rank.shape[0], dtype=jnp.int32)
    places = places.reshape(-1, *(1 for _ in rank.shape[1:]))
    chosen = rank == k + 1
    index = jnp.max(jnp.where(chosen, places, 0), axis=0)
    row = _at(rows, index)
    some = jnp.any(chosen, axis=0)
    return row._replace(weight=jnp.where(some, row.weight, 0.0)), index


class _Table:
    """For each point and each of its two sides, which degrees of freedom move it: bits
    of unsigned integers `(2, nword, npoint)`, compared by value."""

    def __init__(self, words: np.ndarray, nv: int):
        self.words, self.nv = words, nv
        self.key = (words.shape, words.tobytes(), nv)

    def __eq__(self, other):
        return isinstance(other, _Table) and self.key == other.key

    def __hash__(self):
        return hash(self.key)


def _bits(tree: Tree, where: Layout) -> _Table:
    moves = tree.ancestors[:, dof_nodes(tree)]
    nv = moves.shape[1]
    padded = np.zeros((tree.size, -(-nv // 32), 32), np.uint32)
    padded.reshape(tree.size, -1)[:, :nv] = moves
    bits = padded << np.arange(32, dtype=np.uint32)
    words = np.asarray(np.sum(bits, axis=-1, dtype=np.uint32))
    ends = [words[[end[k] for end in where.moving]].T for k in (0, 1)]
    return _Table(np.stack(ends), nv)


def _contact(table: _Table, axes: Motion, row: PointRows, index) -> Contact:
    rates = [
        _rate(axes, arm, [jnp.asarray(word)[index] for word in words], table.nv)
        for arm, words in zip(row.arms, table.words)
    ]
    rate = rates[1] - rates[0]
    jac = tuple(v | rate for v in (row.normal, row.side1, row.side2))
    return Contact(jac, row.offsets, row.weight)


def _rate(axes: Motion, arm: Vec3, words, nv: int) -> Vec3:
    """Velocity of a point at unit speed of each degree of freedom that moves it."""
    shifts = np.arange(32, dtype=np.uint32).reshape(-1, *(1 for _ in words[0].shape))
    bits = jnp.concatenate([(word[None] >> shifts) & np.uint32(1) for word in words])
    return (axes.lin + (axes.ang ^ arm)) * bits[:nv].astype(arm.x.dtype)
