"""Spatial algebra by component.

Conventions, in all of eqsim: quaternions are `(w, x, y, z)`; spatial vectors are
angular first; `q` and `qd` are MuJoCo's `qpos` and `qvel` (free joint: linear velocity
in world axes, angular velocity in body axes). SI units.
"""

from ._matrix6 import (
    full_matrix6 as full_matrix6,
    inverse3 as inverse3,
    Matrix6 as Matrix6,
    solve6 as solve6,
)
from ._rotation import (
    axis_angle_matrix as axis_angle_matrix,
    exponential as exponential,
    integrate as integrate,
    logarithm as logarithm,
    matrix_quaternion as matrix_quaternion,
    multiply as multiply,
    normalize4 as normalize4,
    quaternion_matrix as quaternion_matrix,
    rotation_rate as rotation_rate,
    safe_sqrt as safe_sqrt,
)
from ._spatial import (
    ArticulatedInertia as ArticulatedInertia,
    Force as Force,
    force_at as force_at,
    free_factor as free_factor,
    free_solve as free_solve,
    FreeFactor as FreeFactor,
    Motion as Motion,
    point_stiffness as point_stiffness,
    rigid_inertia as rigid_inertia,
    RigidInertia as RigidInertia,
)
from ._vector import (
    cholesky_factor as cholesky_factor,
    cholesky_solve as cholesky_solve,
    congruence as congruence,
    diagonal as diagonal,
    Mat3 as Mat3,
    matrix_from_columns as matrix_from_columns,
    skew as skew,
    stack as stack,
    Sym3 as Sym3,
    Vec3 as Vec3,
    vec3 as vec3,
)
