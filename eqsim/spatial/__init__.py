"""Spatial algebra by component: one array per scalar.

`vectors` holds vectors, matrices, motions, forces and inertias, `rotations` quaternions and
rotation vectors with finite derivatives at the identity, `_clamps` bounds with one-sided
derivatives. Read them in this order. All packages above may import this one; it imports no
other.

Conventions, in all of eqsim: quaternions are `(w, x, y, z)`; spatial vectors are
angular first; `q` and `qd` are MuJoCo's `qpos` and `qvel` (free joint: linear velocity
in world axes, angular velocity in body axes). SI units.
"""

from ._clamps import (
    at_least as at_least,
    at_most as at_most,
    clamp as clamp,
    outside as outside,
    positive_part as positive_part,
)
from .rotations import (
    axis_angle_matrix as axis_angle_matrix,
    exponential as exponential,
    integrate as integrate,
    logarithm as logarithm,
    matrix_quaternion as matrix_quaternion,
    multiply as multiply,
    quaternion_matrix as quaternion_matrix,
    safe_sqrt as safe_sqrt,
)
from .vectors import (
    ArticulatedInertia as ArticulatedInertia,
    Force as Force,
    force_at as force_at,
    Mat3 as Mat3,
    Motion as Motion,
    rigid_inertia as rigid_inertia,
    RigidInertia as RigidInertia,
    skew as skew,
    Sym3 as Sym3,
    Vec3 as Vec3,
    vec3 as vec3,
)
