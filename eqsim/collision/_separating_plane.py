r"""A plane between two convex shapes.

Shapes are farther apart than $m$ if along some unit vector $d$ the second one lies beyond the
first one, $w \cdot d > m$, with the difference $w$ of the points of both that are nearest to
each other along $d$. If they are not, $d$ is reflected, $d - 2 (w \cdot d) w / |w|^2$, which
turns it away from $w$. Most pairs are told apart by the first few directions.

Hulls of meshes are replaced by tables, see `_cube_map.py`, which bound them from outside.
What is found apart is certainly apart.

Source: Chung, Wang, *Quick collision detection of polytopes in virtual environments*, 1996.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..kinematics._forward import Pose
from ..model import GeomKind
from ..model._shape_kinds import AnyKind
from ..spatial import Vec3
from ._cores import Core
from ._cube_map import outer_point
from ._points import Shape, unit


_STEPS = 10
_ROUNDING = 64


class ConvexBound(NamedTuple):
    """Convex shapes of one kind, and bounds of those that are meshes.

    - `shape`: poses and sizes.
    - `center`: a point within each shape, in the world.
    - `heights`, `start`: see `outer_point`; None for other kinds.
    - `scale`, `slack`: size of the hulls in units of those of the table, and the largest
        distance of a vertex from that of the table, m.
    """

    shape: Shape
    center: Vec3
    heights: Any = None
    start: Any = None
    scale: Any = None
    slack: Any = None

    def support(self, kind: AnyKind, direction: Vec3) -> Vec3:
        """Return a point that lies as far as the shape in the direction of a unit vector, or
        slightly farther; all in the frame of the shape."""
        if kind is GeomKind.MESH:
            point = outer_point(self.heights, self.start, direction)
            return (point * self.scale) + (direction * self.slack)
        assert isinstance(kind, GeomKind), "shapes of other kinds have no searches"
        core = Core(kind, self.shape.size)
        return core.point(core.support(direction)) + (direction * core.radius)


class _Search(NamedTuple):
    """A unit vector, the number of directions that were tried, whether no more are needed,
    and whether a plane has been found."""

    direction: Vec3
    steps: Any
    done: Any
    apart: Any


def find_plane(
    kinds: tuple[AnyKind, AnyKind], one: ConvexBound, two: ConvexBound, margin, when
):
    """Return whether a plane was found between shapes that are farther apart than a margin.

    **Arguments:**

    - `when`: pairs for which it is asked.
    """
    turn, pose = one.shape.pose.rot.T, two.shape.pose
    offset = Pose(turn @ pose.rot, turn @ (pose.pos - one.shape.pose.pos))
    eps = _ROUNDING * float(jnp.finfo(margin.dtype).eps)
    size = lambda v: jnp.abs(v.x) + jnp.abs(v.y) + jnp.abs(v.z)

    def visit(search: _Search) -> _Search:
        direction = search.direction
        first = one.support(kinds[0], direction)
        second = two.support(kinds[1], offset.rot.T @ -direction)
        second = offset.rot @ second
        apart = offset.pos + second - first
        along, square = apart | direction, apart | apart
        rounding = eps * (size(offset.pos) + size(first) + size(second) + margin)
        found = along > margin + rounding
        share = jnp.where(square > 0.0, 2.0 * along / square, 0.0)
        return _Search(
            direction - (apart * share),
            search.steps + 1,
            search.done | found | (search.steps >= _STEPS - 1),
            search.apart | (found & ~search.done),
        )

    begin = unit(turn @ (two.center - one.center))
    none = jnp.zeros_like(when, jnp.int32)
    start = _Search(begin, none, ~when, when & ~when)
    going = lambda search: jnp.any(~search.done)
    return lax.while_loop(going, visit, start).apart
