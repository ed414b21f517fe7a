r"""Contacts of pairs that are listed when they are near.

The solver visits the contacts that exist (`VisitedContacts`), and so do forces. Derivatives
are those of sums over the pairs that touch, $\sum_k J_k^T f_k$ (`eqsim/_lists.py`): each term
computes the points of a pair, their rows and their forces from the poses, the velocities
and the parameters of its two shapes. So a derivative, too, costs what touches. The terms do
not depend on the robot, so their code is compiled once for all robots, see
`eqsim/_separate.py`.
"""

import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._lists import add_rows, each, read_rows, read_rows_of, table_rows
from .._primitive import symbolic_jvp
from .._separate import separate
from ..collision.narrow_phase import (
    code_version,
    collide_in_place,
    Kinds,
    shared_tables,
    shares_code,
)
from ..collision.pair_lists import ContactList, Listing, pair_shapes, world_shapes
from ..collision.plan import gaps, ListPlan, pair_priority, PairGroup
from ..collision.points import (
    apart,
    ContactPoints,
    Grids,
    hull_polygons,
    Hulls,
    Shape,
    Shared,
    together,
)
from ..kinematics.link_motion import dof_axes, Pose
from ..model import Cone, HullGraph, System, Tree, tree
from ..model.arrays import take, take_or_zero
from ..spatial import Force, Mat3, Motion, Vec3
from ..spatial.vectors import vec3
from ._contact_solver import (
    ContactRowList,
    for_each_contact,
    list_rows,
    VisitedContacts,
)
from .contact_rows import (
    complete_parameters,
    contact_rows,
    contact_wrench,
    ContactLaw,
    ContactParameters,
    ContactRows,
    ContactWrench,
    explicit_parameters,
    geom_parameters,
    GeomParameters,
    held_rows,
    mix_parameters,
    Mixed,
    surface_motion,
    with_world,
)
from .costs import LAST_ONSET, Residual
from .record import RobotData
from .rows import AbstractRows, Terms


# Forces of a pair.


class PairLaw(eqx.Module):
    """Static facts about pairs.

    - `kinds`, `num_points`: kinds of their shapes, and the number of points of each pair.
    - `condim`, `cone`: see `ContactLaw`.
    - `safe_solref`: see `System`.
    """

    kinds: Kinds = eqx.field(static=True)
    num_points: int = eqx.field(static=True)
    condim: int = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    safe_solref: bool = eqx.field(static=True)


class ShapeTables(NamedTuple):
    """Quantities of the listed shapes, one row for each.

    - `shape`: shapes in the world.
    - `parameters`: contact parameters.
    - `margin`, `gap`: distance at which contacts begin, and gap beyond it, m; no gap: None.
    - `surface`: motion of the surfaces, see `surface_motion`; None if none moves.
    """

    shape: Shape
    parameters: GeomParameters
    margin: Any
    gap: Any
    surface: Motion | None


class NodeTables(NamedTuple):
    """Quantities of the nodes; the last row is the world.

    - `origin`: origin of the tree of each node.
    - `velocity`: velocities.
    """

    origin: Vec3
    velocity: Motion


class NodeRow(NamedTuple):
    """Quantities of the node that carries a shape.

    - `origin`: origin of its tree.
    - `velocity`: its velocity.
    - `motion`: its motion for which forces are computed, see `contact_wrench`.
    - `first`: its motion at the solution of the first problem, see `noslip.py`; None: there
        is one problem.
    """

    origin: Vec3
    velocity: Motion
    motion: Motion
    first: Motion | None


class PairState(NamedTuple):
    """Quantities of pairs that depend on the state, `(k, *batch)`, for both sides; see
    `ShapeTables` for `surfaces`."""

    poses: tuple[Pose, ...]
    nodes: tuple[NodeRow, ...]
    surfaces: tuple[Motion, Motion] | None


class PairParameters(NamedTuple):
    """Parameters of pairs, `(k, *batch)`.

    - `sizes`, `geoms`, `margins`, `gaps`: sizes, contact parameters, margins and gaps of
        both shapes; without gaps, two times None.
    - `own`: parameters, margin and gap of explicit pairs; None: there are none.
    - `weight`: sum of the inverse weights of the two links.
    - `impratio`, `width`, `dt`: see `ContactLaw`; time step, s.
    - `factor`: see `held_rows`; None: there is one problem.
    """

    sizes: tuple[Vec3, Vec3]
    geoms: tuple[GeomParameters, GeomParameters]
    margins: tuple[Any, Any]
    gaps: tuple[Any, Any]
    own: tuple[Mixed, Any, Any] | None
    weight: Any
    impratio: Any
    width: Any
    dt: Any
    factor: Any


