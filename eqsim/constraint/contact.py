r"""Contacts with pyramidal or elliptic friction cones, and their reports.

A report lists the deepest contacts with their forces, for sensors and users. It has room for
a given number of contacts, however many pairs could touch. Each contact knows its place, the
number of contacts that are deeper, so the list is sorted. As in `listed_contacts.py`, values
come from the lists of contacts, and derivatives from the points of the pairs in the report,
which are computed again.

Sources: MuJoCo documentation, *Computation*, "Contact" and "Friction cones";
`mj_instantiateContact`, `mj_makeImpedance`.
"""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._lists import (
    each,
    OWN_VALUE,
    read_rows,
    read_rows_of,
    table_rows,
    write_rows,
)
from .._primitive import symbolic_jvp
from ..collision import contact_plan
from ..collision.narrow_phase import shared_tables
from ..collision.pair_lists import PairList
from ..collision.plan import ContactPlan, ListPlan, PairGroup, split_plan
from ..collision.points import ContactPoints
from ..dynamics.weights import InverseWeights
from ..kinematics.link_motion import dof_axes, Kinematics, take_poses
from ..model import System, Tree, tree
from ..model.arrays import per_row, take, take_or_zero
from ..spatial import Motion, Vec3
from ._contact_solver import (
    contact_jacobian,
    contact_places,
    ContactRowList,
    for_each_contact,
    list_rows,
    numbers_where,
    visit_contacts,
    VisitedContacts,
)
from .contact_rows import (
    anchored_rows,
    contact_groups,
    contact_parameters,
    ContactGroup,
    ContactParameters,
    ContactRows,
    ContactSource,
    surface_motion,
)
from .costs import Elliptic, OneSided, Pyramid, Residual
from .listed_contacts import listed_contacts, ListedContacts, pair_wrenches
from .record import AbstractConstraint, RobotData
from .rows import AbstractRows, add_products, PointJacobian, Rows, Terms


class ContactConstants(NamedTuple):
    """Constants of contacts, which do not depend on the state.

    - `parameters`: parameters of the points that are always computed; None if there are
        none.
    - `weights`: inverse weights of the links.
    """

    parameters: ContactParameters | None
    weights: Any


