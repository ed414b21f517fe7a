"""Vectors, 3x3 matrices, spatial vectors and 6x6 matrices by component: one array per scalar.

The arrays of one object have the same shape, usually an axis of links and then batch
axes. `@` is the matrix product.

Spatial vectors (Featherstone 2008, ch. 2) have their angular part first. All are expressed
in world axes about one point per tree, at rest in the world. No transformations between a
link and its parent are needed: forces and inertias can be added directly.

Sums and products of arrays of the same shape and type use `jax.lax`, which computes the
same as `jax.numpy` and is traced several times faster.
"""

from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax import lax


# The operators of these tuples are those of algebra.
# pyright: reportIncompatibleMethodOverride=false


def _alike(x, y) -> bool:
    if not (isinstance(x, jax.Array) and isinstance(y, jax.Array)):
        return False
    return x.shape == y.shape and x.dtype == y.dtype


def add(x, y):
    """Return `x + y`."""
    return lax.add(x, y) if _alike(x, y) else x + y


def sub(x, y):
    """Return `x - y`."""
    return lax.sub(x, y) if _alike(x, y) else x - y


def mul(x, y):
    """Return `x * y`."""
    return lax.mul(x, y) if _alike(x, y) else x * y


def neg(x):
    """Return `-x`."""
    return lax.neg(x) if isinstance(x, jax.Array) else -x


# Vectors and matrices.


class Vec3(NamedTuple):
    """A vector in three dimensions."""

    x: Any
    y: Any
    z: Any

    def __add__(self, other: "Vec3") -> "Vec3":
        return Vec3(add(self.x, other.x), add(self.y, other.y), add(self.z, other.z))

    def __sub__(self, other: "Vec3") -> "Vec3":
        return Vec3(sub(self.x, other.x), sub(self.y, other.y), sub(self.z, other.z))

    def __neg__(self) -> "Vec3":
        return Vec3(neg(self.x), neg(self.y), neg(self.z))

    def __mul__(self, scale) -> "Vec3":
        return Vec3(mul(self.x, scale), mul(self.y, scale), mul(self.z, scale))

    def dot(self, other: "Vec3"):
        r"""Compute the dot product $u \cdot v$."""
        x, y, z = map(mul, self, other)
        return add(add(x, y), z)

    def cross(self, other: "Vec3") -> "Vec3":
        r"""Compute the cross product $u \times v$."""
        return Vec3(
            sub(mul(self.y, other.z), mul(self.z, other.y)),
            sub(mul(self.z, other.x), mul(self.x, other.z)),
            sub(mul(self.x, other.y), mul(self.y, other.x)),
        )

    def outer(self, other: "Vec3") -> "Mat3":
        """Return the matrix $u v^T$."""
        return Mat3(*(mul(a, b) for a in self for b in other))


class Mat3(NamedTuple):
    """A 3x3 matrix, row by row."""

    xx: Any
    xy: Any
    xz: Any
    yx: Any
    yy: Any
    yz: Any
    zx: Any
    zy: Any
    zz: Any

    @property
    def rows(self) -> tuple[Vec3, Vec3, Vec3]:
        """The three rows."""
        return Vec3(*self[0:3]), Vec3(*self[3:6]), Vec3(*self[6:9])

    @property
    def columns(self) -> tuple[Vec3, Vec3, Vec3]:
        """The three columns."""
        return (
            Vec3(self.xx, self.yx, self.zx),
            Vec3(self.xy, self.yy, self.zy),
            Vec3(self.xz, self.yz, self.zz),
        )

    @property
    def T(self) -> "Mat3":
        """The transpose."""
        a = self
        return Mat3(a.xx, a.yx, a.zx, a.xy, a.yy, a.zy, a.xz, a.yz, a.zz)

    def __add__(self, other: "Mat3") -> "Mat3":
        return Mat3(*map(add, self, other))

    def __mul__(self, scale) -> "Mat3":
        return Mat3(*(mul(a, scale) for a in self))

    def __sub__(self, other: "Mat3") -> "Mat3":
        return Mat3(*map(sub, self, other))

    @overload
    def __matmul__(self, other: Vec3) -> Vec3: ...

    @overload
    def __matmul__(self, other: "Mat3 | Sym3") -> "Mat3": ...

    def __matmul__(self, other: "Vec3 | Mat3 | Sym3") -> "Vec3 | Mat3":
        if isinstance(other, Vec3):
            return Vec3(*(row.dot(other) for row in self.rows))
        if isinstance(other, Sym3):
            other = other.full()
        x, y, z = other.columns
        return matrix_from_columns(self @ x, self @ y, self @ z)


class Sym3(NamedTuple):
    """A symmetric 3x3 matrix."""

    xx: Any
    yy: Any
    zz: Any
    xy: Any
    xz: Any
    yz: Any

    @property
    def trace(self):
        """The sum of the diagonal entries."""
        return self.xx + self.yy + self.zz

    @staticmethod
    def of(full: Mat3) -> "Sym3":
        """Return the symmetric matrix with the diagonal and upper entries of `full`."""
        return Sym3(full.xx, full.yy, full.zz, full.xy, full.xz, full.yz)

    def full(self) -> Mat3:
        """Return the matrix with all nine entries."""
        a = self
        return Mat3(a.xx, a.xy, a.xz, a.xy, a.yy, a.yz, a.xz, a.yz, a.zz)

    def __add__(self, other: "Sym3") -> "Sym3":
        return Sym3(*map(add, self, other))

    def __sub__(self, other: "Sym3") -> "Sym3":
        return Sym3(*map(sub, self, other))

    def __mul__(self, scale) -> "Sym3":
        return Sym3(*(mul(a, scale) for a in self))

    def __matmul__(self, v: Vec3) -> Vec3:
        return self.full() @ v