class PairFacts(NamedTuple):
    """Quantities of pairs without derivatives, `(k, *batch)`.

    - `numbers`: numbers of the hulls and grids of both shapes, see `Hulls` and `Grids`.
    - `priority`: see `mix_parameters`.
    - `entry`: entry in the explicit pairs; negative: none.
    - `counts`: 1 for pairs whose contacts count, else 0.
    - `solved`: motion of both nodes at the solution.
    """

    numbers: tuple[tuple[Hulls | None, Grids | None], ...]
    priority: Any
    entry: Any
    counts: Any
    solved: tuple[Motion, ...]


PairData = tuple[PairState, PairParameters, PairFacts]


def pair_parameters(
    parameters: PairParameters, priority, entry, safe_solref: bool
) -> ContactParameters:
    """Return the parameters of the contacts of pairs.

    **Arguments:**

    - `priority`, `entry`: see `PairFacts`.
    - `safe_solref`: see `System`.
    """
    mixed = mix_parameters(*parameters.geoms, priority)
    margin = parameters.margins[0] + parameters.margins[1]
    gap, other = parameters.gaps
    gap = None if gap is None else gap + other
    explicit = parameters.own is not None
    if explicit:
        choose = lambda x, y: jnp.where(entry >= 0, x, y)
        mixed, margin, gap = jtu.tree_map(choose, parameters.own, (mixed, margin, gap))
    time = parameters.dt[None], safe_solref
    return complete_parameters(mixed, margin, gap, parameters.weight, time, explicit)


def pair_wrenches(
    law: PairLaw, data: PairData, tables: Shared
) -> tuple[ContactPoints, ContactWrench]:
    """Compute all points of pairs and their forces, one row for each point.

    **Arguments:**

    - `tables`: see `shared_tables`.
    """
    state, own, facts = data
    parameters = pair_parameters(own, facts.priority, facts.entry, law.safe_solref)
    margin = parameters.friction.margin
    if parameters.gap is not None:
        margin = margin + parameters.gap
    margin = lax.stop_gradient(margin)
    if own.width is not None:  # Contacts begin before.
        margin = margin + LAST_ONSET * jnp.maximum(lax.stop_gradient(own.width), 0.0)
    one, two = (
        together(Shape(pose, size, *numbers), tables)
        for pose, size, numbers in zip(
            state.poses, own.sizes, facts.numbers, strict=True
        )
    )
    points = collide_in_place(law.kinds, law.num_points, one, two, margin)
    points = points._replace(valid=points.valid & (facts.counts > 0)[:, None])
    # Arrays of pairs are repeated for their points.
    slots = points.dist.shape[1]
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    repeat = lambda x: flat(
        jnp.broadcast_to(x[:, None], (x.shape[0], slots, *x.shape[1:]))
    )
    points = jtu.tree_map(flat, points)
    parameters, nodes, surfaces, solved = jtu.tree_map(
        repeat, (parameters, state.nodes, state.surfaces, facts.solved)
    )
    settings = ContactLaw(law.condim, law.cone, own.impratio, own.width)
    ends = [(node.origin, node.velocity) for node in nodes]
    rows = contact_rows(settings, points, parameters, ends, surfaces)
    first = [node.first for node in nodes if node.first is not None]
    if first:
        rows = held_rows(rows, first, own.factor)
    return points, contact_wrench(rows, solved, [node.motion for node in nodes])


def pair_forces(
    law: PairLaw, data: PairData, shapes: tuple[Shape, Shape]
) -> tuple[Force, Force]:
    """Return the forces of pairs on both nodes, about the origins of their trees,
    `(k, *batch)`.

    **Arguments:**

    - `shapes`: the shapes with their hulls.
    """

    def forces(state, parameters, facts, tables):
        _, wrench = pair_wrenches(law, (state, parameters, facts), tables)
        of_pairs = lambda x: x.reshape(count, -1, *x.shape[1:])
        total = lambda x: jnp.sum(of_pairs(x), axis=1)
        return jtu.tree_leaves(jtu.tree_map(total, wrench.on_both()))

    state, parameters, _ = data
    margin, tables = parameters.margins[0], shared_tables(*shapes)
    count = margin.shape[0]
    like = jnp.broadcast_shapes(*(x.shape for x in jtu.tree_leaves((data[0], margin))))
    number = jax.ShapeDtypeStruct(like, state.poses[0].pos.x.dtype)
    results, treedef = jtu.tree_flatten(
        2 * (Force(Vec3(*[number] * 3), Vec3(*[number] * 3)),)
    )
    if shares_code(law.kinds, margin):
        kinds = " ".join(kind.name for kind in law.kinds)
        settings = law.num_points, law.condim, law.cone.name, law.safe_solref
        name = f"force of {kinds} {settings} {code_version()}"
        found = separate(forces, name, data, tables, results)
    else:
        found = forces(*data, tables)
    return jtu.tree_unflatten(treedef, found)


