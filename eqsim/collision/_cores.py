"""Convex polytopes inside of shapes, about which general collision detection is built.

A sphere is a ball about a point, a capsule balls about a segment; boxes and hulls of
meshes are polytopes themselves.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from ..kinematics._forward import Pose
from ..model import GeomKind
from ..spatial import Vec3
from ._points import Hulls


class Core(eqx.Module):
    """Polytopes of one kind of shape, one per pair.

    - `kind`: of the shapes.
    - `size`: see `Geoms.size`.
    - `hulls`: vertices, if the shapes are meshes.
    """

    kind: GeomKind = eqx.field(static=True)
    size: Vec3
    hulls: Hulls | None = None

    @property
    def radius(self):
        """Radius of the ball about each point."""
        round_ = self.kind in (GeomKind.SPHERE, GeomKind.CAPSULE)
        return self.size.x if round_ else jnp.zeros_like(self.size.x)

    def support(self, direction: Vec3) -> Any:
        """Return the number of the vertex that lies farthest in a direction, which is
        given in the frame of the shape."""
        x, y, z = (jnp.where(d >= 0.0, 1, 0) for d in direction)
        if self.kind is GeomKind.SPHERE:
            return jnp.zeros_like(x)
        if self.kind is GeomKind.CAPSULE:
            return z
        if self.kind is GeomKind.BOX:
            return x + 2 * y + 4 * z
        assert self.hulls is not None, "meshes have vertices"
        return _farthest(self.hulls, direction)

    def vertex(self, number) -> Vec3:
        """Return a vertex, in the frame of the shape."""
        size, zero = self.size, jnp.zeros_like(self.size.x)
        if self.kind is GeomKind.SPHERE:
            return Vec3(zero, zero, zero)
        bit = lambda k: (2 * ((number >> k) & 1) - 1).astype(size.x.dtype)
        if self.kind is GeomKind.CAPSULE:
            return Vec3(zero, zero, size.y * bit(0))
        if self.kind is GeomKind.BOX:
            return Vec3(size.x * bit(0), size.y * bit(1), size.z * bit(2))
        assert self.hulls is not None, "meshes have vertices"
        return pick(self.hulls.points, self.hulls.start + number)


def _farthest(hulls: Hulls, direction: Vec3):
    """Search all vertices of a hulls."""
    first = pick(hulls.points, hulls.start) | direction

    def visit(carry):
        k, best, most = carry
        along = pick(hulls.points, hulls.start + k) | direction
        better = along > most
        return k + 1, jnp.where(better, k, best), jnp.where(better, along, most)

    none = jnp.zeros_like(hulls.start + first.astype(hulls.start.dtype) * 0)
    start = none + 1, none, first
    more = lambda carry: jnp.any(carry[0] < hulls.count)
    return lax.while_loop(more, visit, start)[1]


def pick(values: Vec3, number) -> Vec3:
    """Return one row of each environment, `(1, *batch)`; `number` is within bounds."""

    def one(x):
        shape = (x.shape[0], *jnp.broadcast_shapes(x.shape[1:], number.shape[1:]))
        rows = jnp.broadcast_to(number, (1, *shape[1:]))
        return jnp.take_along_axis(
            jnp.broadcast_to(x, shape), rows, axis=0, mode="promise_in_bounds"
        )

    return Vec3(*map(one, values))


class Placed(NamedTuple):
    """Two cores in the frame of the first one."""

    first: Core
    second: Core
    offset: Pose

    def support(self, direction: Vec3) -> tuple[Any, Any]:
        """Return the vertices of both that lie farthest in a direction and against it."""
        back = self.offset.rot.T @ -direction
        return self.first.support(direction), self.second.support(back)

    def difference(self, numbers: tuple[Any, Any]) -> Vec3:
        """Return the difference of a vertex of the first core and one of the second."""
        one, two = self.ends(numbers)
        return one - two

    def ends(self, numbers: tuple[Any, Any]) -> tuple[Vec3, Vec3]:
        """Return a vertex of the first core and one of the second."""
        second = self.offset.rot @ self.second.vertex(numbers[1])
        return self.first.vertex(numbers[0]), second + self.offset.pos
