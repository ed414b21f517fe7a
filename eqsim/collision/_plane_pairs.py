"""Contact points of planes with smooth shapes (MuJoCo: `mjc_PlaneConvex`)."""

import jax.numpy as jnp

from ..spatial import Vec3
from ._points import Point, Shape
from ._shapes import plane_point


def plane_ellipsoid(plane: Shape, ellipsoid: Shape) -> list[Point]:
    r"""Return one point: the lowest of the ellipsoid, $-R S^2 R^T n / |S R^T n|$, for half
    axes $S$ and the normal $n$ of the plane; the center if $S R^T n$ is zero."""
    rot, size = ellipsoid.pose.rot, ellipsoid.size
    normal = rot.T @ plane.pose.rot.columns[2]
    scaled = Vec3(*(n * s for n, s in zip(normal, size)))
    square = scaled | scaled
    depth = jnp.sqrt(jnp.where(square > 0.0, square, 1.0))
    lowest = Vec3(*(-a * s / depth for a, s in zip(scaled, size)))
    return [plane_point(plane, ellipsoid.pose.pos + (rot @ lowest), 0.0)]
