"""Test for contact, without solving for forces."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._batching import batch_last, full_batch
from ..kinematics._forward import frames, kinematics
from ..model import check_state, System, tree
from ..model._gather import take
from ._detect import detect
from ._geom_frames import pair_margins, split_frames
from ._pair_lists import list_contacts
from ._plan import contact_plan, split_plan


def in_contact(sys: System, q: Float[Array, " nq"]) -> Bool[Array, ""]:
    """Return whether any two shapes are closer than their margin (MuJoCo: `ncon > 0`).

    For drawing first states without contact. Only collisions are computed. In a
    `lax.while_loop`, carry the result: under `vmap` a condition is computed twice, and
    rounding may decide differently where shapes just touch.

    **Arguments:**

    - `sys`: the robot. Pairs of shapes that cannot touch are left out, as in a step.
    - `q`: coordinates.
    """
    check_state(sys, q)
    if not contact_plan(sys).size:
        return jnp.zeros((), bool)
    return _touches(sys, q)


def _touches_fn(sys: System, q):
    (q,) = full_batch((q,), sys)
    nodes, (plan, listed) = tree(sys), split_plan(sys)
    fixed = frames(sys, nodes)
    kin, geoms = kinematics(sys, nodes, fixed, q), split_frames(sys, fixed)
    touches = jnp.zeros(q.shape[1:], bool)
    if plan.size:
        points = detect(sys, plan, geoms, kin)
        margin = take(pair_margins(sys, plan), plan.point_pairs)
        touches |= jnp.any(points.valid & (points.dist < margin), axis=0)
    if listed is not None:
        assert geoms.listed is not None, "listed pairs have frames"
        contacts = list_contacts(sys, listed, geoms.listed, kin, None).contacts
        for own in contacts.values():
            touches |= own.count > 0
    return touches


_touches = batch_last(_touches_fn)
