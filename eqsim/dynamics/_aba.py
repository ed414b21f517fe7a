"""The articulated-body algorithm: forward dynamics in O(n), without constraints."""

from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..kinematics._forward import velocities
from ..model import check_state, System
from ._articulated import factor, solve
from ._passive import armature, external_forces, inertial_forces, rigid
from ._tendons import (
    apply_updates,
    armature_jacobian,
    armature_updates,
    has_tendon_armature,
    tendon_bias,
)


def aba(
    sys: System,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    external: Float[Array, "nlink 6"] | None = None,
) -> Float[Array, " nv"]:
    r"""Compute joint accelerations from joint forces (articulated-body algorithm).

    Solves $M(q)\,\ddot q + c(q, \dot q) + g(q) = \tau + J^T f_\mathrm{ext}$, and so is
    the inverse of `rnea`. Inertia includes the armature of joints and tendons. Passive forces
    and actuators must be in `tau`, for instance by `passive_forces` and
    `actuator_forces`; contacts, limits and dry friction do not enter (see
    `Generalized.acceleration`).

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.
    - `tau`: joint forces, N m and N, in the order of `qd`.
    - `external`: torque (N m) and force (N) on each link at its center of mass, in
        world axes.

    **Returns:** joint accelerations, rad/s$^2$ and m/s$^2$.

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 7.3.
    """
    check_state(sys, q, qd)
    check_shape("tau", tau, {"nv": sys.nv})
    if external is not None:
        check_shape("external", external, {"nlink": sys.nlink, "components": 6})
    return _aba(sys, q, qd, tau, external)


def _aba_fn(sys, q, qd, tau, external):
    body = rigid(sys, q)
    speed = velocities(sys, body.nodes, body.kin, qd)
    force = -inertial_forces(body.inertia, speed)
    if external is not None:
        force = force + external_forces(sys, *body[:3], external)
    factored = factor(body.nodes, body.kin, body.inertia, armature(sys))
    if not has_tendon_armature(sys):
        return solve(body.nodes, body.kin, factored, tau, force)[0]
    jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
    tau = tau - tendon_bias(sys, body.nodes, body.fixed, jac, q, qd)
    invert = lambda b: solve(body.nodes, body.kin, factored, b, None)
    updates = armature_updates(sys, jac, invert)
    return apply_updates(updates, *solve(body.nodes, body.kin, factored, tau, force))[0]


_aba = batch_last(_aba_fn)
