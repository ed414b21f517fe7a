r"""Contacts of pairs that are listed when they are near.

The solver visits the contacts that exist (`VisitedContacts`). Forces, and with them all
derivatives, are sums over the near pairs, $\sum_k J_k^T f_k$ (`eqsim/_each.py`): each term
computes the points of a pair, their rows and their forces from the poses, the velocities
and the parameters of its two shapes. So a derivative, too, costs what touches.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._each import each, read_rows, read_rows_of, table_rows
from ..collision._list_plan import ListPlan, PairGroup
from ..collision._pair_lists import (
    collide,
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
from ..spatial import Force, force_at, Mat3, Motion, Vec3, vec3
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
from ._contact_rows import contact_rows, ContactLaw, ContactRows
from ._costs import Residual
from ._jacobians import combine, Terms
from ._rows import AbstractRows
from ._visited_contacts import ContactRowList, list_rows, VisitedContacts


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
    - `nodes`: number of nodes.
    - `hulls`: hulls of the meshes.
    - `cone`, `safe_solref`: see `System`.
    """

    plan: ListPlan = eqx.field(static=True)
    links: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    priority: tuple[int, ...] = eqx.field(static=True)
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

    "Residuals" and "pieces" stand for the motion of the nodes, from which each term of the
    sum computes its own residuals and pieces; "forces" are the sums of the forces on nodes.

    - `tree`, `facts`, `condim`: static facts; the dimension.
    - `shapes`, `nodes`, `common`: arguments of the forces.
    - `axes`: motion axis of each degree of freedom.
    - `listing`: near pairs and contacts.
    """

    tree: Tree = eqx.field(static=True)
    facts: Facts
    condim: int = eqx.field(static=True)
    shapes: ShapeTables
    nodes: NodeTables
    common: Common
    axes: Motion
    listing: Listing

    def residuals(self, motion: Motion, qdd) -> Residual:
        return (motion, qdd)

    def pieces(self, x: Residual) -> Any:
        return lax.stop_gradient(x)

    def forces(self, pieces: Any, x: Residual) -> Residual:
        forces = [
            self._group_forces(group, near, pieces[0], x[0])
            for group, near in zip(self.facts.plan.groups, self.listing.near)
            if any(self.facts.plan.condim[pair] == self.condim for pair in group.pairs)
        ]
        return (jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *forces),)

    def transpose(self, force: Residual) -> Terms:
        every = tuple(range(self.facts.nodes))
        own = jtu.tree_map(lambda x: x[: len(every)], force[0])
        return Terms(nodes=((own, every),))

    def stiffness(self, pieces: Any) -> Terms:
        return self.for_solver().stiffness(lax.stop_gradient(pieces[1]))

    def for_solver(self) -> VisitedContacts:
        still = self.shapes, self.nodes, self.common, self.axes
        shapes, nodes, common, axes = lax.stop_gradient(still)
        contacts = self.listing.contacts[self.condim]
        rows = _listed_rows(self.facts, self.condim, shapes, nodes, common, contacts)
        return VisitedContacts(self.tree, self.facts.plan.nodes, axes, rows)

    def _group_forces(
        self, group: PairGroup, near, solved: Motion, motion: Motion
    ) -> Force:
        """Return the forces of the contacts of a group of pairs, on nodes."""
        facts, plan = self.facts, self.facts.plan
        polygons = hull_polygons(facts.hulls)
        law_of, condim = facts.law, self.condim

        condims = {plan.condim[pair] for pair in group.pairs}

        def term(pair, _, entries, common: Common):
            (one, two), ends = entries[:2], entries[2:]
            parameters = parameters_of(facts, common, pair, one, two)
            margin = lax.stop_gradient(parameters.friction.margin)
            shapes = one.shape, two.shape
            shapes = pair_shapes(plan, group, common.vertices, polygons, pair, shapes)
            points = collide(group, *shapes, margin)
            if len(condims) > 1:
                here = (table_rows(plan.condim, pair) == condim)[:, None]
                points = points._replace(valid=points.valid & here)
            law = law_of(condim, common)
            return _pair_forces(law, points, parameters, ends)

        batch = near.count.shape
        columns = plan.first, plan.second, *facts.pair_nodes
        nodes = self.nodes, _with_world(solved, batch), _with_world(motion, batch)
        tables = [(self.shapes, 0), (self.shapes, 1), (nodes, 2), (nodes, 3)]
        targets = [(2, facts.nodes + 1), (3, facts.nodes + 1)]
        given = near.count, near.pairs, columns, tables, self.common, targets
        first, second = each(term, *given)
        return first + second


def _with_world(tree, batch):
    """Append zeros for the world."""

    def one(x):
        x = jnp.broadcast_to(x, (x.shape[0], *batch))
        return jnp.concatenate([x, jnp.zeros_like(x[:1])])

    return jtu.tree_map(one, tree)


def _pair_forces(
    law: ContactLaw, points: ContactPoints, parameters: ContactParameters, ends
) -> tuple[Force, Force]:
    """Return the forces on the nodes of both shapes of pairs, `(k, *batch)`.

    **Arguments:**

    - `points`: points of the pairs, `(k, nslot, *batch)`.
    - `ends`: quantities of both nodes: `NodeTables`, the motion at the solution, and the
        motion whose forces are computed.
    """
    # One row for each slot; arrays of pairs are repeated.
    slots = points.dist.shape[1]
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    repeat = lambda x: flat(
        jnp.broadcast_to(x[:, None], (x.shape[0], slots, *x.shape[1:]))
    )
    points = jtu.tree_map(flat, points)
    parameters, ends = jtu.tree_map(repeat, (parameters, ends))
    (first, *motions1), (second, *motions2) = ends
    rows = contact_rows(law, points, parameters, (first, second))
    solved, x = (
        _residuals(rows, one, two) for one, two in zip(motions1, motions2, strict=True)
    )
    force = rows.cost.force(lax.stop_gradient(rows.cost.piece(solved)), x)
    n = len(rows.linear)
    push, twist = combine(rows.linear, force[:n]), None
    if rows.angular:
        twist = combine(rows.angular, force[n:])
    found = []
    for arm, sign in zip(rows.arms, (-1.0, 1.0), strict=True):
        pull = force_at(arm, push * sign)
        if twist is not None:
            pull = Force(pull.ang + (twist * sign), pull.lin)
        summed = lambda x: jnp.sum(x.reshape(-1, slots, *x.shape[1:]), axis=1)
        found.append(jtu.tree_map(summed, pull))
    return found[0], found[1]


def _residuals(rows: ContactRows, one: Motion, two: Motion) -> Residual:
    rate = two.at(rows.arms[1]) - one.at(rows.arms[0])
    along = [axis | rate for axis in rows.linear]
    spin = two.ang - one.ang
    along += [axis | spin for axis in rows.angular]
    return tuple(a + b for a, b in zip(along, rows.offset, strict=True))


def _listed_rows(
    facts: Facts,
    condim: int,
    shapes: ShapeTables,
    nodes: NodeTables,
    common: Common,
    contacts: ContactList,
) -> ContactRowList:
    """Return the rows of all contacts of a dimension."""
    plan, law = facts.plan, facts.law(condim, common)

    def row(k):
        own = read_rows_of(contacts._replace(count=None), k)
        ends = [table_rows(side, own.pair) for side in (plan.first, plan.second)]
        one, two = (read_rows_of(shapes, end) for end in ends)
        parameters = parameters_of(facts, common, own.pair, one, two)
        normal, tangent = own.normal, own.tangent
        frame = Mat3(*normal, *tangent, *(normal ^ tangent))
        valid = jnp.ones_like(own.dist, bool)
        points = ContactPoints(own.dist, own.pos, frame, valid)
        sides = [table_rows(side, own.pair) for side in facts.pair_nodes]
        first, second = (read_rows_of(nodes, side) for side in sides)
        rows = contact_rows(law, points, parameters, (first, second))
        return own.pair, rows

    pair, rows = list_rows(contacts.pair.shape[0], contacts.count, row)
    return ContactRowList(pair, rows, contacts.count)


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
    ends = _with_world(NodeTables(now.kin.origin, now.speed.velocity), batch)
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
