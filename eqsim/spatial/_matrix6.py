"""General 6x6 matrices from motions to forces, by blocks."""

# The operators of these tuples are those of algebra.
# pyright: reportIncompatibleMethodOverride=false

from typing import NamedTuple

from ._vector import (
    ArticulatedInertia,
    Force,
    Mat3,
    matrix_from_columns,
    Motion,
    skew,
    Sym3,
    Vec3,
)


class Matrix6(NamedTuple):
    r"""A matrix $\begin{pmatrix} A & B \\ C & D \end{pmatrix}$ that maps motions to forces.

    - `ang`: $A$, moment by angular velocity.
    - `ang_lin`: $B$, moment by linear velocity.
    - `lin_ang`: $C$, force by angular velocity.
    - `lin`: $D$, force by linear velocity.
    """

    ang: Mat3
    ang_lin: Mat3
    lin_ang: Mat3
    lin: Mat3

    def __matmul__(self, v: Motion) -> Force:
        return Force(
            (self.ang @ v.ang) + (self.ang_lin @ v.lin),
            (self.lin_ang @ v.ang) + (self.lin @ v.lin),
        )

    def __add__(self, other: "Matrix6") -> "Matrix6":
        return Matrix6(*(a + b for a, b in zip(self, other, strict=True)))

    def __mul__(self, scale) -> "Matrix6":
        return Matrix6(*(block * scale for block in self))

    @property
    def T(self) -> "Matrix6":
        """The transpose."""
        return Matrix6(self.ang.T, self.lin_ang.T, self.ang_lin.T, self.lin.T)

    def symmetric(self) -> ArticulatedInertia:
        """Return the symmetric part."""
        half = lambda block: Sym3.of((block + block.T) * 0.5)
        cross = (self.ang_lin + self.lin_ang.T) * 0.5
        return ArticulatedInertia(half(self.ang), cross, half(self.lin))

    def rotated(self, rot: Mat3) -> "Matrix6":
        """Return the matrix in axes that are turned by `rot`."""
        return Matrix6(*((rot @ block) @ rot.T for block in self))

    def moved(self, point: Vec3) -> "Matrix6":
        """Return the matrix about the origin; this one is about `point`."""
        arm = skew(point)
        lin_ang = self.lin_ang - (self.lin @ arm)
        ang_lin = self.ang_lin + (arm @ self.lin)
        ang = self.ang - (self.ang_lin @ arm) + (arm @ lin_ang)
        return Matrix6(ang, ang_lin, lin_ang, self.lin)


def full_matrix6(inertia: ArticulatedInertia) -> Matrix6:
    """Return a symmetric matrix with all its entries."""
    ang, cross, lin = inertia
    return Matrix6(ang.full(), cross, cross.T, lin.full())


def inverse3(matrix: Mat3) -> Mat3:
    """Compute the inverse of a general 3x3 matrix by cofactors."""
    x, y, z = matrix.rows
    a, b, c = y ^ z, z ^ x, x ^ y
    return matrix_from_columns(a, b, c) * (1.0 / (x | a))


def solve6(matrix: Matrix6, force: Force) -> Motion:
    """Solve $K V = F$ for a general matrix of which the block `lin`, which holds the mass,
    is well conditioned."""
    ang, ang_lin, lin_ang, lin = matrix
    inverse = inverse3(lin)
    ratio = ang_lin @ inverse
    schur = ang - (ratio @ lin_ang)
    spin = inverse3(schur) @ (force.ang - (ratio @ force.lin))
    return Motion(spin, inverse @ (force.lin - (lin_ang @ spin)))
