"""Parameters of each possible contact, mixed from those of its two shapes; independent
of the state.

Sources: MuJoCo documentation, *Computation*, "Parameters"; `engine_collision_driver.c`
(4.0: margins add up, gaps exert no force).
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..collision import ContactPlan, pair_margins
from ..collision._plan import pair_dimension, pair_priority
from ..model import System
from ..model._gather import concatenate, per_row, take, take_or_zero
from ._softness import Softness, softness


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
    """

    friction: Friction
    weight: Any
    soft: Softness
    friction_damping: Any


class Mixed(NamedTuple):
    """Parameters of pairs or points."""

    friction: list
    solref: list
    solref_friction: list
    solimp: list


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
    margin = _margins(sys, plan)
    explicit, time = bool(facts.explicit), (sys.dt[None], sys.safe_solref)
    return complete_parameters(mixed, margin, weight, time, explicit)


def complete_parameters(
    mixed: Mixed, margin, weight, time: tuple[Any, bool], explicit: bool
) -> ContactParameters:
    """Return the parameters of contacts from those of their pairs.

    **Arguments:**

    - `weight`: sum of the inverse weights of the two links.
    - `time`: time step, and whether it bounds time constants, see `softness`.
    - `explicit`: true if some pairs have parameters of their own.
    """
    soft = softness(mixed.solref, mixed.solimp, *time)
    damping = soft.b
    if explicit:
        damping = _friction_damping(mixed, damping, time)
    return ContactParameters(_friction(mixed, margin), weight, soft, damping)


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
    - `priority`: for these, 1 if the first shape has the higher priority, -1 if the
        second does, else 0.
    - `explicit`: entries of `sys.pairs`, which have parameters of their own.
    - `rows`: for each point, the row of its pair in `mixed` and `explicit`, joined.
    - `condim`: for each point, the dimension of its contact space.
    - `links`: for each point, the links of the two shapes; -1: the world.
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
    one, two, three, four, five = (jnp.maximum(mu, 1e-5) for mu in mixed.friction)
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
    rolling), and MuJoCo's `solref`, `solimp` and `solmix`."""

    friction: list
    solref: list
    solimp: list
    solmix: Any


def geom_parameters(sys: System) -> GeomParameters:
    """Return the contact parameters of all shapes, `(ngeom, *batch)`."""
    geoms = sys.geoms
    return GeomParameters(
        _columns(geoms.friction, 3),
        _columns(geoms.solref, 2),
        _columns(geoms.solimp, 5),
        geoms.solmix,
    )


def mix_parameters(one: GeomParameters, two: GeomParameters, priority) -> Mixed:
    """Mix the parameters of two shapes.

    **Arguments:**

    - `priority`: 1 if the first shape has the higher priority, -1 if the second does,
        else 0.
    """
    friction1, ref1, imp1, mix1 = one
    friction2, ref2, imp2, mix2 = two
    both_zero = (mix1 < 1e-15) & (mix2 < 1e-15)
    share = jnp.where(both_zero, 0.5, mix1 / jnp.where(both_zero, 1.0, mix1 + mix2))
    share = jnp.where(priority > 0, 1.0, jnp.where(priority < 0, 0.0, share))
    mix = lambda a, b: share * a + (1.0 - share) * b
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
    return Mixed(friction, solref, none, solimp)


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
    )
