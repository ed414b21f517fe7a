r"""Constraints: one kind a file, and the convex problem that they make.

A kind of constraint (`AbstractConstraint`) gives rows: a Jacobian, offsets and a cost. The
solver knows rows alone.
"""

from ._all import ALL as ALL
from ._cones import Elliptic as Elliptic, Pyramid as Pyramid
from ._connect import Connect as Connect
from ._constraint import AbstractConstraint as AbstractConstraint, Moment as Moment
from ._contact import (
    Contact as Contact,
    contact_wrenches_in_world as contact_wrenches_in_world,
)
from ._contact_parameters import (
    contact_dimensions as contact_dimensions,
    contact_friction as contact_friction,
    Friction as Friction,
)
from ._costs import (
    AbstractCost as AbstractCost,
    Huber as Huber,
    OneSided as OneSided,
    TwoSided as TwoSided,
)
from ._jacobians import (
    AbstractJacobian as AbstractJacobian,
    DenseJacobian as DenseJacobian,
    DofJacobian as DofJacobian,
    PointJacobian as PointJacobian,
    sparse_jacobian as sparse_jacobian,
    SparseJacobian as SparseJacobian,
)
from ._joint_equality import JointEquality as JointEquality
from ._joint_friction import JointFriction as JointFriction
from ._joint_limit import (
    ball_rotations as ball_rotations,
    BallLimit as BallLimit,
    JointLimit as JointLimit,
    limited_balls as limited_balls,
    limited_joints as limited_joints,
)
from ._newton import Newton as Newton
from ._rows import AbstractRows as AbstractRows, Rows as Rows
from ._softness import (
    impedance as impedance,
    softness as softness,
    stiffness_weight as stiffness_weight,
)
from ._tendon_equality import TendonEquality as TendonEquality
from ._tendon_friction import TendonFriction as TendonFriction
from ._tendon_inertia import tendon_inertia_rows as tendon_inertia_rows
from ._tendon_limit import TendonLimit as TendonLimit
from ._weld import Weld as Weld
