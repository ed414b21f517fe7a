r"""Rows of contacts, from a point, the parameters of its pair, and the motion of its two
links.

Parameters do not depend on the state. They are mixed from those of the two shapes.

Contacts with *adhesion* $\delta$ can pull: the cone of their forces is moved along the normal
by $\delta$. A constant force $-\delta$ is part of their cost, and the residual of the normal is
lower by $\delta/D$, so that their compression does not change. Beyond the margin they exist
within the gap, as contacts without friction.

Sources: MuJoCo documentation, *Computation*, "Parameters" and "Adhesion";
`engine_collision_driver.c` (4.0: margins add up, gaps exert no force without adhesion).
"""

import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..collision import contact_plan
from ..collision.detection import pair_gaps, pair_margins
from ..collision.plan import ContactPlan, MOST_ANCHORED, pair_dimension, pair_priority
from ..collision.points import ContactPoints
from ..kinematics.link_motion import Pose
from ..model import Cone, System
from ..model.arrays import concatenate, per_row, take, take_or_zero
from ..spatial import Force, Motion, Vec3
from ..spatial.clamps import at_least
from ..spatial.vectors import force_at, vec3
from .costs import (
    AbstractCost,
    Elliptic,
    impedance,
    OneSided,
    Onset,
    onset,
    Pyramid,
    Residual,
    Softness,
    softness,
    stiffness_weight,
)
from .held_costs import held
from .rows import combine, PointJacobian, Rows


# Parameters, mixed from those of the two shapes.


class Friction(NamedTuple):
    """Friction and margin of each point, `(npoint, *batch)`.

    - `coefficients`: sliding along two axes, torsional, rolling about two axes.
    - `margin`: distance at which a contact begins, m.
    """

    coefficients: tuple[Any, Any, Any, Any, Any]
    margin: Any


class ContactParameters(NamedTuple):
    """Parameters of each point, `(npoint, *batch)`.

    - `friction`: friction and margin.
    - `weight`: sum of the inverse weights of the two links.
    - `soft`: softness of its rows.
    - `friction_damping`: damping of the reference acceleration along friction axes, 1/s.
    - `adhesion`: force with which contacts can pull, N; None: none can.
    - `gap`: distance beyond the margin within which these exist, m; None: zero.
    """

    friction: Friction
    weight: Any
    soft: Softness
    friction_damping: Any
    adhesion: Any
    gap: Any

    @property
    def reach(self) -> Any:
        """Distance beyond the margin at which contacts begin, m; None: zero."""
        if self.adhesion is None or self.gap is None:
            return None
        return jnp.where(self.adhesion != 0.0, self.gap, 0.0)

    def begin(self, dist, width) -> Onset:
        """Return which contacts exist at distances, and how far they are violated."""
        violation, reach = dist - self.friction.margin, self.reach
        if reach is None:
            return onset(violation, width)
        begun = onset(violation - reach, width)
        return begun._replace(violation=begun.violation + reach)


class Mixed(NamedTuple):
    """Parameters of pairs or points."""

    friction: list
    solref: list
    solref_friction: list
    solimp: list
    adhesion: Any


def contact_parameters(
    sys: System, plan: ContactPlan, link_weights
) -> ContactParameters:
    """Mix the parameters of the two shapes of each point.

    **Arguments:**

    - `link_weights`: inverse weights of the links, `(nlink, *batch)`.
    """
    facts = _pair_facts(sys, plan)
    mixed = take(_mixed_parameters(sys, facts), facts.rows)
    first, second = facts.links
    weight = take_or_zero(link_weights, first) + take_or_zero(link_weights, second)
    margin, gap = _margins(sys, plan), take(pair_gaps(sys, plan), plan.point_pairs)
    explicit, time = bool(facts.explicit), (sys.dt[None], sys.safe_solref)
    return complete_parameters(mixed, margin, gap, weight, time, explicit)


def complete_parameters(
    mixed: Mixed, margin, gap, weight, time: tuple[Any, bool], explicit: bool
) -> ContactParameters:
    """Return the parameters of contacts from those of their pairs.

    **Arguments:**

    - `margin`, `gap`: margins and gaps of the pairs.
    - `weight`: sum of the inverse weights of the two links.
    - `time`: time step, and whether it bounds time constants, see `softness`.
    - `explicit`: true if some pairs have parameters of their own.
    """
    soft = softness(mixed.solref, mixed.solimp, *time)
    damping = soft.b
    if explicit:
        damping = _friction_damping(mixed, damping, time)
    friction = _friction(mixed, margin)
    return ContactParameters(friction, weight, soft, damping, mixed.adhesion, gap)


