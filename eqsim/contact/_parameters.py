"""Numbers of each possible contact, mixed from its two shapes; independent of the
state.

Sources: MuJoCo documentation, *Computation*, "Parameters"; `engine_collision_driver.c`
(4.0: margins add up, gaps exert no force).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..kinematics._forward import Frames, Pose, quaternions
from ..model import concatenate, System, take, Tree
from ..spatial import normalize4, quaternion_matrix, Vec3, vec3
from ._plan import ContactPlan
from ._softness import Softness, softness


class Friction(NamedTuple):
    """Per point, `(npoint, *batch)`: sliding coefficients along the two axes, zero for
    frictionless contacts, and the distance at which a contact begins."""

    coefficient1: Any
    coefficient2: Any
    margin: Any


class ContactParameters(NamedTuple):
    """Per point, `(npoint, *batch)`.

    - `weight`: inverse weight that scales the softness of a row.
    """

    friction: Friction
    weight: Any
    soft: Softness


class GeomFrames(NamedTuple):
    """Frames of the shapes in the nodes that carry them, and their sizes."""

    pose: Pose
    size: Vec3


def geom_frames(sys: System, fixed: Frames) -> GeomFrames:
    """Where the shapes are; independent of the state."""
    geoms = sys.geoms
    local = Pose(
        quaternion_matrix(normalize4(quaternions(geoms.quat))), vec3(geoms.pos)
    )
    moving = [i for i, link in enumerate(geoms.links) if link >= 0]
    still = [i for i, link in enumerate(geoms.links) if link < 0]
    placed = take(fixed.link, [geoms.links[i] for i in moving]) @ take(local, moving)
    joined = concatenate([take(local, still), placed])
    order = still + moving
    pose = take(joined, [order.index(i) for i in range(len(order))])
    return GeomFrames(pose, vec3(geoms.size))


def contact_parameters(
    sys: System, tree: Tree, plan: ContactPlan, link_weights
) -> ContactParameters:
    """Mixes the numbers of the shapes of each point."""
    friction, slides, solref, solimp = _mixed_numbers(sys, plan)
    weight = _pair_weight(sys, plan, link_weights)
    # The pyramid is scaled by the coefficient along the first axis.
    mu = friction.coefficient1
    pyramid = 2.0 * mu * mu * (1.0 + mu * mu) / sys.impratio[None]
    # A frictionless contact is written as four equal edges, each a quarter as stiff.
    scale = slides * pyramid + (1.0 - slides) * 4.0
    soft = softness(solref, solimp, sys.dt[None], sys.safe_solref)
    return ContactParameters(friction, weight * scale, soft)


def contact_friction(sys: System, plan: ContactPlan) -> Friction:
    """Only the coefficients of friction and the margins of each point."""
    return _mixed_numbers(sys, plan)[0]


def _mixed_numbers(sys: System, plan: ContactPlan):
    """Friction, whether there is any, `solref` and `solimp` of each point."""
    dynamic = [i for i, pair in enumerate(plan.pairs) if pair[2] < 0]
    explicit = [i for i, pair in enumerate(plan.pairs) if pair[2] >= 0]
    parts = []
    if dynamic:
        parts.append(_mixed(sys, [plan.pairs[i][:2] for i in dynamic]))
    if explicit:
        parts.append(_named(sys, [plan.pairs[i][2] for i in explicit]))
    position = {pair: k for k, pair in enumerate(dynamic + explicit)}
    per_pair = concatenate(parts)
    friction, solref, solimp, margin = take(
        per_pair, [position[i] for i in plan.point_pairs]
    )
    slides = np.array([_condim(sys, plan.pairs[i]) > 1 for i in plan.point_pairs])
    slides = slides.astype(margin.dtype).reshape(-1, *(1 for _ in margin.shape[1:]))
    one, two = (jnp.maximum(mu, 1e-5) * slides for mu in friction)
    return Friction(one, two, margin), slides, solref, solimp


def _condim(sys: System, pair) -> int:
    one, two, explicit = pair
    if explicit >= 0:
        return sys.pairs.condim[explicit]
    geoms = sys.geoms
    if geoms.priority[one] != geoms.priority[two]:
        return geoms.condim[one if geoms.priority[one] > geoms.priority[two] else two]
    return max(geoms.condim[one], geoms.condim[two])


def _mixed(sys: System, pairs):
    geoms = sys.geoms
    columns = lambda x: [x[:, k] for k in range(x.shape[1])]
    values = (geoms.friction[:, 0], columns(geoms.solref), columns(geoms.solimp))
    values += (geoms.solmix, geoms.margin)
    (mu1, ref1, imp1, mix1, margin1), (mu2, ref2, imp2, mix2, margin2) = (
        take(values, [pair[k] for pair in pairs]) for k in (0, 1)
    )
    rank = np.array([geoms.priority[a] - geoms.priority[b] for a, b in pairs])
    rank = rank.reshape(-1, *(1 for _ in mu1.shape[1:]))
    none1, none2 = mix1 < 1e-15, mix2 < 1e-15
    total = jnp.where(none1 & none2, 1.0, mix1 + mix2)
    share = jnp.where(none1 & none2, 0.5, mix1 / total)
    share = jnp.where(rank > 0, 1.0, jnp.where(rank < 0, 0.0, share))
    mix = lambda a, b: share * a + (1.0 - share) * b
    standard = ((ref1[0] > 0.0) & (ref2[0] > 0.0)) | (rank != 0)
    solref = [
        jnp.where(standard, mix(a, b), jnp.minimum(a, b)) for a, b in zip(ref1, ref2)
    ]
    solimp = [mix(a, b) for a, b in zip(imp1, imp2)]
    mu = jnp.where(rank == 0, jnp.maximum(mu1, mu2), mix(mu1, mu2))
    return [mu, mu], solref, solimp, margin1 + margin2


def _named(sys: System, index):
    pairs = sys.pairs
    columns = lambda x, n: [x[:, k] for k in range(n)]
    values = (columns(pairs.friction, 2), columns(pairs.solref, 2))
    values += (columns(pairs.solimp, 5), pairs.margin)
    return take(values, index)


def _pair_weight(sys: System, plan: ContactPlan, link_weights):
    zero = jnp.zeros_like(link_weights[:1])
    padded = concatenate([zero, link_weights])
    ends = []
    for k in (0, 1):
        geoms = [plan.pairs[i][k] for i in plan.point_pairs]
        ends.append(take(padded, [sys.geoms.links[geom] + 1 for geom in geoms]))
    return ends[0] + ends[1]
