"""Passive forces and actuator forces, as joint forces."""

import equinox as eqx
from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..kinematics._forward import ascend, descend, joint_motion
from ..model import check_state, State, System, Transmission
from ._actuation import actuation_at, actuator_compensation, gravity_compensation
from ._articulated import project
from ._passive import compensation_forces, damping, fluid_forces, rigid, spring_forces
from ._tendons import passive_tendons_at, tendon_forces


def passive_forces(
    sys: System, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    r"""Compute passive forces: springs and damping of joints and tendons, gravity
    compensation, fluid drag.

    $\tau = -k\,(q \ominus q_\mathrm{spring}) - d\,\dot q + J_t^T f_\mathrm{tendons}
    + J^T (f_\mathrm{compensation} + f_\mathrm{fluid})$

    with polynomials in the place of $k$ and $d$ if the joints have them. Gravity
    compensation by actuators, dry friction and limits do not enter.

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

    $\tau = G(q)^T f$, with the moment matrix $G$, and $f$ as defined in `Actuators`, plus
    gravity compensation by actuators, within the force ranges of the joints.

    **Arguments:**

    - `sys`: the robot.
    - `state`: coordinates, velocities and activations.
    - `ctrl`: input of the actuators.

    **Returns:** joint forces (MuJoCo: `qfrc_actuator`), N m and N.

    ??? cite "Reference"
        MuJoCo documentation, *Computation*, "Actuation model".
    """
    return _actuator_forces(*_arguments(sys, state, ctrl))


class ActuatorStates(eqx.Module):
    """Lengths (m or rad, times gear), velocities and forces of actuators; three numbers
    for an actuator on an orientation, one for any other."""

    length: Float[Array, " nout"]
    velocity: Float[Array, " nout"]
    force: Float[Array, " nout"]


def actuator_states(
    sys: System, state: State, ctrl: Float[Array, " nu"]
) -> ActuatorStates:
    """Compute lengths, velocities and forces of the actuators themselves.

    **Arguments:** as of `actuator_forces`.

    **Returns:** MuJoCo's `actuator_length`, `actuator_velocity` and `actuator_force`.
    """
    return ActuatorStates(*_actuator_states(*_arguments(sys, state, ctrl)))


def _arguments(sys: System, state: State, ctrl):
    check_state(sys, state.q, state.qd, ctrl)
    check_shape("act", state.act, {"na": sys.na})
    on_links = [
        name
        for name, kind in zip(sys.actuators.names, sys.actuators.transmissions)
        if kind is Transmission.BODY
    ]
    if on_links:
        raise ValueError(
            f"Actuator {on_links[0]!r} acts through the contacts of a link, which this "
            "function does not know. Take the actuator forces from the pipeline."
        )
    return sys, state.q, state.qd, state.act, ctrl


def _passive_forces_fn(sys, q, qd):
    body = rigid(sys, q)
    nodes, fixed, kin, _ = body
    force = compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        velocity = descend(nodes, joint_motion(nodes, kin, qd))
        force = force + fluid_forces(sys, nodes, fixed, kin, velocity)
    carried = project(nodes, kin, ascend(nodes, force))
    lift = gravity_compensation(sys, nodes, fixed, kin)
    if lift is not None:
        carried = carried - actuator_compensation(sys, lift)
    tau = carried + spring_forces(sys, q) + damping(sys).force(qd)
    tendons = passive_tendons_at(sys, q)
    return tau if tendons is None else tau + tendon_forces(sys, *tendons, qd)


def _actuator_forces_fn(sys, q, qd, act, ctrl):
    return actuation_at(sys, q, qd, act, ctrl).tau


def _actuator_states_fn(sys, q, qd, act, ctrl):
    now = actuation_at(sys, q, qd, act, ctrl)
    return now.length, now.velocity, now.force


_passive_forces = batch_last(_passive_forces_fn)
_actuator_forces = batch_last(_actuator_forces_fn)
_actuator_states = batch_last(_actuator_states_fn)
