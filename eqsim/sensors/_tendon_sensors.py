"""Sensors of tendons and actuators."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from ..kinematics._tendons import tendon_frames, tendon_kinematics, TendonKinematics
from ..model import SensorKind, System, Transmission, tree
from ..model._gather import take
from ._inputs import SensorInputs
from ._joint_sensors import limit_sensor, Side


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
