"""Momentum of a system."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from ..kinematics._center_of_mass import center
from ..kinematics._forward import descend, joint_motion
from ..model import check_state, System
from ._passive import rigid


def momentum(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, "6"]:
    r"""Compute angular momentum about the center of mass, and linear momentum.

    $L = \sum_i \left( R_i I_i R_i^T \omega_i + m_i\,(c_i - c) \times v_i \right),
    \qquad p = \sum_i m_i v_i$

    Links that cannot move, and armature, have none. Both are conserved if the root of
    every tree is a free joint without armature and no external force acts.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** angular (kg m$^2$/s), then linear (kg m/s), in world axes (MuJoCo:
    `subtree_angmom`, and mass times `subtree_linvel`, of the world).

    ??? cite "Reference"
        Orin, Goswami, Lee, *Centroidal dynamics of a humanoid robot*, 2013.
    """
    check_state(sys, q, qd)
    return _momentum(sys, q, qd)


def _momentum_fn(sys, q, qd):
    body = rigid(sys, q)
    velocity = descend(body.nodes, joint_motion(body.nodes, body.kin, qd))
    each = body.inertia @ velocity
    arm = body.kin.origin - center(sys, body.nodes, body.fixed, body.kin)
    ang = each.ang + (arm ^ each.lin)
    return jnp.stack([jnp.sum(x, axis=0) for x in (*ang, *each.lin)])


_momentum = batch_last(_momentum_fn)
