r"""Contacts that couple branches of the tree, and those with the world where there are
many.

Reports and derivatives compute the rows of all points; the solver visits those that exist
alone, see `VisitedContacts`.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._each import read_rows, read_rows_of, write_rows
from .._loops import rows_per_pass
from ..kinematics._axes import dof_axes
from ..kinematics._forward import Kinematics
from ..model import Tree
from ..model._gather import take, take_or_zero
from ..spatial import Motion
from ._contact_rows import ContactRows, ContactSource
from ._costs import Residual
from ._entries import add_products
from ._jacobians import Terms
from ._rows import AbstractRows
from ._visited_contacts import (
    contact_jacobian,
    contact_places,
    ContactRowList,
    for_each_contact,
    list_rows,
    VisitedContacts,
)


class CoupledContacts(AbstractRows):
    r"""Contacts between links, or of links with the world, with residuals $J a + c$.

    - `tree`: tree of nodes.
    - `axes`: motion axis of each degree of freedom.
    - `source`: data for the rows.
    - `rows`: rows of all points.
    """

    tree: Tree = eqx.field(static=True)
    axes: Motion
    source: ContactSource
    rows: ContactRows

    @property
    def nodes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """First and second node of each contact; -1: the world."""
        return self.source.group.nodes

    def residuals(self, motion: Motion, qdd) -> Residual:
        one, two = (take_or_zero(motion, nodes) for nodes in self.nodes)
        return self.rows.residuals(one, two)

    def pieces(self, x: Residual) -> Any:
        return self.rows.cost.piece(x)

    def forces(self, pieces: Any, x: Residual) -> Residual:
        return self.rows.cost.force(pieces, x)

    def transpose(self, force: Residual) -> Terms:
        pulls = self.rows.wrench(force).on_both()
        terms = []
        for pull, nodes in zip(pulls, self.nodes, strict=True):
            moving = [k for k, node in enumerate(nodes) if node >= 0]
            terms.append((take(pull, moving), tuple(nodes[k] for k in moving)))
        return Terms(nodes=tuple(term for term in terms if term[1]))

    def stiffness(self, pieces: Any) -> Terms:
        places = contact_places(self.tree, self.nodes)
        weights = self.rows.cost.stiffness(pieces)
        # Only contacts that are stiff on their pieces.
        number, count = numbers_where(weights[0][0] > 0.0)

        def add(entries, k, used):
            point = read_rows(number, k)
            rows = self.rows._replace(cost=(), offset=())
            rows, weight = read_rows_of((rows, weights), point)
            jac = contact_jacobian(self.tree, self.axes, self.nodes, rows, point)
            weight = jtu.tree_map(lambda w: jnp.where(used, w, 0.0), weight)
            return add_products(entries, places, jac, weight)

        like = self.axes.ang.x[:1] + weights[0][0][:1]
        start = jnp.zeros((len(places), *like.shape[1:]), like.dtype)
        total = for_each_contact(count, add, start)
        return Terms(entries=((total, places),))

    def for_solver(self) -> VisitedContacts:
        number, count = numbers_where(self.source.exists())
        rows = self.rows

        def row(k):
            point = read_rows(number, k)
            return point, read_rows_of(rows, point)

        pair, rows = list_rows(number.shape[0], count, row)
        found = ContactRowList(pair, rows, count)
        return VisitedContacts(self.tree, self.nodes, self.axes, found)


def numbers_where(flags) -> tuple[Any, Any]:
    """Return the numbers of the rows whose flag is set, as a list, and their number."""
    place = jnp.cumsum(flags, axis=0, dtype=jnp.int32) - 1
    start = lax.empty(flags.shape, jnp.int32)
    count = jnp.sum(flags, axis=0, dtype=jnp.int32)
    if rows_per_pass(2) > 1:
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


def coupled_contacts(
    tree: Tree, kin: Kinematics, source: ContactSource
) -> CoupledContacts:
    """Compute the rows of contacts that are visited one by one."""
    return CoupledContacts(tree, dof_axes(tree, kin), source, source.rows())
