r"""Contacts that are visited one by one: all that couple branches of the tree, and those
with the world where there are many.

Of the many points that could touch, few do. A loop visits those that do, and sums what
they contribute to a Newton system: $J^T W J$ and $J^T f$.
"""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from ..kinematics._structure import dof_order
from ..model import take, take_or_zero, Tree
from ..spatial import Force, force_at, Motion, Vec3
from ._costs import AbstractCost, Residual
from ._jacobians import combine, Terms
from ._rows import AbstractRows
from ._triangle import add_products, zero_triangle


class Coupling(NamedTuple):
    """What contacts contribute to a Newton system.

    - `triangle`: lower triangle of $J^T W J$, row by row.
    - `tau`: joint forces at zero acceleration, `(nv, *batch)`.
    """

    triangle: Any
    tau: Any


class CoupledContacts(AbstractRows):
    r"""Contacts between links, or of links with the world, with residuals $J a + c$.

    - `tree`: tree of nodes.
    - `nodes`: first and second node of each contact; -1: the world.
    - `axes`: motion axis of each degree of freedom.
    - `arms`: position of each contact about the origins of the trees of both nodes.
    - `linear`, `angular`: axes of the residuals, as of `PointJacobian`.
    - `exists`: positive where there is a contact.
    - `cost`, `offset`: as of `Rows`.
    """

    tree: Tree = eqx.field(static=True)
    nodes: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    axes: Motion
    arms: tuple[Vec3, Vec3]
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...]
    exists: Any
    cost: AbstractCost
    offset: Residual

    @property
    def piecewise_quadratic(self) -> bool:
        return self.cost.piecewise_quadratic

    def residuals(self, motion: Motion, qdd) -> Residual:
        one, two = (take_or_zero(motion, nodes) for nodes in self.nodes)
        rate = two.at(self.arms[1]) - one.at(self.arms[0])
        along = [axis | rate for axis in self.linear]
        spin = two.ang - one.ang
        along += [axis | spin for axis in self.angular]
        return tuple(a + b for a, b in zip(along, self.offset, strict=True))

    def pieces(self, x: Residual) -> Any:
        return self.cost.piece(x)

    def forces(self, pieces: Any, x: Residual) -> Residual:
        return self.cost.force(pieces, x)

    def transpose(self, force: Residual) -> Terms:
        n, pulls = len(self.linear), []
        push = combine(self.linear, force[:n])
        for arm, sign in zip(self.arms, (-1.0, 1.0), strict=True):
            pull = force_at(arm, push * sign)
            if self.angular:
                twist = combine(self.angular, force[n:])
                pull = Force(pull.ang + (twist * sign), pull.lin)
            pulls.append(pull)
        terms = []
        for pull, nodes in zip(pulls, self.nodes, strict=True):
            own = [k for k, node in enumerate(nodes) if node >= 0]
            terms.append((take(pull, own), tuple(nodes[k] for k in own)))
        return Terms(nodes=tuple(term for term in terms if term[1]))

    def stiffness(self, pieces: Any) -> Terms:
        weights = self.cost.stiffness(pieces)

        def add(triangle, point):
            contact = _contact(self, point)
            return add_products(triangle, contact.jac, _rows_at(weights, point))

        # Not `exists`: pieces may have fewer stiff contacts.
        start = zero_triangle(self.axes.ang.x + self.exists[:1])
        return Terms(dense=(_for_each_contact(weights[0][0], add, start),))

    def first_model(self, like) -> Any:
        still = jnp.zeros_like(like)
        return self._model(still, still, 0.0)[0]

    def next_model(self, old: Any, before, qdd, motion: Motion, tolerance: float):
        return self._model(before, qdd, tolerance)

    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        return Terms(dense=(model.tau,)), Terms(dense=(model.triangle,))

    def _model(self, before, qdd, tolerance: float) -> tuple[Coupling, Any]:
        def add(total, point):
            model, changed = total
            contact = _contact(self, point)
            old = contact.cost.piece(contact.residuals(before))
            x = contact.residuals(qdd)
            new, moved = contact.cost.update(old, x, contact.offset, tolerance)
            weights = contact.cost.stiffness(new)
            force = contact.cost.model(new, contact.offset)
            pairs = zip(contact.jac, force, strict=True)
            tau = sum(jac * f for jac, f in pairs)
            triangle = add_products(model.triangle, contact.jac, weights)
            return Coupling(triangle, model.tau + tau), changed | moved[0]

        unchanged = jnp.zeros(qdd.shape[1:], bool)
        start = Coupling(zero_triangle(qdd), jnp.zeros_like(qdd)), unchanged
        return _for_each_contact(self.exists, add, start)


class _Contact(NamedTuple):
    """One contact of each environment.

    - `jac`: Jacobians of the residuals, `(nv, *batch)`.
    - `offset`: residuals at zero acceleration, `(1, *batch)`.
    - `cost`: its cost.
    """

    jac: tuple[Any, ...]
    offset: Residual
    cost: AbstractCost

    def residuals(self, qdd) -> Residual:
        """Compute the residuals at an acceleration."""
        return tuple(
            jnp.sum(jac * qdd, axis=0, keepdims=True) + offset
            for jac, offset in zip(self.jac, self.offset, strict=True)
        )


def _for_each_contact(weight, add: Callable, total):
    """Fold `add(total, point)` over the points with a weight, in each environment."""
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
        return _rows_at(following, after)[0], add(total, point)

    return lax.while_loop(going, body, (following[0], total))[1]


def _rows_at(tree, index):
    """Return row `index` of each environment, of all arrays; zeros beyond the last row."""
    index = index[None]

    def one(x):
        x = jnp.broadcast_to(x, x.shape[:1] + index.shape[1:])
        return jnp.take_along_axis(x, index, axis=0, mode="fill", fill_value=0)

    return jtu.tree_map(one, tree)


def _contact(contacts: CoupledContacts, point) -> _Contact:
    """Compute the Jacobians of one contact of each environment."""
    own = (contacts.arms, contacts.linear, contacts.angular)
    arms, linear, angular = _rows_at(own, point)
    axes = contacts.axes
    moves = _moving_dofs(contacts, point, axes.ang.x.dtype)
    first, second = (
        (axes.lin + (axes.ang ^ arm)) * mask
        for arm, mask in zip(arms, moves, strict=True)
    )
    jac = [v | (second - first) for v in linear]
    if angular:
        turns = axes.ang * (moves[1] - moves[0])
        jac += [v | turns for v in angular]
    offset, cost = _rows_at((contacts.offset, contacts.cost), point)
    return _Contact(tuple(jac), offset, cost)


def _moving_dofs(contacts: CoupledContacts, point, dtype) -> list:
    """Return, for the two links of a contact, which degrees of freedom move them: zeros
    and ones, `(nv, *batch)`."""
    subtrees = _subtrees(contacts.tree)
    column = lambda x: x.reshape(-1, *(1 for _ in point.shape))
    first, last = column(subtrees.first), column(subtrees.last)
    masks = []
    for nodes in contacts.nodes:
        # No degree of freedom moves the world.
        number = np.array(nodes)
        place = np.where(number < 0, -1, subtrees.place[number]).astype(np.int32)
        place = jnp.asarray(column(place))
        place = _rows_at(place, point)
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
