"""Kinematics: poses, velocities, Jacobians, coordinates, paths of tendons.

`link_motion` computes poses and velocities from the roots of the tree to its leaves, with
the recursions that all physics uses; `coordinates` adds velocities to coordinates;
`frames` has the public functions of links, sites and the center of mass; `tendon_paths`
computes lengths of tendons, with the geometry of strings around spheres and cylinders in
`_wrapping`. Dynamics and all packages above may import this one.
"""

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
