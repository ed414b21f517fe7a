"""Spatial vectors (Featherstone 2008, ch. 2) by component, angular part first.

All are expressed in world axes about one point per tree, at rest in the world. So
nothing is transformed between a link and its parent: forces and inertias add up as
they are.
"""

# The operators of these tuples are those of algebra.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any, NamedTuple

import jax.numpy as jnp

from ._vector import (
    cholesky_factor,
    cholesky_solve,
    diagonal,
    Mat3,
    matrix_from_columns,
    skew,
    Sym3,
    Vec3,
)


class Motion(NamedTuple):
    """Velocity or acceleration: of rotation, and of the point at the origin."""

    ang: Vec3
    lin: Vec3

    def __add__(self, other: "Motion") -> "Motion":
        return Motion(self.ang + other.ang, self.lin + other.lin)

    def __sub__(self, other: "Motion") -> "Motion":
        return Motion(self.ang - other.ang, self.lin - other.lin)

    def __mul__(self, scale) -> "Motion":
        return Motion(self.ang * scale, self.lin * scale)

    def __or__(self, force: "Force"):
        return (self.ang | force.ang) + (self.lin | force.lin)

    def cross(self, other: "Motion") -> "Motion":
        r"""$V \times M$: the rate of a motion vector that moves along."""
        ang, lin = self
        return Motion(ang ^ other.ang, (ang ^ other.lin) + (lin ^ other.ang))

    def cross_dual(self, force: "Force") -> "Force":
        r"""$V \times^* F$: the rate of a force vector that moves along."""
        ang, lin = self
        return Force((ang ^ force.ang) + (lin ^ force.lin), ang ^ force.lin)

    def at(self, point: Vec3) -> Vec3:
        """The linear part at `point`."""
        return self.lin + (self.ang ^ point)


class Force(NamedTuple):
    """A force and its moment about the origin; also momentum."""

    ang: Vec3
    lin: Vec3

    def __add__(self, other: "Force") -> "Force":
        return Force(self.ang + other.ang, self.lin + other.lin)

    def __sub__(self, other: "Force") -> "Force":
        return Force(self.ang - other.ang, self.lin - other.lin)

    def __neg__(self) -> "Force":
        return Force(-self.ang, -self.lin)

    def __mul__(self, scale) -> "Force":
        return Force(self.ang * scale, self.lin * scale)


def force_at(point: Vec3, force: Vec3) -> Force:
    """A force that acts at a point."""
    return Force(point ^ force, force)


class RigidInertia(NamedTuple):
    """Inertia of a rigid body: mass, first moment, second moment about the origin."""

    mass: Any
    moment: Vec3
    ang: Sym3

    def __matmul__(self, v: Motion) -> Force:
        h = self.moment
        return Force(
            (self.ang @ v.ang) + (h ^ v.lin),
            (v.lin * self.mass) - (h ^ v.ang),
        )

    def articulated(self) -> "ArticulatedInertia":
        """The same as a general symmetric 6x6 matrix."""
        zero = jnp.zeros_like(self.mass)
        lin = Sym3(self.mass, self.mass, self.mass, zero, zero, zero)
        return ArticulatedInertia(self.ang, skew(self.moment), lin)


def rigid_inertia(mass, com: Vec3, rotational: Sym3) -> RigidInertia:
    """From mass, center of mass and the inertia about it, all in world axes."""
    h = com * mass
    square = com | h
    outer = Sym3(
        h.x * com.x, h.y * com.y, h.z * com.z, h.x * com.y, h.x * com.z, h.y * com.z
    )
    steiner = diagonal(square, square, square) - outer
    return RigidInertia(mass, h, rotational + steiner)


class ArticulatedInertia(NamedTuple):
    r"""A symmetric 6x6 matrix $\begin{pmatrix} A & C \\ C^T & L \end{pmatrix}$."""

    ang: Sym3
    cross: Mat3
    lin: Sym3

    def __add__(self, other: "ArticulatedInertia") -> "ArticulatedInertia":
        return ArticulatedInertia(
            self.ang + other.ang, self.cross + other.cross, self.lin + other.lin
        )

    def __matmul__(self, v: Motion) -> Force:
        return Force(
            (self.ang @ v.ang) + (self.cross @ v.lin),
            (self.cross.T @ v.ang) + (self.lin @ v.lin),
        )

    def downdate(self, u: Force, inverse) -> "ArticulatedInertia":
        r"""$I - u u^T d^{-1}$."""
        a, b = u.ang, u.lin
        sa, sb = a * inverse, b * inverse
        ang, cross, lin = self
        return ArticulatedInertia(
            ang - _outer(sa, a),
            cross
            - Mat3(
                *(sa.x * b.x, sa.x * b.y, sa.x * b.z),
                *(sa.y * b.x, sa.y * b.y, sa.y * b.z),
                *(sa.z * b.x, sa.z * b.y, sa.z * b.z),
            ),
            lin - _outer(sb, b),
        )


def _outer(a: Vec3, b: Vec3) -> Sym3:
    return Sym3(a.x * b.x, a.y * b.y, a.z * b.z, a.x * b.y, a.x * b.z, a.y * b.z)


def point_stiffness(point: Vec3, k: Sym3) -> ArticulatedInertia:
    """The 6x6 matrix of a 3x3 stiffness (or mass) that acts at a point."""
    x, y, z = point
    columns = k.full().columns
    cross = matrix_from_columns(*(point ^ column for column in columns))
    ang = Sym3(
        y * cross.xz - z * cross.xy,
        z * cross.yx - x * cross.yz,
        x * cross.zy - y * cross.zx,
        z * cross.xx - x * cross.xz,
        x * cross.xy - y * cross.xx,
        x * cross.yy - y * cross.yx,
    )
    return ArticulatedInertia(ang, cross, k)


class FreeFactor(NamedTuple):
    """A factorized `ArticulatedInertia`; the linear block is eliminated first."""

    lin: Sym3
    coupling: Mat3
    ang: Sym3


def free_factor(inertia: ArticulatedInertia) -> FreeFactor:
    """Factorizes a positive definite 6x6 matrix. Its linear block carries the mass, the
    largest and best conditioned part, and is eliminated first: that matters in single
    precision."""
    lin = cholesky_factor(inertia.lin)
    c = inertia.cross.rows
    w = tuple(cholesky_solve(lin, row) for row in c)
    schur = inertia.ang - Sym3(
        *(w[0] | c[0], w[1] | c[1], w[2] | c[2]),
        *(w[0] | c[1], w[0] | c[2], w[1] | c[2]),
    )
    return FreeFactor(lin, Mat3(*w[0], *w[1], *w[2]), cholesky_factor(schur))


def free_solve(factor: FreeFactor, force: Force) -> Motion:
    """The acceleration that a force gives, given `free_factor(inertia)`."""
    ang = cholesky_solve(factor.ang, force.ang - (factor.coupling @ force.lin))
    lin = cholesky_solve(factor.lin, force.lin) - (factor.coupling.T @ ang)
    return Motion(ang, lin)
