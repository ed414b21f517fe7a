"""Dynamics: one algorithm per file."""

from ._aba import aba as aba
from ._centered import (
    centered_inertias as centered_inertias,
    centered_velocities as centered_velocities,
)
from ._crba import crba as crba
from ._energy import (
    kinetic_energy as kinetic_energy,
    momentum as momentum,
    potential_energy as potential_energy,
)
from ._joint_forces import (
    actuator_forces as actuator_forces,
    actuator_states as actuator_states,
    ActuatorStates as ActuatorStates,
    passive_forces as passive_forces,
)
from ._rnea import (
    bias_forces as bias_forces,
    gravity_forces as gravity_forces,
    rnea as rnea,
)