def contact_friction(sys: System, plan: ContactPlan) -> Friction:
    """Compute coefficients of friction and margins only; coefficients that the contact
    dimension (`condim`) leaves out are zero."""
    facts = _pair_facts(sys, plan)
    mixed = take(_mixed_parameters(sys, facts), facts.rows)
    found = _friction(mixed, _margins(sys, plan))
    has = lambda k: per_row([size > k + 1 for size in facts.condim], found.margin)
    one, two, *rest = (mu * has(k) for k, mu in enumerate(found.coefficients))
    return found._replace(coefficients=(one, two, *rest))


def contact_dimensions(sys: System, plan: ContactPlan) -> tuple[int, ...]:
    """Return the dimension of the contact space (`condim`) of each point."""
    return _pair_facts(sys, plan).condim


class _PairFacts(NamedTuple):
    """Static facts about the pairs and points of a plan.

    - `mixed`: first and second shapes of the pairs whose parameters are mixed.
    - `priority`: priority rule of these pairs: 1 if the first shape has the higher
        priority, -1 if the second does, else 0.
    - `explicit`: entries of `sys.pairs`, which have parameters of their own.
    - `rows`: row of the pair of each point in `mixed` and `explicit`, joined.
    - `condim`: dimension of the contact space of each point.
    - `links`: links of the two shapes of each point; -1: the world.
    """

    mixed: tuple[tuple[int, ...], tuple[int, ...]]
    priority: tuple[int, ...]
    explicit: tuple[int, ...]
    rows: tuple[int, ...]
    condim: tuple[int, ...]
    links: tuple[tuple[int, ...], tuple[int, ...]]


def _pair_facts(sys: System, plan: ContactPlan) -> _PairFacts:
    geoms = sys.geoms
    condim = geoms.condim, sys.pairs.condim
    return _cached_pair_facts(plan, geoms.links, geoms.priority, *condim)


@ft.lru_cache(maxsize=256)
def _cached_pair_facts(
    plan: ContactPlan,
    links: tuple[int, ...],
    priority: tuple[int, ...],
    condim: tuple[int, ...],
    pair_condim: tuple[int, ...],
) -> _PairFacts:
    mixed = [i for i, pair in enumerate(plan.pairs) if pair[2] < 0]
    explicit = [i for i, pair in enumerate(plan.pairs) if pair[2] >= 0]
    row = {pair: k for k, pair in enumerate(mixed + explicit)}

    order = lambda pair: pair_priority(pair, priority)
    dimension = lambda pair: pair_dimension(pair, priority, condim, pair_condim)
    at_point = [plan.pairs[i] for i in plan.point_pairs]
    side = lambda pairs, k: tuple(pair[k] for pair in pairs)
    mixed_pairs = [plan.pairs[i] for i in mixed]
    return _PairFacts(
        mixed=(side(mixed_pairs, 0), side(mixed_pairs, 1)),
        priority=tuple(order(pair) for pair in mixed_pairs),
        explicit=tuple(plan.pairs[i][2] for i in explicit),
        rows=tuple(row[i] for i in plan.point_pairs),
        condim=tuple(map(dimension, at_point)),
        links=(
            tuple(links[geom] for geom in side(at_point, 0)),
            tuple(links[geom] for geom in side(at_point, 1)),
        ),
    )


def _mixed_parameters(sys: System, facts: _PairFacts) -> Mixed:
    """Return the parameters of the mixed and then of the explicit pairs."""
    return concatenate([_mix(sys, facts), _explicit(sys, facts)])


def _friction(mixed: Mixed, margin) -> Friction:
    one, two, three, four, five = (at_least(mu, 1e-5) for mu in mixed.friction)
    return Friction((one, two, three, four, five), margin)


def _margins(sys: System, plan: ContactPlan):
    return take(pair_margins(sys, plan), plan.point_pairs)


def _friction_damping(mixed: Mixed, damping, time: tuple[Any, bool]):
    """Return the damping by `solref_friction` where it is given, else `damping`."""
    first, second = mixed.solref_friction
    given = ((first > 0.0) == (second > 0.0)) & ((first != 0.0) | (second != 0.0))
    own = softness(mixed.solref_friction, mixed.solimp, *time)
    return jnp.where(given, own.b, damping)


def _columns(x, n: int) -> list:
    return [x[:, k] for k in range(n)]


