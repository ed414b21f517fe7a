"""Kinetic and potential energy, and momentum."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from ..kinematics._center_of_mass import center
from ..kinematics._forward import descend, frames, joint_motion, kinematics, link_poses
from ..model import check_state, System, tree
from ..spatial import Vec3, vec3
from ._passive import armature, rigid, spring_energy
from ._tendons import (
    armature_jacobian,
    has_tendon_armature,
    passive_tendons_at,
    tendon_energy,
    tendon_inertia_times,
)


def kinetic_energy(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, ""]:
    r"""Compute the kinetic energy, J.

    $T = \tfrac12 \sum_i v_i^T I_i v_i + \tfrac12 \dot q^T A \dot q
    = \tfrac12 \dot q^T M(q)\,\dot q$, where $A$ is the armature of joints and tendons.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** the energy (MuJoCo: `energy[1]`).
    """
    check_state(sys, q, qd)
    return _kinetic_energy(sys, q, qd)


def potential_energy(sys: System, q: Float[Array, " nq"]) -> Float[Array, ""]:
    r"""Compute the potential energy of gravity and of the springs of joints and tendons,
    J.

    $V = -\sum_i m_i\, g \cdot c_i
    + \tfrac12 \sum_j k_j\, |q_j \ominus q_{\mathrm{spring},j}|^2 + V_\mathrm{tendons}$

    Gravity compensation is counted as a force, not as energy, as in MuJoCo.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** the energy, zero with all mass at the origin of the world (MuJoCo:
    `energy[0]`).
    """
    check_state(sys, q)
    return _potential_energy(sys, q)


def kinetic_energy_of(sys: System, q, qd):
    """Compute the kinetic energy, `(*batch)`; batch axes last."""
    body = rigid(sys, q)
    velocity = descend(body.nodes, joint_motion(body.nodes, body.kin, qd))
    total = jnp.sum(velocity | (body.inertia @ velocity), axis=0)
    total = total + jnp.sum(armature(sys) * qd * qd, axis=0)
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
        total = total + jnp.sum(qd * tendon_inertia_times(sys, jac, qd), axis=0)
    return 0.5 * total


def potential_energy_of(sys: System, q):
    """Compute the potential energy, `(*batch)`; batch axes last."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    pose = link_poses(nodes, fixed, kinematics(sys, nodes, fixed, q))
    gravity = Vec3(*(sys.gravity[k][None] for k in range(3)))
    center = pose.point(vec3(sys.links.com))
    weight = -jnp.sum(sys.links.mass * (center | gravity), axis=0)
    total = weight + spring_energy(sys, q)
    tendons = passive_tendons_at(sys, q)
    if tendons is not None:
        constants, now = tendons
        total = total + tendon_energy(sys, constants, now.length)
    return total


_kinetic_energy = batch_last(kinetic_energy_of)
_potential_energy = batch_last(potential_energy_of)


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