def pair_shape_numbers(
    shapes: tuple[Shape, Shape],
) -> tuple[tuple[Hulls | None, Grids | None], ...]:
    """Return the numbers of the hulls and grids of shapes, without what all pairs share."""
    own = (apart(shape)[0] for shape in shapes)
    return tuple((shape.hulls, shape.grids) for shape in own)


# Lists of pairs.


class Common(NamedTuple):
    """Quantities that all contacts share.

    - `weights`: inverse weights of the links; the last row is the world.
    - `explicit`, `margin`, `gap`: parameters of explicit pairs; None: there are none.
    - `vertices`, `heights`: vertices of all meshes, and heights of all height fields.
    - `impratio`, `width`, `dt`: see `ContactLaw`; time step, s.
    - `factor`: see `held_rows`; None: there is one problem.
    """

    weights: Any
    explicit: Mixed | None
    margin: Any
    gap: Any
    vertices: Vec3
    heights: Any
    impratio: Any
    width: Any
    dt: Any
    factor: Any = None


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

    def pair_columns(self, pair: Any = None) -> list:
        """Return the shapes, nodes and links of both sides of all pairs, or of given ones."""
        plan = self.plan
        every = [plan.first, plan.second, *self.pair_nodes, *self.links]
        return every if pair is None else [table_rows(x, pair) for x in every]

    def law(self, group: PairGroup, condim: int) -> PairLaw:
        """Return static facts about the contacts of a dimension of a group of pairs."""
        return PairLaw(
            group.kinds, group.num_points, condim, self.cone, self.safe_solref
        )


def parameters_of(
    facts: Facts, common: Common, pair, one: ShapeTables, two: ShapeTables
) -> PairParameters:
    """Return the parameters of pairs, `(k, *batch)`, given their shapes."""
    own = None
    if common.explicit is not None:
        entry = jnp.maximum(table_rows(facts.plan.explicit, pair), 0)
        own = read_rows_of((common.explicit, common.margin, common.gap), entry)
    first, second = (
        read_rows(common.weights, table_rows(links, pair)) for links in facts.links
    )
    return PairParameters(
        sizes=(one.shape.size, two.shape.size),
        geoms=(one.parameters, two.parameters),
        margins=(one.margin, two.margin),
        gaps=(one.gap, two.gap),
        own=own,
        weight=first + second,
        impratio=common.impratio,
        width=common.width,
        dt=common.dt,
        factor=common.factor,
    )


def _surfaces(one: ShapeTables, two: ShapeTables) -> tuple[Motion, Motion] | None:
    if one.surface is None or two.surface is None:
        return None
    return one.surface, two.surface