def _mix(sys: System, facts: _PairFacts) -> Mixed:
    """Mix the parameters of the shapes of pairs."""
    one, two = (take(geom_parameters(sys), side) for side in facts.mixed)
    return mix_parameters(one, two, per_row(facts.priority, one.solmix))


class GeomParameters(NamedTuple):
    """Contact parameters of shapes: coefficients of friction (sliding, torsional,
    rolling), MuJoCo's `solref`, `solimp` and `solmix`, and adhesion; None: nothing
    adheres."""

    friction: list
    solref: list
    solimp: list
    solmix: Any
    adhesion: Any


def geom_parameters(sys: System) -> GeomParameters:
    """Return the contact parameters of all shapes, `(ngeom, *batch)`."""
    geoms = sys.geoms
    return GeomParameters(
        _columns(geoms.friction, 3),
        _columns(geoms.solref, 2),
        _columns(geoms.solimp, 5),
        geoms.solmix,
        _adhesion(sys, geoms.adhesion, geoms.margin),
    )


def _adhesion(sys: System, own, like):
    """Return the adhesion of shapes or pairs; None if neither has one."""
    if sys.geoms.adhesion is None and sys.pairs.adhesion is None:
        return None
    return jnp.zeros_like(like) if own is None else own


def mix_parameters(one: GeomParameters, two: GeomParameters, priority) -> Mixed:
    """Mix the parameters of two shapes.

    **Arguments:**

    - `priority`: 1 if the first shape has the higher priority, -1 if the second does,
        else 0.
    """
    friction1, ref1, imp1, mix1, adhesion1 = one
    friction2, ref2, imp2, mix2, adhesion2 = two
    both_zero = (mix1 < 1e-15) & (mix2 < 1e-15)
    share = jnp.where(both_zero, 0.5, mix1 / jnp.where(both_zero, 1.0, mix1 + mix2))

    def mix(a, b):
        both = share * a + (1.0 - share) * b
        return jnp.where(priority > 0, a, jnp.where(priority < 0, b, both))

    # Neither shape is a bound of the other: where both are equal, each has half of the
    # derivative.
    standard = ((ref1[0] > 0.0) & (ref2[0] > 0.0)) | (priority != 0)
    solref = [
        jnp.where(standard, mix(a, b), jnp.minimum(a, b)) for a, b in zip(ref1, ref2)
    ]
    solimp = [mix(a, b) for a, b in zip(imp1, imp2)]
    slide, spin, roll = (
        jnp.where(priority == 0, jnp.maximum(a, b), mix(a, b))
        for a, b in zip(friction1, friction2, strict=True)
    )
    none = [jnp.zeros_like(x) for x in solref]
    friction = [slide, slide, spin, roll, roll]
    adhesion = adhesion1
    if adhesion is not None:
        first, second = (jnp.where(priority == sign, 0.0, 1.0) for sign in (-1, 1))
        adhesion = first * adhesion1 + second * adhesion2
    return Mixed(friction, solref, none, solimp, adhesion)


def _explicit(sys: System, facts: _PairFacts) -> Mixed:
    """Return the parameters of pairs that have their own."""
    return take(explicit_parameters(sys), facts.explicit)


def explicit_parameters(sys: System) -> Mixed:
    """Return the parameters of `sys.pairs`."""
    pairs = sys.pairs
    return Mixed(
        _columns(pairs.friction, 5),
        _columns(pairs.solref, 2),
        _columns(pairs.solref_friction, 2),
        _columns(pairs.solimp, 5),
        _adhesion(sys, pairs.adhesion, pairs.margin),
    )


# Groups of points that are treated alike.


class ContactGroup(NamedTuple):
    """Points that are treated alike.

    - `points`: their places among all points.
    - `condim`: dimension of the contact space.
    - `nodes`: nodes of the first and second shapes.
    - `anchored`: true if one of the two shapes stands still, and the points are rows of a
        single node.
    """

    points: tuple[int, ...]
    condim: int
    nodes: tuple[tuple[int, ...], tuple[int, ...]]
    anchored: bool

    @property
    def moving(self) -> tuple[int, ...]:
        """Nodes of the shapes that move, where the others stand still."""
        return tuple(map(max, *self.nodes))

    @property
    def signs(self) -> tuple[float, ...]:
        """1 where the second shape is the one that moves, else -1."""
        return tuple(1.0 if two >= 0 else -1.0 for two in self.nodes[1])


