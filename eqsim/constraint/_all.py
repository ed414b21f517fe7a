"""The kinds of constraints that `Generalized` simulates by default."""

from ._connect import Connect
from ._constraint import AbstractConstraint
from ._contact import Contact
from ._joint_equality import JointEquality
from ._joint_friction import JointFriction
from ._joint_limit import BallLimit, JointLimit
from ._tendon_equality import TendonEquality
from ._tendon_friction import TendonFriction
from ._tendon_limit import TendonLimit
from ._weld import Weld


ALL: tuple[AbstractConstraint, ...] = (
    Contact(),
    JointLimit(),
    BallLimit(),
    JointFriction(),
    Connect(),
    Weld(),
    JointEquality(),
    TendonLimit(),
    TendonFriction(),
    TendonEquality(),
)
"""All kinds of constraints of MuJoCo."""
