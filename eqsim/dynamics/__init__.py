"""Dynamics: one algorithm per file."""

from ._algorithms import (
    aba as aba,
    actuator_forces as actuator_forces,
    actuator_states as actuator_states,
    ActuatorStates as ActuatorStates,
    bias_forces as bias_forces,
    centered_inertias as centered_inertias,
    centered_velocities as centered_velocities,
    crba as crba,
    gravity_forces as gravity_forces,
    kinetic_energy as kinetic_energy,
    momentum as momentum,
    passive_forces as passive_forces,
    potential_energy as potential_energy,
    rnea as rnea,
)