def contact_groups(
    sys: System, plan: ContactPlan | None = None
) -> tuple[ContactGroup, ...]:
    """Return the groups of the contact points of a plan; None: of all pairs."""
    plan = contact_plan(sys) if plan is None else plan
    return _groups(plan, contact_dimensions(sys, plan))


@ft.lru_cache(maxsize=256)
def _groups(plan: ContactPlan, condim: tuple[int, ...]) -> tuple[ContactGroup, ...]:
    groups, places = [], range(plan.size)
    on_world = [min(nodes) < 0 for nodes in plan.nodes]
    alone = all(on_world) or sum(on_world) <= MOST_ANCHORED
    for anchored in (True, False):
        side = [k for k in places if (alone and on_world[k]) == anchored]
        for size in sorted({condim[k] for k in side}):
            own = tuple(k for k in side if condim[k] == size)
            first, second = (tuple(plan.nodes[k][i] for k in own) for i in (0, 1))
            groups.append(ContactGroup(own, size, (first, second), anchored))
    return tuple(groups)


# Rows.


class ContactRows(NamedTuple):
    """Rows of contacts that couple two links, `(n, *batch)`.

    - `arms`: position of each contact about the origins of the trees of both nodes.
    - `linear`, `angular`: axes of the residuals, see `PointJacobian`.
    - `cost`, `offset`: cost and offset, see `Rows`.
    """

    arms: tuple[Vec3, Vec3]
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...]
    cost: AbstractCost
    offset: Residual

    def residuals(self, one: Motion, two: Motion) -> Residual:
        """Compute the residuals from the motion of both nodes."""
        rate = two.at(self.arms[1]) - one.at(self.arms[0])
        along = [axis.dot(rate) for axis in self.linear]
        spin = two.ang - one.ang
        along += [axis.dot(spin) for axis in self.angular]
        return tuple(a + b for a, b in zip(along, self.offset, strict=True))

    def wrench(self, force: Residual) -> "ContactWrench":
        """Return the forces of the contacts from those of their residuals."""
        n = len(self.linear)
        twist = combine(self.angular, force[n:]) if self.angular else None
        return ContactWrench(self.arms, combine(self.linear, force[:n]), twist)


class ContactLaw(eqx.Module):
    """Settings that contacts of one dimension share.

    - `condim`: dimension of the contact space.
    - `cone`: the shape of friction cones.
    - `impratio`: ratio of frictional to normal impedance.
    - `width`: width of the onset of contacts, m; None if it is abrupt.
    """

    condim: int = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    impratio: Any
    width: Any

    @property
    def kind(self) -> type[OneSided] | type[Pyramid] | type[Elliptic]:
        """The class of the costs."""
        if self.condim == 1:
            return OneSided
        return Pyramid if self.cone is Cone.PYRAMIDAL else Elliptic


class ContactSource(eqx.Module):
    """Data for the rows of a group of contacts.

    - `group`: the group.
    - `cone`: the shape of friction cones.
    - `points`, `parameters`: all points and their parameters, those of other groups too.
    - `origin`, `velocity`: origin of the tree, and velocity, of each node.
    - `impratio`: ratio of frictional to normal impedance.
    - `width`: width of the onset of contacts, m; None if it is abrupt.
    - `surfaces`: motion of both surfaces of each point, see `surface_motion`; None if no
        surface moves.
    """

    group: ContactGroup = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    points: ContactPoints
    parameters: ContactParameters
    origin: Vec3
    velocity: Motion
    impratio: Any
    width: Any
    surfaces: tuple[Motion, Motion] | None = None

    @property
    def law(self) -> ContactLaw:
        """Settings that the contacts share."""
        return ContactLaw(self.group.condim, self.cone, self.impratio, self.width)

    def exists(self):
        """Return which of the points are contacts, `(n, *batch)`."""
        points, parameters = take((self.points, self.parameters), self.group.points)
        return parameters.begin(points.dist, self.width).exists & points.valid

    def rows(self) -> ContactRows:
        """Compute the rows of all points of the group."""
        points, parameters = take((self.points, self.parameters), self.group.points)
        ends = [
            take_or_zero((self.origin, self.velocity), nodes)
            for nodes in self.group.nodes
        ]
        return contact_rows(self.law, points, parameters, ends, self.own_surfaces())

    def own_surfaces(self) -> tuple[Motion, Motion] | None:
        """Return the motion of both surfaces of the points of the group."""
        return take(self.surfaces, self.group.points)