class ListedContacts(AbstractRows):
    """Listed contacts of one dimension of the contact space.

    "Residuals" and "pieces" stand for the motion of the nodes, from which each contact
    computes its own residuals and pieces; "forces" are the sums of the forces on links,
    about the origins of their trees; the last row is the world.

    - `tree`, `facts`, `condim`: static facts; the dimension.
    - `shapes`, `nodes`, `common`: arguments of the forces.
    - `axes`: motion axis of each degree of freedom.
    - `listing`: pairs that touch, and contacts.
    - `first`: motion of the nodes and the world at the solution of the first problem, see
        `noslip.py`; None: there is one problem.
    """

    tree: Tree = eqx.field(static=True)
    facts: Facts
    condim: int = eqx.field(static=True)
    shapes: ShapeTables
    nodes: NodeTables
    common: Common
    axes: Motion
    listing: Listing
    first: Motion | None = None

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
        frame = Mat3(*own.normal, *own.tangent, *own.normal.cross(own.tangent))
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
        ends = self.ends(pair, self.nodes)
        rows = contact_rows(settings, points, parameters, ends, _surfaces(one, two))
        if self.first is None:
            return rows
        return held_rows(rows, self.ends(pair, self.first), common.factor)

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
        nodes = self.nodes, solved, motion, self.first
        both = (self.shapes, 0), (self.shapes, 1), (nodes, 2), (nodes, 3)
        return [(table, first + column) for table, column in both]

    def pair_data(
        self, group: PairGroup, pair, entries, common: Common
    ) -> tuple[PairLaw, PairData, tuple[Shape, Shape]]:
        """Return what determines the points of pairs and their forces, see
        `pair_forces`, and the shapes.

        **Arguments:**

        - `pair`: the pairs, `(k, *batch)`.
        - `entries`: rows of `tables`.
        """
        facts, plan = self.facts, self.facts.plan
        (one, two), ends = entries[:2], entries[2:]
        polygons, shapes = hull_polygons(facts.hulls), (one.shape, two.shape)
        shared = Shared(common.vertices, polygons, common.heights)
        shapes = pair_shapes(plan, group, shared, pair, shapes)
        counts = jnp.ones_like(pair)
        if len(plan.condims(group)) > 1:
            condim = table_rows(plan.condim, pair)
            counts = (condim == self.condim).astype(pair.dtype)
        nodes, solved, motion, first = zip(*ends, strict=True)
        rows = zip(nodes, motion, first, strict=True)
        state = PairState(
            poses=(one.shape.pose, two.shape.pose),
            nodes=tuple(NodeRow(*node, *motions) for node, *motions in rows),
            surfaces=_surfaces(one, two),
        )
        still = PairFacts(
            numbers=pair_shape_numbers(shapes),
            priority=table_rows(facts.priority, pair),
            entry=table_rows(plan.explicit, pair),
            counts=counts,
            solved=lax.stop_gradient(solved),
        )
        data = state, parameters_of(facts, common, pair, one, two), still
        return facts.law(group, self.condim), data, shapes


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
    return _link_forces(*primals), symbolic_jvp(_summed_forces, primals, tangents)


def _summed_forces(rows: ListedContacts, solved: Motion, motion: Motion) -> Force:
    """Sum the forces of the pairs that touch on each link, see the top of the module."""
    facts, found = rows.facts, []
    for group, pairs in zip(facts.plan.groups, rows.listing.touching, strict=True):
        if rows.condim not in facts.plan.condims(group):
            continue

        def term(pair, _, entries, common, group=group):
            return pair_forces(*rows.pair_data(group, pair, entries, common))

        columns = facts.pair_columns()
        tables = rows.tables(solved, motion, 0)
        targets = [(column, facts.num_links + 1) for column in (4, 5)]
        first, second = each(
            term, pairs.count, pairs.pairs, columns, tables, rows.common, targets
        )
        found.append(first + second)
    return jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *found)


def listed_contacts(
    sys: System, plan: ListPlan, weights, now: RobotData, listing: Listing
) -> tuple[ListedContacts, ...]:
    """Return the listed contacts, one for each dimension of the contact space.

    **Arguments:**

    - `weights`: inverse weights of the links.
    """
    nodes, geoms, frames = tree(sys), sys.geoms, now.geoms.listed
    assert frames is not None, "listed pairs have frames"
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
    in_world, surface, both = world_shapes(now.kin, plan, frames), None, gaps(sys)
    if geoms.surface_velocity is not None:
        velocity = take(geoms.surface_velocity, plan.geoms)
        origin = take_or_zero(now.kin.origin, plan.carriers)
        surface = surface_motion(velocity, in_world.pose, origin)
    shapes = ShapeTables(
        in_world,
        take(geom_parameters(sys), plan.geoms),
        take(geoms.margin, plan.geoms),
        None if both is None else take(both[0], plan.geoms),
        surface,
    )
    explicit = max(plan.explicit) >= 0
    common = Common(
        weights=jnp.concatenate([weights, jnp.zeros_like(weights[:1])]),
        explicit=explicit_parameters(sys) if explicit else None,
        margin=sys.pairs.margin if explicit else None,
        gap=both[1] if explicit and both is not None else None,
        vertices=vec3(sys.meshes.vertices),
        heights=sys.height_fields.heights,
        impratio=sys.impratio,
        width=now.onset_width,
        dt=sys.dt,
    )
    ends = with_world(NodeTables(now.kin.origin, now.velocities.velocity), batch)
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
