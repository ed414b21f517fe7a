r"""Contacts of pairs that are listed when they are near.

The solver visits the contacts that exist (`VisitedContacts`), and so do forces. Derivatives
are those of sums over the pairs that touch, $\sum_k J_k^T f_k$ (`eqsim/_each.py`): each term
computes the points of a pair, their rows and their forces from the poses, the velocities
and the parameters of its two shapes. So a derivative, too, costs what touches.
"""

import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._each import add_rows, each, pushed, read_rows, read_rows_of, table_rows
from ..collision._collide import Kinds
from ..collision._list_plan import ListPlan, PairGroup
from ..collision._pair_lists import (
    ContactList,
    Listing,
    pair_shapes,
    world_shapes,
)
from ..collision._plan import pair_priority
from ..collision._points import ContactPoints, hull_polygons, Shape
from ..kinematics._axes import dof_axes
from ..model import Cone, HullGraph, System, Tree, tree
from ..model._gather import take
from ..spatial import Force, Mat3, Motion, Vec3, vec3
from ._constraint import Moment
from ._contact_parameters import (
    explicit_parameters,
    geom_parameters,
    Mixed,
)
from ._contact_rows import (
    contact_rows,
    contact_wrench,
    ContactLaw,
    ContactRows,
    ContactWrench,
    with_world,
)
from ._costs import Residual
from ._jacobians import Terms
from ._pair_forces import (
    NodeRow,
    NodeTables,
    pair_forces,
    pair_parameters,
    pair_shape_numbers,
    PairData,
    PairFacts,
    PairLaw,
    PairParameters,
    PairState,
    ShapeTables,
)
from ._rows import AbstractRows
from ._visited_contacts import (
    ContactRowList,
    for_each_contact,
    list_rows,
    VisitedContacts,
)


class Common(NamedTuple):
    """Quantities that all contacts share.

    - `weights`: inverse weights of the links; the last row is the world.
    - `explicit`, `margin`: parameters of explicit pairs; None: there are none.
    - `vertices`: vertices of all meshes.
    - `impratio`, `width`, `dt`: see `ContactLaw`; time step, s.
    """

    weights: Any
    explicit: Mixed | None
    margin: Any
    vertices: Vec3
    impratio: Any
    width: Any
    dt: Any


