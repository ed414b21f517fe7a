"""Dynamics without constraints: inertia, forces, actuators.

Reading order:

- `articulated`: inertias of the nodes, and the articulated-body algorithm as a linear
  solver; `joint_space`: the joint-space matrix entry by entry.
- `algorithms`: the public textbook algorithms (`rnea`, `crba`, `aba`, energy, momentum).
- `passive`, `fluid`, `tendon_forces`: springs, damping, gravity compensation, fluid
  forces, tendons.
- `actuation`: actuators as a whole, on `transmission` (lengths and moments),
  `actuator_slots` (places in `ctrl` and `act`), `force_laws`, `motors`, and
  `attached_models` (models that users attach).
- `velocity_derivatives`: derivatives of all these forces, for implicit integrators.
- `weights`: inverse weights at the reference pose.

Collision, constraints, pipelines and sensors may import this package.
"""

from .algorithms import (
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
