"""Faces of cylinders as contact features of two convex shapes."""

import jax.numpy as jnp
import jax.tree_util as jtu

from ..spatial import Vec3
from ._cores import Corners, Placed


def cap(placed: Placed, which: int, normal: Vec3):
    """Return the normal of the face of a cylinder that is nearest to a normal, the
    support function there, and whether the point that touches lies on the face."""
    axis = cap_axis(placed, which)
    axis = axis * jnp.where((axis | normal) < 0.0, -1.0, 1.0)
    radius = (placed.first, placed.second)[which].size.x
    point = placed.difference(flat_support(placed, which, axis))
    height = axis | point
    beside = point - (axis * height)
    return axis, height, (beside | beside) <= radius * radius


def cap_axis(placed: Placed, which: int) -> Vec3:
    zero = jnp.zeros_like(placed.offset.pos.x)
    return placed.offset.rot.columns[2] if which else Vec3(zero, zero, zero + 1.0)


def flat_support(placed: Placed, which: int, direction: Vec3) -> Corners:
    """Return the support without the disk of a cylinder: the middle of its face."""
    corners = list(placed.support(direction))
    middle = jtu.tree_map(jnp.zeros_like, corners[which].round)
    corners[which] = corners[which]._replace(round=middle)
    return corners[0], corners[1]