class Contact(AbstractConstraint):
    """Contacts between shapes."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        plan, listed = split_plan(sys)
        if not plan.size and listed is None:
            return None
        parameters = contact_parameters(sys, plan, weights.link) if plan.size else None
        return ContactConstants(parameters, weights.link)

    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        plan, listed = split_plan(sys)
        found: tuple[AbstractRows, ...] = ()
        if plan.size:
            found += point_rows(sys, plan, constants.parameters, now)
        if listed is not None:
            assert now.listing is not None, "a robot with listed pairs has a listing"
            found += listed_contacts(sys, listed, constants.weights, now, now.listing)
        return found


def point_rows(
    sys: System, plan: ContactPlan, parameters: ContactParameters, now: RobotData
) -> tuple[AbstractRows, ...]:
    """Return the rows of `now.points`, the points of a plan."""
    groups, surfaces = contact_groups(sys, plan), _surfaces(sys, plan, now)
    rows = ft.partial(_group_rows, sys, parameters, now, surfaces)
    return tuple(map(rows, groups))


def _surfaces(
    sys: System, plan: ContactPlan, now: RobotData
) -> tuple[Motion, Motion] | None:
    """Return the motion of both surfaces of all points of a plan, see `surface_motion`."""
    velocity = sys.geoms.surface_velocity
    if velocity is None:
        return None
    pose = take_poses(now.kin.pose, plan.carriers) @ now.geoms.pose
    motion = surface_motion(velocity, pose, take_or_zero(now.kin.origin, plan.carriers))
    pairs = [plan.pairs[pair] for pair in plan.point_pairs]
    return take(motion, [a for a, _, _ in pairs]), take(
        motion, [b for _, b, _ in pairs]
    )


def contact_wrenches_in_world(
    sys: System,
    plan: ContactPlan,
    rows: Sequence[AbstractRows],
    forces: Sequence[Residual],
) -> tuple[Vec3, Vec3]:
    """Compute force and torque, at each point, on the second shape.

    **Arguments:**

    - `rows`: rows of contacts, of which the first are those of the groups of the plan.
    - `forces`: their forces.
    """
    pushes, twists, places = [], [], []
    for group, own, force in zip(contact_groups(sys, plan), rows, forces):
        linear, angular = _axes_of(own)
        along = zip((*linear, *angular), force, strict=True)
        parts = [axis * f for axis, f in along]
        push = sum(parts[1 : len(linear)], parts[0])
        twist = sum(parts[len(linear) :], push * 0.0)
        if group.anchored:
            sign = per_row(group.signs, force[0])
            push, twist = push * sign, twist * sign
        pushes.append(push)
        twists.append(twist)
        places += group.points
    order = sorted(range(len(places)), key=places.__getitem__)
    return take(_join(pushes), order), take(_join(twists), order)


def _join(vectors: list[Vec3]) -> Vec3:
    return Vec3(*(jnp.concatenate([v[k] for v in vectors]) for k in range(3)))


def _axes_of(rows: AbstractRows) -> tuple[tuple[Vec3, ...], tuple[Vec3, ...]]:
    if isinstance(rows, CoupledContacts):
        return rows.rows.linear, rows.rows.angular
    assert isinstance(rows, Rows) and isinstance(rows.jacobian, PointJacobian)
    return rows.jacobian.linear, rows.jacobian.angular


def _group_rows(
    sys: System,
    parameters: ContactParameters,
    now: RobotData,
    surfaces: tuple[Motion, Motion] | None,
    group: ContactGroup,
) -> AbstractRows:
    assert now.points is not None, "a robot with contacts has contact points"
    source = ContactSource(
        group=group,
        cone=sys.cone,
        points=now.points,
        parameters=parameters,
        origin=now.kin.origin,
        velocity=now.velocities.velocity,
        impratio=sys.impratio,
        width=now.onset_width,
        surfaces=surfaces,
    )
    if group.anchored:
        return anchored_rows(source)
    return coupled_contacts(tree(sys), now.kin, source)


# Contacts that couple branches of the tree.


class CoupledContacts(AbstractRows):
    r"""Points that are always computed and couple branches of the tree, or are on the world
    but too many to be anchored (`contact_groups`), with residuals $J a + c$.

    Reports and derivatives use the rows of all points; the solver visits those that exist.

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
        # Only contacts that are stiff on their pieces; those without slip are not along
        # the normal.
        along = [row[-1] for row in weights]
        first = isinstance(self.rows.cost, OneSided | Pyramid | Elliptic)
        stiff = along[0] if first else sum(along[1:], along[0])
        number, count = numbers_where(stiff > 0.0)

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


def coupled_contacts(
    nodes: Tree, kin: Kinematics, source: ContactSource
) -> CoupledContacts:
    """Compute the rows of contacts that are visited one by one."""
    return CoupledContacts(nodes, dof_axes(nodes, kin), source, source.rows())


# Reports.


class ContactValues(NamedTuple):
    """Contacts, `(n, *batch)`, in the world.

    - `dist`: distance of the surfaces, m; negative in penetration.
    - `pos`: position halfway between the surfaces.
    - `normal`, `tangent`: first two axes of the frame; the normal is from the first shape
        to the second.
    - `force`, `torque`: on the second shape, about the position.
    """

    dist: Any
    pos: Vec3
    normal: Vec3
    tangent: Vec3
    force: Vec3
    torque: Vec3


class ContactReport(NamedTuple):
    """The deepest contacts, `(n, *batch)`, sorted by depth.

    - `pair`: entry in `contact_plan(sys).pairs`; -1 in rows that are not used.
    - `slot`: number of the contact among the points of its pair.
    - `values`: the contacts; in rows that are not used, distances are infinite, and other
        values zero.
    - `count`: number of all contacts, `(*batch)`, also of those without a row.
    """

    pair: Any
    slot: Any
    values: ContactValues
    count: Any

    @property
    def exists(self):
        """Return which rows are used."""
        return self.pair >= 0


class DensePoints(NamedTuple):
    """Points that are always computed, in the order of their plan.

    - `points`: the points.
    - `exists`: true where there is a contact.
    - `force`, `torque`: on the second shape, in the world.
    """

    points: ContactPoints
    exists: Any
    force: Vec3
    torque: Vec3

    def values(self, number) -> ContactValues:
        """Return points at their numbers, `(k, *batch)`."""
        own = read_rows_of(self, number)
        return _values(own.points, own.force, own.torque)


def _values(points: ContactPoints, force: Vec3, torque: Vec3 | None) -> ContactValues:
    frame = points.frame
    axes = Vec3(*frame[:3]), Vec3(*frame[3:6])
    if torque is None:
        torque = Vec3(*map(jnp.zeros_like, force))
    return ContactValues(points.dist, points.pos, *axes, force, torque)


