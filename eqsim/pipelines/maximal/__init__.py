"""Pipelines in maximal coordinates: every link moves freely, joints are constraints.

`Spring` (stiff springs with impulses) and `Positional` (extended position-based dynamics)
are fast methods that respect a part of the model; `check_model` lists what they refuse. A
step begins with forward kinematics from joint coordinates and ends with the projection to
them, so states and derivatives mean the same as in `Generalized`.

Files in reading order: `_rigid_bodies` (bodies, their inverse inertia, models that are
refused), `_joints` (joints as constraints), `_impulses` (contacts, and the removal of
violations after a step), `_pipelines` (the step, and the two pipelines). Nothing outside
of `eqsim.pipelines` imports this package.
"""

from ._pipelines import Positional as Positional, Spring as Spring
from ._rigid_bodies import PreparedBodies as PreparedBodies
