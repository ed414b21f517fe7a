r"""Constraints: kinds of constraints, and the convex problem that they make.

A kind of constraint (`AbstractConstraint`) gives rows: a Jacobian, offsets and a cost. The
solver knows rows alone. Reading order:

- `record`: `RobotData`, the record of a robot at one state, and `AbstractConstraint`.
- `rows`, `costs`: rows of the problem; their costs and softness.
- `newton`: MuJoCo's convex problem, Newton's method, and the implicit derivative.
- `noslip`: a second problem, of friction without slip, with the costs of `held_costs`.
- Kinds: `joint_rows` (limits, friction and couplings of joints and tendons), `equalities`
  (connect, weld), `contact` (contacts, on `contact_rows`; those of listed pairs in
  `listed_contacts`; both as the solver visits them in `_contact_solver`).
- `_all`: the kinds that `Generalized` simulates by default. Add a kind here.

Pipelines and sensors may import this package.
"""

from ._all import ALL as ALL
from .contact import Contact as Contact
from .contact_rows import Friction as Friction
from .costs import (
    AbstractCost as AbstractCost,
    Elliptic as Elliptic,
    Huber as Huber,
    impedance as impedance,
    OneSided as OneSided,
    Pyramid as Pyramid,
    softness as softness,
    TwoSided as TwoSided,
)
from .equalities import Connect as Connect, Weld as Weld
from .joint_rows import (
    BallLimit as BallLimit,
    JointEquality as JointEquality,
    JointFriction as JointFriction,
    JointLimit as JointLimit,
    TendonEquality as TendonEquality,
    TendonFriction as TendonFriction,
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