def vec3(array) -> Vec3:
    """Split axis 1 of `array`, shape `(n, 3, *batch)`."""
    return Vec3(array[:, 0], array[:, 1], array[:, 2])


def stack(v: Vec3):
    """Join components into an array of shape `(n, 3, *batch)`; inverse of `vec3`."""
    return jnp.stack(v, axis=1)


def matrix_from_columns(x: Vec3, y: Vec3, z: Vec3) -> Mat3:
    """Return the matrix with columns `x`, `y`, `z`."""
    return Mat3(x.x, y.x, z.x, x.y, y.y, z.y, x.z, y.z, z.z)


def skew(v: Vec3) -> Mat3:
    r"""Return the matrix $[v]_\times$ with $[v]_\times u = v \times u$."""
    zero = jnp.zeros_like(v.x)
    return Mat3(zero, -v.z, v.y, v.z, zero, -v.x, -v.y, v.x, zero)


def diagonal(x, y, z) -> Sym3:
    """Return a diagonal matrix."""
    zero = jnp.zeros_like(x)
    return Sym3(x, y, z, zero, zero, zero)


def congruence(a: Mat3, s: Sym3) -> Sym3:
    """Compute $A S A^T$, for instance a tensor in rotated axes."""
    x, y, z = a.rows
    bx, by, bz = (a @ s).rows
    return Sym3(bx.dot(x), by.dot(y), bz.dot(z), bx.dot(y), bx.dot(z), by.dot(z))


def cholesky_factor(s: Sym3) -> Sym3:
    r"""Factorize a positive definite matrix, $S = L D L^T$.

    **Returns:** $1/D$ on the diagonal and the strict lower part of $L$ beside it.
    """
    d1 = 1.0 / s.xx
    l21, l31 = s.xy * d1, s.xz * d1
    d2 = 1.0 / (s.yy - l21 * s.xy)
    l32 = (s.yz - l31 * s.xy) * d2
    d3 = 1.0 / (s.zz - l31 * s.xz - l32 * l32 / d2)
    return Sym3(d1, d2, d3, l21, l31, l32)


def cholesky_solve(factor: Sym3, v: Vec3) -> Vec3:
    """Solve $S u = v$, given `cholesky_factor(S)`."""
    d1, d2, d3, l21, l31, l32 = factor
    y = v.y - l21 * v.x
    z = v.z - l31 * v.x - l32 * y
    u_z = z * d3
    u_y = y * d2 - l32 * u_z
    return Vec3(v.x * d1 - l21 * u_y - l31 * u_z, u_y, u_z)


# Spatial vectors and inertias.


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

    def dot(self, force: "Force"):
        r"""Compute the power $V \cdot F$ of a force along a motion."""
        return self.ang.dot(force.ang) + self.lin.dot(force.lin)

    def cross(self, other: "Motion") -> "Motion":
        r"""Compute the cross product $V \times M$ with a motion vector."""
        ang, lin = self
        return Motion(ang.cross(other.ang), ang.cross(other.lin) + lin.cross(other.ang))

    def cross_dual(self, force: "Force") -> "Force":
        r"""Compute the cross product $V \times^* F$ with a force vector."""
        ang, lin = self
        return Force(ang.cross(force.ang) + lin.cross(force.lin), ang.cross(force.lin))

    def at(self, point: Vec3) -> Vec3:
        """Return the linear part at `point`."""
        return self.lin + self.ang.cross(point)


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
    return Force(point.cross(force), force)


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
            (self.ang @ v.ang) + h.cross(v.lin),
            (v.lin * self.mass) - h.cross(v.ang),
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
    square = com.dot(h)
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
        *(w[0].dot(c[0]), w[1].dot(c[1]), w[2].dot(c[2])),
        *(w[0].dot(c[1]), w[0].dot(c[2]), w[1].dot(c[2])),
    )
    return FreeFactor(lin, Mat3(*w[0], *w[1], *w[2]), cholesky_factor(schur))


def free_solve(factor: FreeFactor, force: Force) -> Motion:
    """Compute the acceleration of a free body under a force."""
    ang = cholesky_solve(factor.ang, force.ang - (factor.coupling @ force.lin))
    lin = cholesky_solve(factor.lin, force.lin) - (factor.coupling.T @ ang)
    return Motion(ang, lin)


# The operators of these tuples are those of algebra.
# pyright: reportIncompatibleMethodOverride=false


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
    a, b, c = y.cross(z), z.cross(x), x.cross(y)
    return matrix_from_columns(a, b, c) * (1.0 / x.dot(a))


def solve6(matrix: Matrix6, force: Force) -> Motion:
    """Solve $K V = F$ for a general matrix of which the block `lin`, which holds the mass,
    is well conditioned."""
    ang, ang_lin, lin_ang, lin = matrix
    inverse = inverse3(lin)
    ratio = ang_lin @ inverse
    schur = ang - (ratio @ lin_ang)
    spin = inverse3(schur) @ (force.ang - (ratio @ force.lin))
    return Motion(spin, inverse @ (force.lin - (lin_ang @ spin)))
