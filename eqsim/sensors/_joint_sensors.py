"""Sensors of joints, tendons and actuators: coordinates, velocities and forces."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..constraint.joint_rows import ball_rotations, limited_balls, limited_joints
from ..kinematics.tendon_paths import tendon_frames, tendon_kinematics, TendonKinematics
from ..model import JointKind, SensorKind, System, Transmission, tree
from ..model.arrays import take
from ..spatial import Vec3
from ..spatial.clamps import at_least
from ..spatial.rotations import normalize4
from .sensor_inputs import SensorInputs


def _joints(sys: System, chosen: Sequence[int]) -> list[int]:
    return [sys.sensors.objects[k][1] for k in chosen]


def _at_dofs(sys: System, values, chosen: Sequence[int], width: int):
    """Return `width` values for each joint, starting at its first degree of freedom."""
    starts = [sys.joints.v_starts[j] for j in _joints(sys, chosen)]
    return jnp.stack([take(values, [s + k for s in starts]) for k in range(width)], 1)


def joint_positions(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return coordinates of hinges and slides, `(n, 1, *batch)`."""
    return take(now.data.q, [sys.joints.q_starts[j] for j in _joints(sys, chosen)])[
        :, None
    ]


def joint_velocities(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return velocities of hinges and slides, `(n, 1, *batch)`."""
    return _at_dofs(sys, now.data.qd, chosen, 1)


def joint_actuator_forces(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return the actuator forces on hinges and slides, `(n, 1, *batch)`."""
    return _at_dofs(sys, now.data.drive.tau, chosen, 1)


def ball_quaternions(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return orientations of ball joints, `(n, 4, *batch)`."""
    starts = [sys.joints.q_starts[j] for j in _joints(sys, chosen)]
    quat = [take(now.data.q, [s + k for s in starts]) for k in range(4)]
    return jnp.stack(normalize4(quat), axis=1)


def ball_velocities(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return angular velocities of ball joints, `(n, 3, *batch)`."""
    return _at_dofs(sys, now.data.qd, chosen, 3)


class Side(NamedTuple):
    """One side of a limit, `(1, *batch)`.

    - `gap`: distance to the limit minus margin; negative if the limit is active.
    - `rate`: rate of the gap.
    - `force`: force of the limit; None if nothing has been solved.
    """

    gap: Any
    rate: Any
    force: Any


def first_active(sides: Sequence[Side], value: Callable[[Side], Any]):
    """Return the value of the first active side, else zero."""
    total = jnp.zeros_like(sides[0].gap)
    for side in reversed(sides):
        total = jnp.where(side.gap < 0.0, value(side), total)
    return total


def limit_sensor(sides: Callable, value: Callable[[Side], Any]) -> Callable:
    """Return the function that computes one property of limits, `(n, 1, *batch)`."""

    def sensor(sys: System, now: SensorInputs, chosen: Sequence[int]):
        rows = []
        for k in chosen:
            found = sides(sys, now, sys.sensors.objects[k][1])
            zero = jnp.zeros_like(now.data.q[:1])
            rows.append(first_active(found, value) if found else zero)
        return jnp.stack(rows)

    return sensor


def _joint_sides(sys: System, now: SensorInputs, joint: int) -> list[Side]:
    joints = sys.joints
    if not joints.limited[joint]:
        return []
    range_, margin = take((joints.range, joints.limit_margin), [joint])
    low, high = range_[:, 0], range_[:, 1]
    at, dof = joints.q_starts[joint], joints.v_starts[joint]
    forces = None if now.solved is None else now.solved.limits
    row = lambda force, which: None if force is None else take(force, [which])
    if joints.kinds[joint] is JointKind.SPHERICAL:
        axis, angle = ball_rotations(sys, [joint], now.data.q)
        spin = Vec3(*(now.data.qd[dof + k : dof + k + 1] for k in range(3)))
        which = limited_balls(sys).joints.index(joint)
        gap = at_least(low, high) - angle - margin
        return [Side(gap, -axis.dot(spin), forces and row(forces.balls, which))]
    position, rate = now.data.q[at : at + 1], now.data.qd[dof : dof + 1]
    which = limited_joints(sys).joints.index(joint)
    return [
        Side(position - low - margin, rate, forces and row(forces.below, which)),
        Side(high - position - margin, -rate, forces and row(forces.above, which)),
    ]


JOINT_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.JOINT_POSITION: joint_positions,
    SensorKind.JOINT_VELOCITY: joint_velocities,
    SensorKind.JOINT_ACTUATOR_FORCE: joint_actuator_forces,
    SensorKind.BALL_QUATERNION: ball_quaternions,
    SensorKind.BALL_VELOCITY: ball_velocities,
    SensorKind.JOINT_LIMIT_POSITION: limit_sensor(_joint_sides, lambda s: s.gap),
    SensorKind.JOINT_LIMIT_VELOCITY: limit_sensor(_joint_sides, lambda s: s.rate),
    SensorKind.JOINT_LIMIT_FORCE: limit_sensor(_joint_sides, lambda s: s.force),
}


def _tendons(sys: System, now: SensorInputs, chosen: Sequence[int]) -> TendonKinematics:
    """Compute lengths and Jacobian of the tendons of sensors."""
    marks = [False] * sys.ntendon
    for k in chosen:
        marks[sys.sensors.objects[k][1]] = True
    local = tendon_frames(sys, now.data.fixed)
    return tendon_kinematics(
        sys, tree(sys), local, now.data.kin, now.data.q, tuple(marks)
    )


def _of_sensors(sys: System, values, chosen: Sequence[int]):
    return take(values, [sys.sensors.objects[k][1] for k in chosen])[:, None]


def tendon_positions(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute lengths of tendons, `(n, 1, *batch)`."""
    return _of_sensors(sys, _tendons(sys, now, chosen).length, chosen)


def tendon_velocities(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute rates of the lengths of tendons, `(n, 1, *batch)`."""
    jac = _tendons(sys, now, chosen).jac
    return _of_sensors(sys, jnp.sum(jac * now.data.qd[None], axis=1), chosen)


def tendon_actuator_forces(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the sums of actuator forces on tendons, `(n, 1, *batch)`."""
    force, actuators = now.data.drive.force, sys.actuators
    rows = []
    for k in chosen:
        own = [
            actuators.out_starts[i]
            for i, kind in enumerate(actuators.transmissions)
            if kind is Transmission.TENDON
            and actuators.targets[i][0] == sys.sensors.objects[k][1]
        ]
        total = jnp.zeros_like(now.data.q[:1])
        rows.append(total + jnp.sum(take(force, own), axis=0) if own else total)
    return jnp.stack(rows)


def _tendon_sides(sys: System, now: SensorInputs, tendon: int) -> list[Side]:
    tendons = sys.tendons
    if not tendons.limited[tendon]:
        return []
    marks = tuple(k == tendon for k in range(sys.ntendon))
    local = tendon_frames(sys, now.data.fixed)
    found = tendon_kinematics(sys, tree(sys), local, now.data.kin, now.data.q, marks)
    length, jac = take((found.length, found.jac), [tendon])
    rate = jnp.sum(jac * now.data.qd[None], axis=1)
    range_, margin = take((tendons.range, tendons.limit_margin), [tendon])
    # MuJoCo ignores the limit of a tendon whose length does not depend on any joint.
    moves = jnp.any(jac != 0.0, axis=1)
    gap = lambda distance: jnp.where(moves, distance - margin, 0.0)
    below, above = None, None
    if now.solved is not None and now.solved.limits.tendons_below is not None:
        which = [k for k, mark in enumerate(tendons.limited) if mark].index(tendon)
        limits = now.solved.limits
        below, above = take((limits.tendons_below, limits.tendons_above), [which])
    return [
        Side(gap(length - range_[:, 0]), rate, below),
        Side(gap(range_[:, 1] - length), -rate, above),
    ]


def _outputs(values, sys: System, chosen: Sequence[int]):
    """Return the values of the forces of actuators, one array per sensor."""
    starts, counts = sys.actuators.out_starts, sys.actuators.num_outputs
    index = [sys.sensors.objects[k][1] for k in chosen]
    return [values[starts[i] : starts[i] + counts[i]] for i in index]


def actuator_positions(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return lengths of actuators."""
    return _outputs(now.data.drive.length, sys, chosen)


def actuator_velocities(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return velocities of actuators."""
    return _outputs(now.data.drive.velocity, sys, chosen)


def actuator_forces(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return forces of actuators."""
    return _outputs(now.data.drive.force, sys, chosen)


TENDON_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.TENDON_POSITION: tendon_positions,
    SensorKind.TENDON_VELOCITY: tendon_velocities,
    SensorKind.TENDON_ACTUATOR_FORCE: tendon_actuator_forces,
    SensorKind.TENDON_LIMIT_POSITION: limit_sensor(_tendon_sides, lambda s: s.gap),
    SensorKind.TENDON_LIMIT_VELOCITY: limit_sensor(_tendon_sides, lambda s: s.rate),
    SensorKind.TENDON_LIMIT_FORCE: limit_sensor(_tendon_sides, lambda s: s.force),
}

ACTUATOR_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.ACTUATOR_POSITION: actuator_positions,
    SensorKind.ACTUATOR_VELOCITY: actuator_velocities,
    SensorKind.ACTUATOR_FORCE: actuator_forces,
}