class Facts(eqx.Module):
    """Static facts about the listed pairs and their robot.

    - `plan`: the pairs.
    - `links`: links of the first and second shape of each pair, counted as in
        `Common.weights`.
    - `priority`: see `mix_parameters`, for each pair.
    - `num_links`, `nodes`: number of links and nodes.
    - `hulls`: hulls of the meshes.
    - `cone`, `safe_solref`: see `System`.
    """

    plan: ListPlan = eqx.field(static=True)
    links: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    priority: tuple[int, ...] = eqx.field(static=True)
    num_links: int = eqx.field(static=True)
    nodes: int = eqx.field(static=True)
    hulls: HullGraph = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    safe_solref: bool = eqx.field(static=True)

    @property
    def pair_nodes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Nodes of the first and second shape of each pair; the number of nodes stands
        for the world."""
        one, two = (
            tuple(node if node >= 0 else self.nodes for node in side)
            for side in self.plan.nodes
        )
        return one, two

    def condims(self, group: PairGroup) -> set[int]:
        """Return the dimensions of the contacts of a group of pairs."""
        return {self.plan.condim[pair] for pair in group.pairs}

    def pair_columns(self, pair: Any = None) -> list:
        """Return the shapes, nodes and links of both sides of all pairs, or of given ones."""
        plan = self.plan
        every = [plan.first, plan.second, *self.pair_nodes, *self.links]
        return every if pair is None else [table_rows(x, pair) for x in every]

    def law(self, kinds: Kinds, condim: int) -> PairLaw:
        """Return static facts about the contacts of a dimension."""
        return PairLaw(kinds, condim, self.cone, self.safe_solref)


def parameters_of(
    facts: Facts, common: Common, pair, one: ShapeTables, two: ShapeTables
) -> PairParameters:
    """Return the parameters of pairs, `(k, *batch)`, given their shapes."""
    own = None
    if common.explicit is not None:
        entry = jnp.maximum(table_rows(facts.plan.explicit, pair), 0)
        own = read_rows_of((common.explicit, common.margin), entry)
    first, second = (
        read_rows(common.weights, table_rows(links, pair)) for links in facts.links
    )
    return PairParameters(
        sizes=(one.shape.size, two.shape.size),
        geoms=(one.parameters, two.parameters),
        margins=(one.margin, two.margin),
        own=own,
        weight=first + second,
        impratio=common.impratio,
        width=common.width,
        dt=common.dt,
    )


class ListedContacts(AbstractRows):
    """Listed contacts of one dimension of the contact space.

    "Residuals" and "pieces" stand for the motion of the nodes, from which each contact
    computes its own residuals and pieces; "forces" are the sums of the forces on links,
    about the origins of their trees; the last row is the world.

    - `tree`, `facts`, `condim`: static facts; the dimension.
    - `shapes`, `nodes`, `common`: arguments of the forces.
    - `axes`: motion axis of each degree of freedom.
    - `listing`: pairs that touch, and contacts.
    """

    tree: Tree = eqx.field(static=True)
    facts: Facts
    condim: int = eqx.field(static=True)
    shapes: ShapeTables
    nodes: NodeTables
    common: Common
    axes: Motion
    listing: Listing

    @property
    def contacts(self) -> ContactList:
        """The contacts of this dimension."""
        return self.listing.contacts[self.condim]

    def residuals(self, motion: Motion, qdd) -> Residual:
        return (motion, qdd)

    def pieces(self, x: Residual) -> Any:
        return lax.stop_gradient(x)

    def forces(self, pieces: Any, x: Residual) -> Residual:
        batch = self.listing.touching[0].count.shape
        motions = (with_world(own, batch) for own in (pieces[0], x[0]))
        return (_link_forces(self, *motions),)

    def transpose(self, force: Residual) -> Terms:
        carriers = self.tree.link_nodes
        moving = [link for link, node in enumerate(carriers) if node >= 0]
        own = tuple(carriers[link] for link in moving)
        return Terms(nodes=((take(force[0], moving), own),))

    def stiffness(self, pieces: Any) -> Terms:
        return self.for_solver().stiffness(lax.stop_gradient(pieces[1]))

    def for_solver(self) -> VisitedContacts:
        still = lax.stop_gradient(self)

        def row(k):
            own, points = still.read(k)
            return own.pair, still.rows(own.pair, points)

        capacity, count = self.contacts.pair.shape[0], self.contacts.count
        pair, rows = list_rows(capacity, count, row)
        found = ContactRowList(pair, rows, count)
        return VisitedContacts(self.tree, self.facts.plan.nodes, still.axes, found)

    def read(self, k) -> tuple[ContactList, ContactPoints]:
        """Return contacts at their numbers, `(n, *batch)`, and their points."""
        own = read_rows_of(self.contacts._replace(count=None), k)
        frame = Mat3(*own.normal, *own.tangent, *(own.normal ^ own.tangent))
        valid = jnp.ones_like(own.dist, bool)
        return own, ContactPoints(own.dist, own.pos, frame, valid)

    def rows(self, pair, points: ContactPoints) -> ContactRows:
        """Return the rows of contacts of given pairs."""
        facts, plan = self.facts, self.facts.plan
        ends = [table_rows(side, pair) for side in (plan.first, plan.second)]
        one, two = (read_rows_of(self.shapes, end) for end in ends)
        common = self.common
        own = parameters_of(facts, common, pair, one, two)
        priority, entry = (table_rows(x, pair) for x in (facts.priority, plan.explicit))
        parameters = pair_parameters(own, priority, entry, facts.safe_solref)
        settings = ContactLaw(self.condim, facts.cone, common.impratio, common.width)
        return contact_rows(settings, points, parameters, self.ends(pair, self.nodes))

    def ends(self, pair, table: Any) -> list:
        """Return the rows of a table of nodes for both sides of pairs."""
        sides = (table_rows(side, pair) for side in self.facts.pair_nodes)
        return [read_rows_of(table, side) for side in sides]

    def wrench(self, pair, points: ContactPoints, *motions) -> ContactWrench:
        """Return the forces of contacts of given pairs, see `contact_wrench`."""
        ends = (self.ends(pair, motion) for motion in motions)
        return contact_wrench(self.rows(pair, points), *ends)

    def tables(self, solved: Motion, motion: Motion, first: int) -> list:
        """Return the tables that `pair_data` reads, and the columns of their entries.

        **Arguments:**

        - `first`: the first of the columns of `Facts.pair_columns`.
        """
        nodes = self.nodes, solved, motion
        both = (self.shapes, 0), (self.shapes, 1), (nodes, 2), (nodes, 3)
        return [(table, first + column) for table, column in both]

    def pair_data(
        self, group: PairGroup, pair, entries, common: Common
    ) -> tuple[PairLaw, PairData, tuple[Shape, Shape]]:
        """Return what determines the points of pairs and their forces, see
        `_pair_forces.py`, and the shapes.

        **Arguments:**

        - `pair`: the pairs, `(k, *batch)`.
        - `entries`: rows of `tables`.
        """
        facts, plan = self.facts, self.facts.plan
        (one, two), ends = entries[:2], entries[2:]
        polygons, shapes = hull_polygons(facts.hulls), (one.shape, two.shape)
        shapes = pair_shapes(plan, group, common.vertices, polygons, pair, shapes)
        counts = jnp.ones_like(pair)
        if len(facts.condims(group)) > 1:
            condim = table_rows(plan.condim, pair)
            counts = (condim == self.condim).astype(pair.dtype)
        nodes, solved, motion = zip(*ends, strict=True)
        pairs = zip(nodes, motion, strict=True)
        state = PairState(
            poses=(one.shape.pose, two.shape.pose),
            nodes=tuple(NodeRow(x.origin, x.velocity, own) for x, own in pairs),
        )
        still = PairFacts(
            hulls=pair_shape_numbers(shapes),
            priority=table_rows(facts.priority, pair),
            entry=table_rows(plan.explicit, pair),
            counts=counts,
            solved=lax.stop_gradient(solved),
        )
        data = state, parameters_of(facts, common, pair, one, two), still
        return facts.law(group.kinds, self.condim), data, shapes


@jax.custom_jvp
def _link_forces(rows: ListedContacts, solved: Motion, motion: Motion) -> Force:
    """Sum the forces of the contacts on each link."""
    sides = rows.facts.links

    def add(total, k, used):
        own, points = rows.read(k)
        both = rows.wrench(own.pair, points, solved, motion).on_both()
        for side, pull in zip(sides, both, strict=True):
            link = table_rows(side, own.pair)
            put = lambda x, value, link=link: add_rows(x, link, value, used)
            total = jtu.tree_map(put, total, pull)
        return total

    like = motion.lin.x
    zero = jnp.zeros((rows.facts.num_links + 1, *like.shape[1:]), like.dtype)
    start = Force(Vec3(zero, zero, zero), Vec3(zero, zero, zero))
    return for_each_contact(rows.contacts.count, add, start)


@ft.partial(_link_forces.defjvp, symbolic_zeros=True)
def _link_forces_jvp(primals, tangents):
    return _link_forces(*primals), pushed(_summed_forces, primals, tangents)


def _summed_forces(rows: ListedContacts, solved: Motion, motion: Motion) -> Force:
    """Sum the forces of the pairs that touch on each link, see the top of the module."""
    facts, found = rows.facts, []
    for group, pairs in zip(facts.plan.groups, rows.listing.touching, strict=True):
        if rows.condim not in facts.condims(group):
            continue

        def term(pair, _, entries, common, group=group):
            return pair_forces(*rows.pair_data(group, pair, entries, common))

        columns = facts.pair_columns()
        tables = rows.tables(solved, motion, 0)
        targets = [(column, facts.num_links + 1) for column in (4, 5)]
        given = pairs.count, pairs.pairs, columns, tables, rows.common, targets
        first, second = each(term, *given)
        found.append(first + second)
    return jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *found)


def listed_contacts(
    sys: System, plan: ListPlan, weights, now: Moment, frames, listing: Listing
) -> tuple[ListedContacts, ...]:
    """Return the listed contacts, one for each dimension of the contact space.

    **Arguments:**

    - `weights`: inverse weights of the links.
    - `frames`: `GeomFrames.listed`.
    """
    nodes, geoms = tree(sys), sys.geoms
    batch = now.q.shape[1:]
    link = lambda geom: geoms.links[plan.geoms[geom]]
    of_side = lambda side: tuple(k if k >= 0 else sys.nlink for k in map(link, side))
    facts = Facts(
        plan=plan,
        links=(of_side(plan.first), of_side(plan.second)),
        priority=tuple(
            pair_priority((plan.geoms[a], plan.geoms[b]), geoms.priority)
            for a, b in zip(plan.first, plan.second, strict=True)
        ),
        num_links=sys.nlink,
        nodes=nodes.size,
        hulls=sys.meshes.hulls,
        cone=sys.cone,
        safe_solref=sys.safe_solref,
    )
    shapes = ShapeTables(
        world_shapes(now.kin, plan, frames),
        take(geom_parameters(sys), plan.geoms),
        take(geoms.margin, plan.geoms),
    )
    explicit = max(plan.explicit) >= 0
    common = Common(
        weights=jnp.concatenate([weights, jnp.zeros_like(weights[:1])]),
        explicit=explicit_parameters(sys) if explicit else None,
        margin=sys.pairs.margin if explicit else None,
        vertices=vec3(sys.meshes.vertices),
        impratio=sys.impratio,
        width=now.width,
        dt=sys.dt,
    )
    ends = with_world(NodeTables(now.kin.origin, now.speed.velocity), batch)
    make = lambda condim: ListedContacts(
        tree=nodes,
        facts=facts,
        condim=condim,
        shapes=shapes,
        nodes=ends,
        common=common,
        axes=dof_axes(nodes, now.kin),
        listing=listing,
    )
    return tuple(map(make, sorted(listing.contacts)))
