"""Spatial vectors (Featherstone 2008, ch. 2) by component, angular part first.

All are expressed in world axes about one point per tree, at rest in the world. No
transformations between a link and its parent are needed: forces and inertias can be
added directly.
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
    skew,
    Sym3,
    Vec3,
)


class Motion(NamedTuple):
    """A velocity or acceleration: angular part, and linear part of the point at the
    origin."""

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
        r"""Compute the cross product $V \times M$ with a motion vector."""
        ang, lin = self
        return Motion(ang ^ other.ang, (ang ^ other.lin) + (lin ^ other.ang))

    def cross_dual(self, force: "Force") -> "Force":
        r"""Compute the cross product $V \times^* F$ with a force vector."""
        ang, lin = self
        return Force((ang ^ force.ang) + (lin ^ force.lin), ang ^ force.lin)

    def at(self, point: Vec3) -> Vec3:
        """Return the linear part at `point`."""
        return self.lin + (self.ang ^ point)


class Force(NamedTuple):
    """A moment about the origin and a force; also a momentum."""

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
    """Return the spatial force of a force that acts at a point."""
    return Force(point ^ force, force)


class RigidInertia(NamedTuple):
    """Inertia of a rigid body.

    - `mass`: kg.
    - `moment`: first moment, mass times center of mass, kg m.
    - `ang`: rotational inertia about the origin, kg m^2.
    """

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
        """Return this inertia as a general symmetric 6x6 matrix."""
        zero = jnp.zeros_like(self.mass)
        lin = Sym3(self.mass, self.mass, self.mass, zero, zero, zero)
        return ArticulatedInertia(self.ang, skew(self.moment), lin)


def rigid_inertia(mass, com: Vec3, rotational: Sym3) -> RigidInertia:
    """Return the inertia about the origin, given mass, center of mass and the inertia
    about the center of mass, all in world axes."""
    h = com * mass
    square = com | h
    steiner = diagonal(square, square, square) - Sym3.of(h.outer(com))
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
        r"""Return $I - u d^{-1} u^T$."""
        a, b = u.ang * inverse, u.lin * inverse
        return ArticulatedInertia(
            self.ang - Sym3.of(a.outer(u.ang)),
            self.cross - a.outer(u.lin),
            self.lin - Sym3.of(b.outer(u.lin)),
        )


def point_stiffness(point: Vec3, k: Sym3) -> ArticulatedInertia:
    """Return the 6x6 matrix of a 3x3 stiffness (or mass) that acts at a point."""
    cross = skew(point) @ k
    return ArticulatedInertia(Sym3.of(cross @ skew(point).T), cross, k)


class FreeFactor(NamedTuple):
    """A factorized `ArticulatedInertia`.

    - `lin`: factor of the linear block, which is eliminated first.
    - `coupling`: $C L^{-1}$, where $C$ couples rotation to translation.
    - `ang`: factor of the Schur complement.
    """

    lin: Sym3
    coupling: Mat3
    ang: Sym3


def free_factor(inertia: ArticulatedInertia) -> FreeFactor:
    """Factorize a positive definite 6x6 matrix.

    The linear block, which holds the mass, is the best conditioned one; eliminating it
    first keeps single precision accurate.
    """
    lin = cholesky_factor(inertia.lin)
    c = inertia.cross.rows
    w = tuple(cholesky_solve(lin, row) for row in c)
    schur = inertia.ang - Sym3(
        *(w[0] | c[0], w[1] | c[1], w[2] | c[2]),
        *(w[0] | c[1], w[0] | c[2], w[1] | c[2]),
    )
    return FreeFactor(lin, Mat3(*w[0], *w[1], *w[2]), cholesky_factor(schur))


def free_solve(factor: FreeFactor, force: Force) -> Motion:
    """Compute the acceleration of a free body under a force."""
    ang = cholesky_solve(factor.ang, force.ang - (factor.coupling @ force.lin))
    lin = cholesky_solve(factor.lin, force.lin) - (factor.coupling.T @ ang)
    return Motion(ang, lin)
