"""Points at which convex hulls touch planes, as in MuJoCo.

Of the polygons that meet at the lowest vertex, the one whose outer normal is most nearly
opposite to that of the plane is taken. Its corners are the points; of more than four,
`four_corners` are left, one of which is the lowest vertex. Those above the origin of the
mesh, its center of mass, are left out.

MuJoCo 4.0: `mjc_PlaneConvex`, measured with the Python package.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

from ..model import GeomKind
from ..spatial import Vec3
from ._clipping import four_corners, Plane
from ._cores import Core
from ._points import Point, Shape
from ._rows import count_rows, read_rows
from ._solids import Solid, solid


def plane_mesh(
    kinds: tuple[GeomKind, GeomKind], one: Shape, two: Shape, margin: Any
) -> list[Point]:
    """Return up to four points of hulls on planes; those beyond the margin are
    not valid."""
    normal = one.pose.rot.columns[2]
    core = Core(kinds[1], two.size, two.hulls)
    down = two.pose.rot.T @ -normal
    numbers, count = _corners(*lax.stop_gradient((solid(core), down)))
    vertices = two.pose.point(core.vertex(numbers))
    dist = normal | (vertices - one.pose.pos)
    pos = vertices - (normal * (0.5 * dist))
    below = (normal | (vertices - two.pose.pos)) < 0.0
    valid = (count_rows(dist) < count) & (dist < margin) & below
    row = lambda x, k: x[k : k + 1]
    return [
        Point(
            row(dist, k), Vec3(*(row(x, k) for x in pos)), normal, None, row(valid, k)
        )
        for k in range(4)
    ]


def _corners(hull: Solid, down: Vec3) -> tuple[Any, Any]:
    """Return the vertices that touch, `(4, *batch)`, and how many they are."""
    lowest = hull.core.support(down).number
    start, count = hull.meeting(lowest)

    def visit(carry):
        k, best, most = carry
        polygon = hull.polygon(start + jnp.minimum(k, count - 1))
        active = k < count
        along = hull.facet(polygon, (lowest, lowest, lowest), active).normal | down
        better = active & ((k == 0) | (along > most))
        best, most = jnp.where(better, polygon, best), jnp.where(better, along, most)
        return k + 1, best, most

    more = lambda carry: jnp.any(carry[0] < count)
    none = jnp.zeros_like(count)
    polygon = lax.while_loop(more, visit, (none, none, 0.0 * down.x))[1]
    facet = hull.facet(polygon, (lowest, lowest, lowest), count > 0)
    vertices, corners = hull.corners_from(polygon, lowest, hull.most)
    places = hull.core.vertex(vertices)
    origin = Vec3(*(x[:1] for x in places))
    x, y = Plane(origin, facet.normal).coordinates(places)
    four = four_corners(x, y, corners, with_first=True)
    rows = jnp.minimum(jnp.concatenate(four), hull.most - 1)
    return read_rows(vertices, rows), corners
