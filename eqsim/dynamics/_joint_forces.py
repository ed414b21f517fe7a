"""Passive forces and actuator forces, as joint forces."""

from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..kinematics._forward import joint_motion
from ..kinematics._recursion import ascend, descend
from ..model import check_state, State, System
from ._actuation import actuation
from ._articulated import project
from ._passive import compensation_forces, fluid_forces, spring_forces
from ._rigid import rigid
from ._tendons import tendon_forces, passive_tendons_at


def passive_forces(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    r"""Compute passive forces: springs and damping of joints and tendons, gravity
    compensation, fluid drag.

    $\tau = -k\,(q \ominus q_\mathrm{spring}) - d\,\dot q + J_t^T f_\mathrm{tendons}
    + J^T (f_\mathrm{compensation} + f_\mathrm{fluid})$

    Dry friction and limits are constraints and do not enter.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`: coordinates and velocities.

    **Returns:** joint forces (MuJoCo: `qfrc_passive`), N m and N.

    ??? cite "Reference"
        MuJoCo documentation, *Computation*, "Passive forces".
    """
    check_state(sys, q, qd)
    return _passive_forces(sys, q, qd)


def actuator_forces(
    sys: System, state: State, ctrl: Float[Array, " nu"]
) -> Float[Array, " nv"]:
    r"""Compute the joint forces of all actuators.

    $\tau = G(q)^T f$, with the moment matrix $G$, and $f$ as defined in `Actuators`.

    **Arguments:**

    - `sys`: the robot.
    - `state`: coordinates, velocities and activations.
    - `ctrl`: input of the actuators.

    **Returns:** joint forces (MuJoCo: `qfrc_actuator`), N m and N.

    ??? cite "Reference"
        MuJoCo documentation, *Computation*, "Actuation model".
    """
    check_state(sys, state.q, state.qd, ctrl)
    check_shape("act", state.act, {"na": sys.na})
    return _actuator_forces(sys, state.q, state.qd, state.act, ctrl)


def _passive_forces_fn(sys, q, qd):
    body = rigid(sys, q)
    nodes, fixed, kin, _ = body
    force = compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        velocity = descend(nodes, joint_motion(nodes, kin, qd))
        force = force + fluid_forces(sys, nodes, fixed, kin, velocity)
    carried = project(nodes, kin, ascend(nodes, force))
    tau = carried + spring_forces(sys, q) - sys.joints.damping * qd
    tendons = passive_tendons_at(sys, q)
    return tau if tendons is None else tau + tendon_forces(sys, *tendons, qd)


def _actuator_forces_fn(sys, q, qd, act, ctrl):
    return actuation(sys, q, qd, act, ctrl).tau


_passive_forces = batch_last(_passive_forces_fn)
_actuator_forces = batch_last(_actuator_forces_fn)
