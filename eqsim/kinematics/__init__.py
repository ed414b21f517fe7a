"""Kinematics: poses, velocities, Jacobians, coordinates."""

from ._center_of_mass import (
    center_of_mass as center_of_mass,
    com_jacobian as com_jacobian,
    com_velocity as com_velocity,
)
from ._jacobian import jacobian as jacobian
from ._manifold import difference as difference, integrate as integrate
from ._poses import (
    forward as forward,
    forward_velocity as forward_velocity,
    LinkPoses as LinkPoses,
    LinkVelocities as LinkVelocities,
)
