r"""The recursive Newton-Euler algorithm: inverse dynamics in O(n).

Outward, velocities and accelerations; inward, forces:
$f_i = I_i a_i + v_i \times^* I_i v_i + \sum_{j \in \mathrm{children}} f_j$ and
$\tau_i = S_i^T f_i$.

Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 5.3.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..kinematics._forward import ascend, descend, joint_motion, velocities
from ..model import check_state, System
from ._articulated import project
from ._passive import armature, external_forces, inertial_forces, Rigid, rigid
from ._tendons import (
    armature_jacobian,
    has_tendon_armature,
    tendon_bias,
    tendon_inertia_times,
)


def rnea(
    sys: System,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external: Float[Array, "nlink 6"] | None = None,
) -> Float[Array, " nv"]:
    r"""Compute joint forces from accelerations (recursive Newton-Euler algorithm).

    $\tau = M(q)\,\ddot q + c(q, \dot q) + g(q) - J^T f_\mathrm{ext}$

    Inertia includes the armature of joints and tendons. Passive forces (springs, damping,
    gravity compensation, fluid drag), actuators and contacts are not subtracted: they
    are part of `tau`.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`, `qdd`: coordinates, velocities, accelerations.
    - `external`: torque (N m) and force (N) on each link at its center of mass, in
        world axes.

    **Returns:** joint forces, N m and N, in the order of `qd`.

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 5.3.
    """
    check_state(sys, q, qd)
    check_shape("qdd", qdd, {"nv": sys.nv})
    if external is not None:
        check_shape("external", external, {"nlink": sys.nlink, "components": 6})
    return _rnea(sys, q, qd, qdd, external)


def bias_forces(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    r"""Compute Coriolis, centrifugal and gravitational forces, $c(q, \dot q) + g(q)$.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** the joint forces at which $\ddot q$ is zero (MuJoCo: `qfrc_bias`), N m and
    N.

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 6.1.
    """
    check_state(sys, q, qd)
    return _bias_forces(sys, q, qd)


def gravity_forces(sys: System, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    r"""Compute the joint forces $g(q)$ that hold the robot still against gravity.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** joint forces, N m and N: the gradient of the gravitational part of
    `potential_energy` along the degrees of freedom.
    """
    check_state(sys, q)
    return _gravity_forces(sys, q)


def _bias_forces_fn(sys, q, qd):
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, qd)
    force = ascend(body.nodes, inertial_forces(body.inertia, speed))
    return project(body.nodes, body.kin, force) + _tendon_forces(sys, body, q, qd, None)


def _gravity_forces_fn(sys, q):
    still = jnp.zeros((sys.nv, *(1 for _ in q.shape[1:])), q.dtype)
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, still)
    force = ascend(body.nodes, inertial_forces(body.inertia, speed))
    return project(body.nodes, body.kin, force)


def _rnea_fn(sys, q, qd, qdd, external):
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, qd)
    motion = descend(body.nodes, joint_motion(body.nodes, body.kin, qdd))
    force = inertial_forces(body.inertia, speed) + (body.inertia @ motion)
    if external is not None:
        force = force - external_forces(sys, *body[:3], external)
    force = ascend(body.nodes, force)
    tau = project(body.nodes, body.kin, force) + armature(sys) * qdd
    return tau + _tendon_forces(sys, body, q, qd, qdd)


def _tendon_forces(sys, body: Rigid, q, qd, qdd):
    """Compute the inertial forces of tendons with armature; zero if there are none."""
    if not has_tendon_armature(sys):
        return 0.0
    jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
    tau = tendon_bias(sys, body.nodes, body.fixed, jac, q, qd)
    return tau if qdd is None else tau + tendon_inertia_times(sys, jac, qdd)


_rnea = batch_last(_rnea_fn)
_bias_forces = batch_last(_bias_forces_fn)
_gravity_forces = batch_last(_gravity_forces_fn)
