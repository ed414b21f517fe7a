"""Up to two points of capsules and cylinders: a capsule may lie on a face."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from ..kinematics._forward import Pose
from ..model import GeomKind
from ._cores import Core, Placed
from ._manifold import Approach, several_points
from ._points import Point, Shape
from ._shapes import capsule_cylinder


def capsule_cylinder_points(
    capsule: Shape, cylinder: Shape, margin: Any
) -> list[Point]:
    """Return up to two points, see `several_points`, or that of `capsule_cylinder`."""
    (single,) = capsule_cylinder(capsule, cylinder)
    rot = capsule.pose.rot.T
    offset = Pose(rot @ cylinder.pose.rot, rot @ (cylinder.pose.pos - capsule.pose.pos))
    first = Core(GeomKind.CAPSULE, capsule.size)
    second = Core(GeomKind.CYLINDER, cylinder.size)
    normal = rot @ single.normal
    along = lax.stop_gradient(offset.rot.columns[2] | normal)
    zero = jnp.zeros_like(along, jnp.int32)
    # Both vertices if no face is near: normals of the lateral surface are perpendicular to
    # the axis, up to rounding.
    lateral = jnp.abs(along) < 64 * float(jnp.finfo(along.dtype).eps)
    one = jnp.where(along < 0.0, 1, 0)
    other = jnp.where(lateral, 1 - one, one)
    vertices = (zero, zero, zero), (one, other, other)
    approach = Approach(Placed(first, second, offset), vertices, normal)
    return several_points(approach, single, capsule, margin)
