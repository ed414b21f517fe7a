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
from ..collision._list_plan import ListPlan, PairGroup
from ..collision._collide import collide
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
    complete_parameters,
    ContactParameters,
    explicit_parameters,
    geom_parameters,
    GeomParameters,
    mix_parameters,
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
from ._rows import AbstractRows
from ._visited_contacts import (
    ContactRowList,
    for_each_contact,
    list_rows,
    VisitedContacts,
)


class ShapeTables(NamedTuple):
    """Quantities of the listed shapes, one row for each.

    - `shape`: shapes in the world.
    - `parameters`: contact parameters.
    - `margin`: distance at which contacts begin, m.
    """

    shape: Shape
    parameters: GeomParameters
    margin: Any


class NodeTables(NamedTuple):
    """Quantities of the nodes; the last row is the world.

    - `origin`: origin of the tree of each node.
    - `velocity`: velocities.
    """

    origin: Vec3
    velocity: Motion


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

    def law(self, condim: int, common: Common) -> ContactLaw:
        """Return the settings of contacts of a dimension."""
        return ContactLaw(condim, self.cone, common.impratio, common.width)


def parameters_of(
    facts: Facts, common: Common, pair, one: ShapeTables, two: ShapeTables
) -> ContactParameters:
    """Return the parameters of pairs, `(k, *batch)`, given their shapes."""
    priority = table_rows(facts.priority, pair)
    mixed = mix_parameters(one.parameters, two.parameters, priority)
    margin = one.margin + two.margin
    if common.explicit is not None:
        entry = table_rows(facts.plan.explicit, pair)
        own = read_rows_of((common.explicit, common.margin), jnp.maximum(entry, 0))
        choose = lambda x, y: jnp.where(entry >= 0, x, y)
        mixed, margin = jtu.tree_map(choose, own, (mixed, margin))
    weight = sum(
        read_rows(common.weights, table_rows(links, pair)) for links in facts.links
    )
    time = common.dt[None], facts.safe_solref
    return complete_parameters(mixed, margin, weight, time, common.explicit is not None)


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
        parameters = parameters_of(facts, self.common, pair, one, two)
        law = facts.law(self.condim, self.common)
        return contact_rows(law, points, parameters, self.ends(pair, self.nodes))

    def ends(self, pair, table: Any) -> list:
        """Return the rows of a table of nodes for both sides of pairs."""
        sides = (table_rows(side, pair) for side in self.facts.pair_nodes)
        return [read_rows_of(table, side) for side in sides]

    def wrench(self, pair, points: ContactPoints, *motions) -> ContactWrench:
        """Return the forces of contacts of given pairs, see `contact_wrench`."""
        ends = (self.ends(pair, motion) for motion in motions)
        return contact_wrench(self.rows(pair, points), *ends)

    def tables(self, solved: Motion, motion: Motion, first: int) -> list:
        """Return the tables that `computed` reads, and the columns of their entries.

        **Arguments:**

        - `first`: the first of the columns of `Facts.pair_columns`.
        """
        nodes = self.nodes, solved, motion
        both = (self.shapes, 0), (self.shapes, 1), (nodes, 2), (nodes, 3)
        return [(table, first + column) for table, column in both]

    def computed(
        self, group: PairGroup, pair, entries, common: Common
    ) -> tuple[ContactPoints, ContactWrench]:
        """Compute all points of pairs and their forces, one row for each point.

        **Arguments:**

        - `pair`: the pairs, `(k, *batch)`.
        - `entries`: rows of `tables`.
        """
        facts, plan = self.facts, self.facts.plan
        (one, two), ends = entries[:2], entries[2:]
        parameters = parameters_of(facts, common, pair, one, two)
        margin = lax.stop_gradient(parameters.friction.margin)
        polygons, shapes = hull_polygons(facts.hulls), (one.shape, two.shape)
        shapes = pair_shapes(plan, group, common.vertices, polygons, pair, shapes)
        points = collide(group, *shapes, margin)
        if len(facts.condims(group)) > 1:
            here = (table_rows(plan.condim, pair) == self.condim)[:, None]
            points = points._replace(valid=points.valid & here)
        # Arrays of pairs are repeated for their points.
        slots = points.dist.shape[1]
        flat = lambda x: x.reshape(-1, *x.shape[2:])
        repeat = lambda x: flat(
            jnp.broadcast_to(x[:, None], (x.shape[0], slots, *x.shape[1:]))
        )
        points = jtu.tree_map(flat, points)
        parameters, ends = jtu.tree_map(repeat, (parameters, ends))
        nodes, solved, motion = zip(*ends, strict=True)
        law = facts.law(self.condim, common)
        rows = contact_rows(law, points, parameters, nodes)
        return points, contact_wrench(rows, solved, motion)


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
            _, wrench = rows.computed(group, pair, entries, common)
            of_pairs = lambda x: x.reshape(pair.shape[0], -1, *x.shape[1:])
            total = lambda x: jnp.sum(of_pairs(x), axis=1)
            return jtu.tree_map(total, wrench.on_both())

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
