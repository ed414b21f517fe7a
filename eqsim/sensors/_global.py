"""Sensors of the whole system: energies and time."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from ..dynamics._energy import kinetic_energy_of, potential_energy_of
from ..model import SensorKind, System
from ._inputs import SensorInputs


def potential_energies(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the potential energy, `(n, 1, *batch)`."""
    return jnp.stack(len(chosen) * [potential_energy_of(sys, now.data.q)[None]])


def kinetic_energies(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the kinetic energy, `(n, 1, *batch)`."""
    return jnp.stack(
        len(chosen) * [kinetic_energy_of(sys, now.data.q, now.data.qd)[None]]
    )


def clocks(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return the time, `(n, 1, *batch)`."""
    return jnp.stack(len(chosen) * [now.time[None] + jnp.zeros_like(now.data.q[:1])])


GLOBAL_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.POTENTIAL_ENERGY: potential_energies,
    SensorKind.KINETIC_ENERGY: kinetic_energies,
    SensorKind.CLOCK: clocks,
}
