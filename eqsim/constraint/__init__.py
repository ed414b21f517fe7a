r"""Constraints: one kind a file, and the convex problem that they make.

A kind of constraint (`AbstractConstraint`) gives rows: a Jacobian, offsets and a cost. The
solver knows rows alone.
"""

from ._all import ALL as ALL
from .contact import (
    Contact as Contact,
    contact_wrenches_in_world as contact_wrenches_in_world,
)
from .contact_rows import (
    contact_dimensions as contact_dimensions,
    contact_friction as contact_friction,
    Friction as Friction,
)
from .costs import (
    AbstractCost as AbstractCost,
    Elliptic as Elliptic,
    Huber as Huber,
    impedance as impedance,
    OneSided as OneSided,
    Pyramid as Pyramid,
    softness as softness,
    stiffness_weight as stiffness_weight,
    TwoSided as TwoSided,
)
from .equalities import Connect as Connect, Weld as Weld
from .joint_rows import (
    ball_rotations as ball_rotations,
    BallLimit as BallLimit,
    JointEquality as JointEquality,
    JointFriction as JointFriction,
    JointLimit as JointLimit,
    limited_balls as limited_balls,
    limited_joints as limited_joints,
    tendon_inertia_rows as tendon_inertia_rows,
    TendonEquality as TendonEquality,
    TendonFriction as TendonFriction,
    TendonInertia as TendonInertia,
    TendonLimit as TendonLimit,
)
from .newton import Newton as Newton
from .record import (
    AbstractConstraint as AbstractConstraint,
    RobotData as RobotData,
)
from .rows import (
    AbstractJacobian as AbstractJacobian,
    AbstractRows as AbstractRows,
    DenseJacobian as DenseJacobian,
    DofJacobian as DofJacobian,
    PointJacobian as PointJacobian,
    Rows as Rows,
    sparse_jacobian as sparse_jacobian,
    SparseJacobian as SparseJacobian,
)
