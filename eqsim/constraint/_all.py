"""The kinds of constraints that `Generalized` simulates by default."""

from .contact import Contact
from .equalities import Connect, Weld
from .joint_rows import (
    BallLimit,
    JointEquality,
    JointFriction,
    JointLimit,
    TendonEquality,
    TendonFriction,
    TendonLimit,
)
from .record import AbstractConstraint


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