class ReportedContacts(NamedTuple):
    """Inputs of a report.

    - `dense`: points that are always computed; None if there are none.
    - `listed`: listed contacts, one for each dimension of the contact space.
    - `motion`: motion of all nodes and the world at the solution.
    """

    dense: DensePoints | None
    listed: tuple[ListedContacts, ...]
    motion: Motion


class ReportFacts(eqx.Module):
    """Static facts about a report.

    - `size`: its number of rows.
    - `dense`, `listed`: the two parts of the plan.
    - `dense_pairs`, `listed_pairs`: entries of their pairs in `contact_plan(sys).pairs`.
    """

    size: int = eqx.field(static=True)
    dense: ContactPlan = eqx.field(static=True)
    listed: ListPlan | None = eqx.field(static=True)
    dense_pairs: tuple[int, ...] = eqx.field(static=True)
    listed_pairs: tuple[int, ...] = eqx.field(static=True)

    @property
    def num_pairs(self) -> int:
        """Number of all pairs."""
        return len(self.dense_pairs) + len(self.listed_pairs)

    @property
    def dense_slots(self) -> tuple[int, ...]:
        """Number of each dense point among those of its pair."""
        owners, slots = self.dense.point_pairs, []
        for k, owner in enumerate(owners):
            same = k > 0 and owners[k - 1] == owner
            slots.append(slots[-1] + 1 if same else 0)
        return tuple(slots)


def report_facts(sys: System, size: int) -> ReportFacts:
    """Return the static facts of a report with a given number of rows."""
    dense, listed = split_plan(sys)
    number = {pair: k for k, pair in enumerate(contact_plan(sys).pairs)}
    of_list: tuple[int, ...] = ()
    if listed is not None:
        ends = zip(listed.first, listed.second, listed.explicit, strict=True)
        of_list = tuple(
            number[listed.geoms[a], listed.geoms[b], entry] for a, b, entry in ends
        )
    of_dense = tuple(number[pair] for pair in dense.pairs)
    return ReportFacts(size, dense, listed, of_dense, of_list)


def contact_report(facts: ReportFacts, given: ReportedContacts) -> ContactReport:
    """Return the deepest contacts."""
    found = _report(facts, lax.stop_gradient(given))
    return found._replace(values=_with_derivative(facts, given, found))


# Values.


class _Source(NamedTuple):
    """One of the lists of contacts.

    - `count`: number of contacts, `(*batch)`.
    - `dist`: function that returns the distances of contacts at their numbers.
    - `row`: function that returns their pair, slot and values.
    """

    count: Any
    dist: Callable[[Any], Any]
    row: Callable[[Any], tuple[Any, Any, ContactValues]]


def _dense_source(facts: ReportFacts, dense: DensePoints) -> _Source:
    number, count = numbers_where(dense.exists)
    pairs = [facts.dense_pairs[pair] for pair in facts.dense.point_pairs]

    def row(k):
        point = read_rows(number, k)
        pair, slot = (table_rows(x, point) for x in (pairs, facts.dense_slots))
        return pair, slot, dense.values(point)

    dist = lambda k: read_rows(dense.points.dist, read_rows(number, k))
    return _Source(count, dist, row)


def _listed_source(facts: ReportFacts, rows: ListedContacts, motion: Motion) -> _Source:
    contacts = rows.contacts

    def row(k):
        own, points = rows.read(k)
        wrench = rows.wrench(own.pair, points, motion, motion)
        pair = table_rows(facts.listed_pairs, own.pair)
        return pair, own.slot, _values(points, wrench.force, wrench.torque)

    return _Source(contacts.count, ft.partial(read_rows, contacts.dist), row)


def _report(facts: ReportFacts, given: ReportedContacts) -> ContactReport:
    sources = []
    if given.dense is not None:
        sources.append(_dense_source(facts, given.dense))
    sources += [_listed_source(facts, rows, given.motion) for rows in given.listed]
    like = given.motion.lin.x
    zero = jnp.zeros((facts.size, *like.shape[1:]), like.dtype)
    none = Vec3(zero, zero, zero)
    values = ContactValues(jnp.full_like(zero, jnp.inf), *5 * (none,))
    unused = jnp.full(zero.shape, -1, jnp.int32)
    rows = unused, jnp.zeros_like(unused), values
    for number, source in enumerate(sources):

        def add(rows, k, used, number=number, source=source):
            own = source.row(k)
            place = _place(sources, number, k, own[2].dist)
            here = used & (place < facts.size)
            write = lambda x, value: write_rows(x, place, value, here)
            return jtu.tree_map(write, rows, own)

        rows = visit_contacts(source.count, add, rows)
    pair, slot, values = rows
    count = sum(source.count for source in sources)
    return ContactReport(pair, slot, values, count)


