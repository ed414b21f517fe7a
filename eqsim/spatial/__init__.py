"""Spatial algebra by component: one array per scalar.

`vectors` holds vectors, matrices, motions, forces and inertias, `rotations` quaternions and
rotation vectors with finite derivatives at the identity, `clamps` bounds with one-sided
derivatives. Read them in this order. All packages above may import this one; it imports no
other.

Conventions, in all of eqsim: quaternions are `(w, x, y, z)`; spatial vectors are
angular first; `q` and `qd` are MuJoCo's `qpos` and `qvel` (free joint: linear velocity
in world axes, angular velocity in body axes). SI units.
"""

from .clamps import clamp as clamp, outside as outside, positive_part as positive_part
from .rotations import (
    exponential as exponential,
    integrate as integrate,
    logarithm as logarithm,
    multiply as multiply,
    quaternion_matrix as quaternion_matrix,
    safe_sqrt as safe_sqrt,
)
from .vectors import Force as Force, Mat3 as Mat3, Motion as Motion, Vec3 as Vec3
