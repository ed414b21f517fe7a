"""Parameters of each possible contact, mixed from those of its two shapes; independent
of the state.

Sources: MuJoCo documentation, *Computation*, "Parameters"; `engine_collision_driver.c`
(4.0: margins add up, gaps exert no force).
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import Frames, Pose, quaternions, take_poses
from ..model import concatenate, per_row, System, take, take_or_zero
from ..spatial import normalize4, quaternion_matrix, Vec3, vec3
from ._plan import ContactPlan
from ._softness import Softness, softness


class Friction(NamedTuple):
    """Friction and margin of each point, `(npoint, *batch)`.

    - `coefficient1`, `coefficient2`: sliding friction along the two axes, zero for
        frictionless contacts.
    - `margin`: distance at which a contact begins, m.
    """

    coefficient1: Any
    coefficient2: Any
    margin: Any


class ContactParameters(NamedTuple):
    """Parameters of each point, `(npoint, *batch)`.

    - `friction`: friction and margin.
    - `weight`: inverse weight that scales the softness of a row.
    - `soft`: softness of its rows.
    """

    friction: Friction
    weight: Any
    soft: Softness


class GeomFrames(NamedTuple):
    """Frames of the shapes in the nodes that carry them, and their sizes."""

    pose: Pose
    size: Vec3


def geom_frames(sys: System, fixed: Frames) -> GeomFrames:
    """Compute the frames of the shapes in the nodes that carry them."""
    geoms = sys.geoms
    rot = quaternion_matrix(normalize4(quaternions(geoms.quat)))
    pose = take_poses(fixed.link, geoms.links) @ Pose(rot, vec3(geoms.pos))
    return GeomFrames(pose, vec3(geoms.size))


def contact_parameters(
    sys: System, plan: ContactPlan, link_weights
) -> ContactParameters:
    """Mix the parameters of the two shapes of each point.

    **Arguments:**

    - `link_weights`: inverse weights of the links, `(nlink, *batch)`.
    """
    friction, slides, solref, solimp = _mixed_parameters(sys, plan)
    first, second = _pair_facts(sys, plan).links
    weight = take_or_zero(link_weights, first) + take_or_zero(link_weights, second)
    # The pyramid is scaled by the coefficient along the first axis.
    mu = friction.coefficient1
    pyramid = 2.0 * mu * mu * (1.0 + mu * mu) / sys.impratio[None]
    # A frictionless contact is written as four equal edges, each a quarter as stiff.
    scale = slides * pyramid + (1.0 - slides) * 4.0
    soft = softness(solref, solimp, sys.dt[None], sys.safe_solref)
    return ContactParameters(friction, weight * scale, soft)


def contact_friction(sys: System, plan: ContactPlan) -> Friction:
    """Compute coefficients of friction and margins only."""
    return _mixed_parameters(sys, plan)[0]


class _PairFacts(NamedTuple):
    """Static facts about the pairs and points of a plan.

    - `mixed`: first and second shapes of the pairs whose parameters are mixed.
    - `priority`: for these, 1 if the first shape has the higher priority, -1 if the
        second does, else 0.
    - `explicit`: entries of `sys.pairs`, which have parameters of their own.
    - `rows`: for each point, the row of its pair in `mixed` and `explicit`, joined.
    - `slides`: for each point, whether it has friction.
    - `links`: for each point, the links of the two shapes; -1: the world.
    """

    mixed: tuple[tuple[int, ...], tuple[int, ...]]
    priority: tuple[int, ...]
    explicit: tuple[int, ...]
    rows: tuple[int, ...]
    slides: tuple[bool, ...]
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

    def order(pair) -> int:
        one, two = (priority[geom] for geom in pair[:2])
        return (one > two) - (one < two)

    def dimension(pair) -> int:
        if pair[2] >= 0:
            return pair_condim[pair[2]]
        one, two = (condim[geom] for geom in pair[:2])
        return {1: one, -1: two, 0: max(one, two)}[order(pair)]

    at_point = [plan.pairs[i] for i in plan.point_pairs]
    side = lambda pairs, k: tuple(pair[k] for pair in pairs)
    mixed_pairs = [plan.pairs[i] for i in mixed]
    return _PairFacts(
        mixed=(side(mixed_pairs, 0), side(mixed_pairs, 1)),
        priority=tuple(order(pair) for pair in mixed_pairs),
        explicit=tuple(plan.pairs[i][2] for i in explicit),
        rows=tuple(row[i] for i in plan.point_pairs),
        slides=tuple(dimension(pair) > 1 for pair in at_point),
        links=(
            tuple(links[geom] for geom in side(at_point, 0)),
            tuple(links[geom] for geom in side(at_point, 1)),
        ),
    )


def _mixed_parameters(sys: System, plan: ContactPlan):
    """Return friction, whether there is any, `solref` and `solimp` of each point."""
    facts = _pair_facts(sys, plan)
    per_pair = concatenate([_mix(sys, facts), _explicit(sys, facts)])
    friction, solref, solimp, margin = take(per_pair, facts.rows)
    slides = per_row(facts.slides, margin)
    one, two = (jnp.maximum(mu, 1e-5) * slides for mu in friction)
    return Friction(one, two, margin), slides, solref, solimp


def _columns(x, n: int) -> list:
    return [x[:, k] for k in range(n)]


def _mix(sys: System, facts: _PairFacts):
    """Mix the parameters of pairs of shapes: friction, `solref`, `solimp`, margin."""
    geoms = sys.geoms
    values = (
        geoms.friction[:, 0],
        _columns(geoms.solref, 2),
        _columns(geoms.solimp, 5),
    )
    values += (geoms.solmix, geoms.margin)
    mu1, ref1, imp1, mix1, margin1 = take(values, facts.mixed[0])
    mu2, ref2, imp2, mix2, margin2 = take(values, facts.mixed[1])
    priority = per_row(facts.priority, mu1)
    both_zero = (mix1 < 1e-15) & (mix2 < 1e-15)
    share = jnp.where(both_zero, 0.5, mix1 / jnp.where(both_zero, 1.0, mix1 + mix2))
    share = jnp.where(priority > 0, 1.0, jnp.where(priority < 0, 0.0, share))
    mix = lambda a, b: share * a + (1.0 - share) * b
    standard = ((ref1[0] > 0.0) & (ref2[0] > 0.0)) | (priority != 0)
    solref = [
        jnp.where(standard, mix(a, b), jnp.minimum(a, b)) for a, b in zip(ref1, ref2)
    ]
    solimp = [mix(a, b) for a, b in zip(imp1, imp2)]
    mu = jnp.where(priority == 0, jnp.maximum(mu1, mu2), mix(mu1, mu2))
    return [mu, mu], solref, solimp, margin1 + margin2


def _explicit(sys: System, facts: _PairFacts):
    """Return the parameters of pairs that have their own."""
    pairs = sys.pairs
    values = (_columns(pairs.friction, 2), _columns(pairs.solref, 2))
    return take((*values, _columns(pairs.solimp, 5), pairs.margin), facts.explicit)