def _place(sources: list[_Source], number: int, k, dist):
    """Return the place of contacts in the report: the number of those that are deeper, or
    as deep and earlier."""
    place = jnp.zeros_like(k)
    for other, source in enumerate(sources):

        def add(place, j, used, other=other, source=source):
            theirs, earlier = source.dist(j), other < number
            tie = j < k if other == number else jnp.full(k.shape, earlier)
            before = (theirs < dist) | ((theirs == dist) & tie)
            return place + (before & used).astype(jnp.int32)

        place = for_each_contact(source.count, add, place)
    return place


# Derivatives.


@ft.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_derivative(
    facts: ReportFacts, given: ReportedContacts, report: ContactReport
):
    """Return the values of a report, with their derivatives."""
    return report.values


@ft.partial(_with_derivative.defjvp, symbolic_zeros=True)
def _derivative(facts: ReportFacts, primals, tangents):
    (given, report), (rates, _) = primals, tangents
    again = ft.partial(_computed_again, facts, report)
    return report.values, symbolic_jvp(again, (given,), (rates,))


def _computed_again(
    facts: ReportFacts, report: ContactReport, given: ReportedContacts
) -> ContactValues:
    """Compute the values of a report from those that they depend on. Rows that are not
    used are zero."""
    parts = []
    if given.dense is not None:
        parts.append(_dense_values(facts, report, given.dense))
    for rows in given.listed:
        parts += [
            _group_values(facts, report, given, rows, group)
            for group in rows.facts.plan.groups
            if rows.condim in rows.facts.plan.condims(group)
        ]
    return jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *parts)


def _dense_values(
    facts: ReportFacts, report: ContactReport, dense: DensePoints
) -> ContactValues:
    first = {pair: k for k, pair in reversed([*enumerate(facts.dense.point_pairs)])}
    starts = [-1] * facts.num_pairs
    for place, pair in enumerate(facts.dense_pairs):
        starts[pair] = first[place]
    start = table_rows(starts, jnp.maximum(report.pair, 0))
    chosen = report.exists & (start >= 0)
    number = jnp.where(chosen, start + report.slot, 0)
    return jtu.tree_map(lambda x: jnp.where(chosen, x, 0.0), dense.values(number))


def _group_values(
    facts: ReportFacts,
    report: ContactReport,
    given: ReportedContacts,
    rows: ListedContacts,
    group: PairGroup,
) -> ContactValues:
    """Compute the contacts of a dimension and of a group of pairs."""
    own = {k for k in group.pairs if rows.facts.plan.condim[k] == rows.condim}
    numbers = [-1] * facts.num_pairs
    for k in own:
        numbers[facts.listed_pairs[k]] = k
    pair = table_rows(numbers, jnp.maximum(report.pair, 0))
    chosen = PairList(*numbers_where(report.exists & (pair >= 0)))
    pair = jnp.maximum(pair, 0)

    def term(_, columns, entries, common):
        pair, slot = columns[:2]
        law, data, shapes = rows.pair_data(group, pair, entries, common)
        points, wrench = pair_wrenches(law, data, shared_tables(*shapes))
        values = _values(points, wrench.force, wrench.torque)
        values = jtu.tree_map(lambda x: jnp.broadcast_to(x, points.dist.shape), values)
        return (jtu.tree_map(ft.partial(_at_slot, slot), values),)

    columns = [pair, report.slot, *rows.facts.pair_columns(pair)]
    tables = rows.tables(given.motion, given.motion, 2)
    targets = [(OWN_VALUE, facts.size)]
    found = each(
        term, chosen.count, chosen.pairs, columns, tables, rows.common, targets
    )
    return found[0]


def _at_slot(slot, x):
    """Return one of the points of each pair."""
    rows = x.reshape(slot.shape[0], -1, *x.shape[1:])
    number = jnp.arange(rows.shape[1], dtype=jnp.int32)
    number = number.reshape(1, -1, *(1 for _ in x.shape[1:]))
    # Other points may have derivatives that are not finite.
    return jnp.sum(jnp.where(number == slot[:, None], rows, 0.0), axis=1)