def surface_motion(velocity, pose: Pose, origin: Vec3) -> Motion:
    """Return how the surfaces of shapes move relative to the shapes, in the world, about
    the origins of the trees of their nodes.

    **Arguments:**

    - `velocity`: `Geoms.surface_velocity`, `(n, 6, *batch)`.
    - `pose`: poses of the shapes.
    - `origin`: origins of the trees of their nodes; zero for the world.
    """
    lin, ang = (pose.rot @ vec3(velocity[:, part]) for part in (_LINEAR, _ANGULAR))
    return Motion(ang, lin + ang.cross(origin - pose.pos))


_LINEAR, _ANGULAR = slice(0, 3), slice(3, 6)


def contact_rows(
    law: ContactLaw,
    points: ContactPoints,
    parameters: ContactParameters,
    ends: Sequence[tuple[Vec3, Motion]],
    surfaces: Sequence[Motion] | None,
) -> ContactRows:
    """Compute the rows of contacts between two links.

    **Arguments:**

    - `ends`: origin of the tree and velocity of the nodes of both links; zero for the
        world.
    - `surfaces`: motion of both surfaces, see `surface_motion`; None if none moves.
    """
    (one, first), (two, second) = ends
    arms = points.pos - one, points.pos - two
    rate = second.at(arms[1]) - first.at(arms[0])
    axes = _axes(law, points, parameters, None)
    velocity = [axis.dot(rate) for axis in axes.linear]
    velocity += [axis.dot(second.ang - first.ang) for axis in axes.angular]
    if surfaces is not None:
        velocity = _with_surfaces(velocity, axes, surfaces, arms, 1.0)
    cost, offset = _cost(law, points, parameters, velocity)
    return ContactRows(arms, axes.linear, axes.angular, cost, offset)


class ContactWrench(NamedTuple):
    """Forces of contacts on the second shape, `(k, *batch)`.

    - `arms`: position of each contact about the origins of the trees of both nodes.
    - `force`, `torque`: force, and torque about the contact.
    """

    arms: tuple[Vec3, Vec3]
    force: Vec3
    torque: Vec3 | None

    def on_both(self) -> tuple[Force, Force]:
        """Return the forces on both sides, about the origins of their trees."""
        found = []
        for arm, sign in zip(self.arms, (-1.0, 1.0), strict=True):
            pull = force_at(arm, self.force * sign)
            if self.torque is not None:
                pull = Force(pull.ang + (self.torque * sign), pull.lin)
            found.append(pull)
        return found[0], found[1]


def held_rows(rows: ContactRows, first: Sequence[Motion], factor) -> ContactRows:
    """Return the rows of the second problem without slip, see `noslip.py`.

    **Arguments:**

    - `first`: motion of both nodes at the solution of the first problem.
    - `factor`: see `held`.
    """
    return rows._replace(cost=held(rows.cost, rows.residuals(*first), factor))


def contact_wrench(rows: ContactRows, solved, motion) -> ContactWrench:
    """Return the forces of contacts.

    **Arguments:**

    - `solved`: motion of both nodes at the solution, which decides on the pieces of costs.
    - `motion`: motion of both nodes for which the forces are computed.
    """
    piece = rows.cost.piece(lax.stop_gradient(rows.residuals(*solved)))
    return rows.wrench(rows.cost.force(piece, rows.residuals(*motion)))


def with_world(tree, batch):
    """Append zeros for the world."""

    def one(x):
        x = jnp.broadcast_to(x, (x.shape[0], *batch))
        return jnp.concatenate([x, jnp.zeros_like(x[:1])])

    return jtu.tree_map(one, tree)


def anchored_rows(source: ContactSource) -> Rows:
    """Compute the rows of contacts of which one side stands still."""
    group = source.group
    points, parameters = take((source.points, source.parameters), group.points)
    axes = _axes(source.law, points, parameters, group.signs)
    arm = points.pos - take(source.origin, group.moving)
    speed = take(source.velocity, group.moving)
    rate = speed.at(arm)
    velocity = [axis.dot(rate) for axis in axes.linear]
    velocity += [axis.dot(speed.ang) for axis in axes.angular]
    surfaces = source.own_surfaces()
    if surfaces is not None:
        origins = (take_or_zero(source.origin, nodes) for nodes in group.nodes)
        one, two = (points.pos - origin for origin in origins)
        sign = per_row(group.signs, points.dist)
        velocity = _with_surfaces(velocity, axes, surfaces, (one, two), sign)
    cost, offset = _cost(source.law, points, parameters, velocity)
    jacobian = PointJacobian(group.moving, arm, axes.linear, axes.angular)
    return Rows(jacobian, cost, offset)


