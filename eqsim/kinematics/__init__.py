"""Kinematics: poses, velocities, Jacobians, coordinates, tendons."""

from .coordinates import difference as difference, integrate as integrate
from .frames import (
    center_of_mass as center_of_mass,
    com_jacobian as com_jacobian,
    com_velocity as com_velocity,
    forward as forward,
    forward_velocity as forward_velocity,
    jacobian as jacobian,
    LinkPoses as LinkPoses,
    LinkVelocities as LinkVelocities,
    site_jacobian as site_jacobian,
    site_poses as site_poses,
    SitePoses as SitePoses,
)
from .tendon_paths import (
    tendon_jacobian as tendon_jacobian,
    tendon_lengths as tendon_lengths,
    tendon_velocities as tendon_velocities,
)
