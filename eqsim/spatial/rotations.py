"""Rotations by component, with finite derivatives at the identity."""

import jax.numpy as jnp

from .vectors import Mat3, Vec3


def safe_sqrt(square):
    """Compute the square root; its derivative at zero is zero instead of infinite."""
    positive = square > 0.0
    # The constant is small because a compiler may compute `square` twice, with different
    # rounding, so that one of the two values is zero.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1e-12)), 0.0)


def zero_length(dtype) -> float:
    """Return the length up to which vectors count as zero.

    1e-15 in double precision, as in MuJoCo (`mjMINVAL`). In single precision coordinates
    of about 1 that should agree differ by several units of rounding, so 16 of them, 1.9e-6.
    """
    eps = float(jnp.finfo(dtype).eps)
    return 1e-15 if eps < 1e-15 else 16.0 * eps


def normalize4(q):
    """Normalize a quaternion; zero becomes the identity."""
    square = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]
    positive = square > 0.0
    scale = 1.0 / jnp.sqrt(jnp.where(positive, square, 1.0))
    return (jnp.where(positive, q[0] * scale, 1.0), *(x * scale for x in q[1:]))


def quaternion_matrix(q) -> Mat3:
    """Return the rotation matrix of a unit quaternion `(w, x, y, z)`."""
    w, x, y, z = q
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz = x * x2, y * y2, z * z2
    xy, xz, yz = x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    return Mat3(
        *(1.0 - yy - zz, xy - wz, xz + wy),
        *(xy + wz, 1.0 - xx - zz, yz - wx),
        *(xz - wy, yz + wx, 1.0 - xx - yy),
    )


def matrix_quaternion(rot: Mat3):
    """Return a unit quaternion of a rotation matrix; its largest component is positive.

    Shepperd, *Quaternion from rotation matrix*, 1978: each of four formulas divides by one
    component, and the one with the largest component is chosen.
    """
    a = rot
    squares = [
        1.0 + a.xx + a.yy + a.zz,
        1.0 + a.xx - a.yy - a.zz,
        1.0 - a.xx + a.yy - a.zz,
        1.0 - a.xx - a.yy + a.zz,
    ]
    wx, wy, wz = a.zy - a.yz, a.xz - a.zx, a.yx - a.xy
    xy, xz, yz = a.yx + a.xy, a.xz + a.zx, a.zy + a.yz
    products = [
        (squares[0], wx, wy, wz),
        (wx, squares[1], xy, xz),
        (wy, xy, squares[2], yz),
        (wz, xz, yz, squares[3]),
    ]
    best, row = squares[0], products[0]
    for square, other in zip(squares[1:], products[1:], strict=True):
        larger = square > best
        best = jnp.where(larger, square, best)
        row = tuple(jnp.where(larger, y, x) for x, y in zip(row, other, strict=True))
    # The largest of the four squares is at least one.
    scale = 0.5 / jnp.sqrt(best)
    return tuple(x * scale for x in row)


def axis_angle_matrix(axis: Vec3, angle) -> Mat3:
    r"""Compute $\cos\theta\, 1 + \sin\theta [a] + (1-\cos\theta) a a^T$ (Rodrigues)."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    t = 1.0 - c
    x, y, z = axis
    tx, ty, tz = t * x, t * y, t * z
    sx, sy, sz = s * x, s * y, s * z
    return Mat3(
        *(tx * x + c, tx * y - sz, tx * z + sy),
        *(tx * y + sz, ty * y + c, ty * z - sx),
        *(tx * z - sy, ty * z + sx, tz * z + c),
    )


def multiply(p, q):
    """Multiply two quaternions."""
    return (
        p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3],
        p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2],
        p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1],
        p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0],
    )


def exponential(v: Vec3):
    """Return the unit quaternion of a rotation vector; smooth at zero."""
    square = v.dot(v)
    # Below this, the series is exact in double precision, and the square root is not
    # evaluated at zero.
    tiny = square < 1e-7
    angle = jnp.sqrt(jnp.where(tiny, 1.0, square))
    half = 0.5 * angle
    real = jnp.where(tiny, 1.0 - square * (1 / 8) * (1.0 - square / 48), jnp.cos(half))
    series = 0.5 - square * (1 / 48) * (1.0 - square / 80)
    imag = jnp.where(tiny, series, jnp.sin(half) / angle)
    return (real, v.x * imag, v.y * imag, v.z * imag)


def logarithm(q) -> Vec3:
    r"""Return the rotation vector of a unit quaternion, of length at most $\pi$; smooth
    at zero."""
    sign = jnp.where(q[0] < 0.0, -1.0, 1.0)
    w, x, y, z = (sign * c for c in q)
    square = x * x + y * y + z * z
    tiny = square < 1e-10
    norm = jnp.sqrt(jnp.where(tiny, 1.0, square))
    series = 2.0 * (1.0 + square * (1 / 6))
    safe_w = jnp.where(tiny, 1.0, w)
    scale = jnp.where(tiny, series, 2.0 * jnp.arctan2(norm, safe_w) / norm)
    return Vec3(x * scale, y * scale, z * scale)


def integrate(q, ang: Vec3, dt):
    r"""Compute $q \otimes \exp(\omega\,dt)$, normalized; $\omega$ is in body axes.

    Solà, *Quaternion kinematics for the error-state Kalman filter*, 2017.
    """
    return normalize4(multiply(normalize4(q), exponential(ang * dt)))


def rotation_rate(rotation: Vec3, ang: Vec3) -> Vec3:
    r"""Compute the rate of a rotation vector at angular velocity `ang` in moving axes.

    $\dot\theta = \omega + \tfrac12 \theta \times \omega
    + c\,\theta \times (\theta \times \omega), \quad
    c = (1 - \tfrac n2 \cot \tfrac n2)/n^2, \; n = |\theta|$

    (the inverse of the differential of the exponential; Hairer, Lubich and Wanner,
    *Geometric Numerical Integration*, 2006, section IV.8).
    """
    square = rotation.dot(rotation)
    tiny = square < 1e-3
    norm = jnp.sqrt(jnp.where(tiny, 1.0, square))
    half = 0.5 * norm
    series = 1 / 12 + square * (1 / 720 + square * (1 / 30240 + square * (1 / 1209600)))
    exact = (1.0 - half * jnp.cos(half) / jnp.sin(half)) / jnp.where(tiny, 1.0, square)
    twist = rotation.cross(ang)
    return (
        ang + (twist * 0.5) + (rotation.cross(twist) * jnp.where(tiny, series, exact))
    )