class _Axes(NamedTuple):
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...]


def _axes(law: ContactLaw, points, parameters, signs) -> _Axes:
    """Return the axes of the residuals; with pyramids, friction axes are multiplied by
    their coefficients.

    **Arguments:**

    - `signs`: -1 for points whose frame is turned, as the moving shape is the first one.
    """
    frame = [Vec3(*points.frame[3 * k : 3 * k + 3]) for k in range(3)]
    if signs is not None:
        sign = per_row(signs, points.dist)
        frame = [axis * sign for axis in frame]
    condim = law.condim
    linear = frame[: min(condim, 3)]
    angular = frame[: max(0, condim - 3)]
    if law.cone is Cone.PYRAMIDAL:
        scales = parameters.friction.coefficients
        linear[1:] = [axis * mu for axis, mu in zip(linear[1:], scales[:2])]
        angular = [axis * mu for axis, mu in zip(angular, scales[2:])]
    friction_share = _friction_share(law, points, parameters)
    if friction_share is not None:
        linear[1:] = [axis * friction_share for axis in linear[1:]]
        angular = [axis * friction_share for axis in angular]
    return _Axes(tuple(linear), tuple(angular))


def _friction_share(law: ContactLaw, points, parameters: ContactParameters):
    """Return 1 for contacts with friction, and 0 for those within the gap; with smoothing,
    also numbers between. None: all have friction."""
    reach = parameters.reach
    if reach is None or law.condim == 1:
        return None
    begun = onset(points.dist - parameters.friction.margin, law.width)
    share = jnp.where(begun.exists, begun.share, 0.0)
    return jnp.where(reach > 0.0, share, 1.0)


def _with_surfaces(
    velocity: list, axes: _Axes, surfaces: Sequence[Motion], arms: Sequence[Vec3], sign
) -> list:
    """Add the motion of surfaces to the velocity along friction axes. As in MuJoCo, they
    slide and spin, but neither push nor roll.

    **Arguments:**

    - `arms`: position of the points about the origins of the trees of both nodes.
    - `sign`: -1 where the frame is turned, see `_axes`, else 1.
    """
    one, two = surfaces
    rate = (two.at(arms[1]) - one.at(arms[0])) * sign
    found, n = list(velocity), len(axes.linear)
    for k in range(1, n):
        found[k] = found[k] + axes.linear[k].dot(rate)
    if axes.angular:
        found[n] = found[n] + axes.angular[0].dot((two.ang - one.ang) * sign)
    return found


def _cost(
    law: ContactLaw,
    points: ContactPoints,
    parameters: ContactParameters,
    velocity: list,
) -> tuple[AbstractCost, Residual]:
    """Return the cost of each contact, and the residuals at zero acceleration."""
    soft, mu = parameters.soft, parameters.friction.coefficients
    begun = parameters.begin(points.dist, law.width)
    imp = impedance(soft, begun.violation)
    inverse, impratio = parameters.weight, law.impratio[None]
    pyramidal, edges = law.cone is Cone.PYRAMIDAL, 1
    if law.kind is Pyramid:
        # The pyramid is scaled by the coefficient along the first axis.
        square, edges = mu[0] * mu[0], 2 * (law.condim - 1)
        scale = 2.0 * square * (1.0 + square) / impratio
        friction_share = _friction_share(law, points, parameters)
        if friction_share is not None:
            # Without friction, all edges are the normal.
            scale = friction_share * scale + (1.0 - friction_share) * edges
        inverse = inverse * scale
    weight = stiffness_weight(imp, inverse) * begun.share
    weight = jnp.where(begun.exists & points.valid, weight, 0.0)
    damping = soft.b if pyramidal else parameters.friction_damping
    offset = (
        soft.b * velocity[0] + soft.k * imp * begun.violation,
        *(damping * rate for rate in velocity[1:]),
    )
    adhesion = parameters.adhesion
    if adhesion is not None:
        adhesion = adhesion * begun.share
        acts = weight > 0.0
        shift = jnp.where(acts, adhesion / (edges * jnp.where(acts, weight, 1.0)), 0.0)
        offset = offset[0] - shift, *offset[1:]
    if law.kind is OneSided:
        return OneSided(weight, adhesion), offset
    if law.kind is Pyramid:
        return Pyramid(weight, adhesion), offset
    own = mu[: law.condim - 1]
    regular = mu[0] / jnp.sqrt(impratio)
    return Elliptic(weight, own, regular + 0.0 * weight, adhesion), offset
