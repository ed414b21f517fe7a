"""Vectors and 3x3 matrices by component: one array per scalar.

The arrays of one object have the same shape, usually an axis of links and then batch
axes. `@` is the matrix product, `|` the dot product, `^` the cross product.
"""

# The operators of these tuples are those of algebra.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any, NamedTuple, overload

import jax.numpy as jnp

from ._arithmetic import add, mul, neg, sub


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

    def __or__(self, other: "Vec3"):
        x, y, z = map(mul, self, other)
        return add(add(x, y), z)

    def __xor__(self, other: "Vec3") -> "Vec3":
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
            return Vec3(*(row | other for row in self.rows))
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
    return Sym3(bx | x, by | y, bz | z, bx | y, bx | z, by | z)


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
