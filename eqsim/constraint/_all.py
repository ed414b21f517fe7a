"""The kinds of constraints that `Generalized` simulates by default."""

from ._constraint import AbstractConstraint
from ._contact import Contact
from ._equalities import Connect, Weld
from ._joints import BallLimit, JointEquality, JointFriction, JointLimit
from ._tendons import TendonEquality, TendonFriction, TendonLimit


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
