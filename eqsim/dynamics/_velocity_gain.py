r"""Derivatives of actuator forces by their velocities, $\partial f/\partial\dot\ell$, for
implicit integration."""

import jax.numpy as jnp

from ..kinematics._manifold import dof_joints
from ..model import Bias, Gain, System, Transmission
from ..model._gather import accumulate, concatenate, per_row, put, take
from ._dc_motor import friction_velocity_gain, motor_velocity_gain
from ._force_laws import (
    enabled_rows,
    join_rows,
    law_forces,
    law_inputs,
    law_motors,
    LawInputs,
    Laws,
    laws_of,
    muscle_gain,
)
from ._muscle import active_force_rate
from ._servo import addresses


def law_velocity_gain(sys: System, x: LawInputs, force, tau):
    r"""Compute $\partial f/\partial\dot\ell$: see `velocity_gain`.

    **Arguments:**

    - `force`: forces to which ranges apply.
    - `tau`: joint forces of all actuators.
    """
    facts, actuators = laws_of(sys), sys.actuators
    parts = []
    if facts.scalars:
        parts.append((facts.scalar_outs, _scalar_velocity_gain(sys, facts, x)))
    if facts.orientations:
        gains = [actuators.bias[k, 2][None] for k in facts.orientations for _ in "xyz"]
        gain = concatenate(gains) + jnp.zeros_like(take(force, facts.orientation_outs))
        parts.append((facts.orientation_outs, gain))
    gain = join_rows(parts, sys.nout)
    gain = jnp.where(_saturated(sys, facts, x, force), 0.0, gain)
    if facts.gains[Gain.DC_MOTOR]:
        # Ranges do not limit friction.
        gain = gain + _friction_gain(sys, facts, gain)
    gain = gain * _below_joint_ranges(sys, tau) * _below_tendon_ranges(sys, x)
    return (
        gain
        if all(actuators.enabled)
        else jnp.where(enabled_rows(sys, gain), gain, 0.0)
    )


def _scalar_velocity_gain(sys: System, facts: Laws, x: LawInputs):
    actuators = sys.actuators
    owners = facts.scalars
    velocity = take(x.velocity, facts.scalar_outs)
    scalar = x._replace(length=take(x.length, facts.scalar_outs), velocity=velocity)
    zero = jnp.zeros_like(velocity)
    total = zero
    rows = facts.biases[Bias.AFFINE]
    if rows:
        gain = take(actuators.bias, [owners[i] for i in rows])[:, 2]
        total = total + put(gain + take(zero, rows), rows, len(owners))
    rows = facts.gains[Gain.AFFINE]
    if rows:
        slope = take(actuators.gain, [owners[i] for i in rows])[:, 2]
        slope = slope * law_inputs(sys, facts, rows, scalar, x)
        total = total + put(slope, rows, len(owners))
    rows = facts.gains[Gain.MUSCLE]
    if rows:
        slope = muscle_gain(sys, facts, rows, scalar, active_force_rate)
        slope = slope * law_inputs(sys, facts, rows, scalar, x)
        total = total + put(slope, rows, len(owners))
    rows = facts.gains[Gain.DC_MOTOR]
    if rows:
        motors, places, own = law_motors(sys, facts, rows)
        driven = [actuators.biases[k] is Bias.DC_MOTOR for k in motors.owners]
        assert x.signals.motors is not None, "there are motors"
        gain = motor_velocity_gain(
            motors, places, x.signals.motors, driven, sys.dt[None]
        )
        gain = take(gain + jnp.zeros_like(take(x.velocity, places.outs)), own)
        total = total + put(gain, rows, len(owners))
    return total


def _friction_gain(sys: System, facts: Laws, like):
    rows = facts.gains[Gain.DC_MOTOR]
    motors, places, own = law_motors(sys, facts, rows)
    gain = friction_velocity_gain(motors, places)
    gain = take(gain + jnp.zeros_like(take(like, places.outs)), own)
    return put(gain, [facts.scalar_outs[row] for row in rows], sys.nout)


def _saturated(sys: System, facts: Laws, x: LawInputs, force):
    """Return which forces are at the ends of their ranges."""
    actuators = sys.actuators
    counts = actuators.num_outputs
    owners = [k for k, count in enumerate(counts) for _ in range(count)]
    limited = per_row([actuators.force_limited[k] for k in owners], force) > 0
    bounds = take(actuators.force_range, owners)
    over = (force <= bounds[:, 0]) | (force >= bounds[:, 1])
    if facts.orientations:
        index = facts.orientation_outs
        # Compare torques before they are scaled to the bound: afterwards, rounding decides.
        torque = take(law_forces(sys, x), index)
        torque = torque.reshape(len(index) // 3, 3, *torque.shape[1:])
        square = jnp.sum(torque * torque, axis=1)
        most = take(actuators.force_range, facts.orientations)[:, 1]
        triple = [i for i in range(len(facts.orientations)) for _ in range(3)]
        large = take(square >= most * most, triple)
        kept = [i for i in range(sys.nout) if i not in index]
        over = join_rows([(kept, take(over, kept)), (index, large)], sys.nout)
    return limited & over


def _below_joint_ranges(sys: System, tau):
    """Return 0 for actuators of joints of which the total force is at the end of its
    range, else 1."""
    joints, actuators = sys.joints, sys.actuators
    chosen = [
        (out, joint)
        for out, joint in zip(actuators.out_starts, actuators.joints)
        if joint >= 0 and joints.force_limited[joint]
    ]
    if joints.force_range is None or not chosen:
        return 1.0
    dofs = [joints.v_starts[joint] for _, joint in chosen]
    owners = [dof_joints(joints.kinds)[dof] for dof in dofs]
    return _below(sys, take(tau, dofs), take(joints.force_range, owners), chosen)


def _below_tendon_ranges(sys: System, x: LawInputs):
    """Return 0 for actuators of tendons of which the total force is at the end of its
    range, else 1."""
    tendons, actuators = sys.tendons, sys.actuators
    outs = addresses(actuators.structure).out
    chosen = [
        (outs[k], actuators.targets[k][0])
        for k, kind in enumerate(actuators.transmissions)
        if kind is Transmission.TENDON
        and tendons.actuator_force_limited[actuators.targets[k][0]]
    ]
    if not chosen:
        return 1.0
    pulled = [tendon for _, tendon in chosen]
    own = take(law_forces(sys, x), [out for out, _ in chosen])
    total = take(accumulate(own, pulled, sys.ntendon), pulled)
    return _below(sys, total, take(tendons.actuator_force_range, pulled), chosen)


def _below(sys: System, total, span, chosen: list[tuple[int, int]]):
    """Return 1 for all forces but those `chosen` whose total leaves its range."""
    inside = (total > span[:, 0]) & (total < span[:, 1])
    inside = inside.astype(total.dtype)
    index = [out for out, _ in chosen]
    kept = [out for out in range(sys.nout) if out not in index]
    ones = jnp.ones((len(kept), *inside.shape[1:]), inside.dtype)
    return put(concatenate([inside, ones]), [*index, *kept], sys.nout)
