"""Test for contact, without solving for forces."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._batching import batch_last, full_batch
from ..kinematics._forward import frames, kinematics
from ..model import check_state, System, tree
from ..model._gather import take
from ._detect import detect
from ._geom_frames import geom_frames, pair_margins
from ._plan import contact_plan


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
    return _clearance(sys, q) < 0.0


def _clearance_fn(sys: System, q):
    """Compute the smallest distance beyond the margin over all points."""
    (q,) = full_batch((q,), sys)
    plan, nodes = contact_plan(sys), tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    points = detect(sys, plan, geom_frames(sys, fixed), kin)
    gap = points.dist - take(pair_margins(sys, plan), plan.point_pairs)
    return jnp.min(jnp.where(points.valid, gap, jnp.inf), axis=0)


_clearance = batch_last(_clearance_fn)
