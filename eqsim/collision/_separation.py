r"""Distance of two convex polytopes: the algorithm of Gilbert, Johnson and Keerthi.

The point of the difference $M = \{a - b\}$ that is nearest to the origin is sought on
triangles of vertices of $M$, each of which leads nearer.

Source: Gilbert, Johnson, Keerthi, *A fast procedure for computing the distance between
complex objects in three-dimensional space*, 1988; the nearest point of a triangle as in
Ericson, *Real-Time Collision Detection*, 2005, section 5.1.5.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..spatial import Vec3
from ._cores import Corners, Placed
from ._penetration import once


_STEPS = 32
# What Newton's method can begin with, as a share of the size of round shapes.
_ROUND_SHARE = 1e-4
# Distances beyond this, as a share of the size, are told from a penetration by this
# search: the squares of the machine's rounding, times a safe number.
_SURE = 512.0


class Nearest(NamedTuple):
    """Points of $M$ whose convex hull holds the one nearest to the origin.

    - `corners`: three points, those that count first.
    - `count`: number of vertices that hold the nearest point: 1, 2 or 3.
    - `outside`: true if the origin is outside of $M$.
    """

    corners: tuple[Corners, ...]
    count: Any
    outside: Any


class Search(NamedTuple):
    """A triangle of points of $M$ near the origin.

    - `corners`, `points`: the points, as those of the shapes and as their differences.
    - `steps`: number of steps.
    - `done`: true if no more are needed.
    - `sure`: true if the origin is certainly outside. Shapes that can touch along faces
        must also be farther apart than asked for: nearer, the faces are needed.
    """

    corners: tuple[Corners, Corners, Corners]
    points: tuple[Vec3, Vec3, Vec3]
    steps: Any
    done: Any
    sure: Any


def nearest_triangle(
    placed: Placed, corners: tuple[Corners, Corners, Corners], reach, when
) -> Search:
    """Return vertices of $M$ nearest to the origin, if this is outside of it.

    **Arguments:**

    - `corners`: three vertices.
    - `reach`: distance beyond which it is enough to know that it is exceeded.
    - `when`: condition under which it is computed; otherwise `corners` are returned.
    """
    a, b, c = map(placed.difference, corners)
    none = jnp.zeros_like(when, jnp.int32)
    first = Search(corners, (a, b, c), none, ~when, when & ~when)
    going = lambda search: jnp.any(~search.done)
    return lax.while_loop(going, lambda search: _nearer(placed, reach, search), first)


def _nearer(placed: Placed, reach, search: Search) -> Search:
    """Return the search after one more vertex."""
    old = search.corners, search.points
    point = combine(triangle_weights(*search.points), search.points)
    square = point | point
    corners = once(placed.support(-point, search.corners[0]))
    vertex = once(placed.difference(corners))
    eps = float(jnp.finfo(square.dtype).eps)
    along = point | vertex
    largest = jnp.maximum(square, vertex | vertex)
    rounding = 8.0 * eps * largest
    if placed.is_round:
        rounding = rounding + _ROUND_SHARE * jnp.sqrt(square * largest)
    # A comparison that is true for what is not a number too.
    end = ~(square - along > rounding) | (search.steps >= _STEPS)
    # The plane through the vertex lies between the origin and the set.
    beyond = (along > 0.0) & (along * along > reach * reach * square)
    sure = beyond
    if not placed.is_flat:
        sure = sure | (end & (along > 0.0) & (square > _SURE * eps * largest))
    best, least = old, square
    for k in range(3):
        swap = lambda items, new, k=k: (*items[:k], new, *items[k + 1 :])
        other = swap(old[0], corners), swap(old[1], vertex)
        nearest = combine(triangle_weights(*other[1]), other[1])
        better = once((nearest | nearest) < least)
        choose = lambda x, y, better=better: jnp.where(better, x, y)
        best = jtu.tree_map(choose, other, best)
        least = jnp.minimum(least, nearest | nearest)
    a, b, c = search.points
    end = once(end | beyond | _holds_origin(a, b, c, vertex))
    stays = once(search.done | end)
    keep = lambda x, y: jnp.where(stays, y, x)
    corners, points = jtu.tree_map(keep, best, old)
    sure = search.sure | (sure & ~search.done)
    done = stays | ~(least < square)
    return Search(corners, points, search.steps + 1, done, sure)


def _holds_origin(a: Vec3, b: Vec3, c: Vec3, d: Vec3):
    """Return whether the origin lies in a tetrahedron."""
    side = b ^ c
    first, last = side | d, -(side | a)
    across = a ^ d
    second, third = across | c, -(across | b)
    least = jnp.minimum(jnp.minimum(first, second), jnp.minimum(third, last))
    most = jnp.maximum(jnp.maximum(first, second), jnp.maximum(third, last))
    return (least > 0.0) | (most < 0.0)


def combine(weights, points) -> Vec3:
    """Return a weighted sum of three points."""
    a, b, c = (p * w for p, w in zip(points, weights, strict=True))
    return (a + b) + c


def triangle_weights(a: Vec3, b: Vec3, c: Vec3) -> tuple[Any, Any, Any]:
    """Return the weights of three points whose weighted mean is the point of their
    triangle that is nearest to the origin. Triangles may be segments or points."""
    ab, ac = b - a, c - a
    ab_a, ac_a, ab_b, ac_b = -(ab | a), -(ac | a), -(ab | b), -(ac | b)
    ab_c, ac_c = -(ab | c), -(ac | c)
    of_c = ab_a * ac_b - ab_b * ac_a
    of_b = ab_c * ac_a - ab_a * ac_c
    of_a = ab_b * ac_c - ab_c * ac_b
    zero = jnp.zeros_like(of_a)
    one = zero + 1.0
    safe = lambda x: jnp.where(x > 0.0, x, 1.0)
    on_ab = ab_a / safe(ab_a - ab_b)
    on_ac = ac_a / safe(ac_a - ac_c)
    from_b, from_c = ac_b - ab_b, ab_c - ac_c
    on_bc = from_b / safe(from_b + from_c)
    total = safe(of_a + of_b + of_c)
    cases = (
        ((ab_a <= 0.0) & (ac_a <= 0.0), (one, zero, zero)),
        ((ab_b >= 0.0) & (ac_b <= ab_b), (zero, one, zero)),
        ((of_c <= 0.0) & (ab_a >= 0.0) & (ab_b <= 0.0), (1.0 - on_ab, on_ab, zero)),
        ((ac_c >= 0.0) & (ab_c <= ac_c), (zero, zero, one)),
        ((of_b <= 0.0) & (ac_a >= 0.0) & (ac_c <= 0.0), (1.0 - on_ac, zero, on_ac)),
        ((of_a <= 0.0) & (from_b >= 0.0) & (from_c >= 0.0), (zero, 1.0 - on_bc, on_bc)),
    )
    first, second, third = of_a / total, of_b / total, of_c / total
    for holds, weights in reversed(cases):
        first = jnp.where(holds, weights[0], first)
        second = jnp.where(holds, weights[1], second)
        third = jnp.where(holds, weights[2], third)
    return first, second, third


def sorted_vertices(
    corners: tuple[Corners, ...], points: tuple[Vec3, ...], outside
) -> Nearest:
    """Bring the vertices that hold the nearest point to the front. All count where the
    origin is inside."""
    weights = triangle_weights(*points)
    return counted_first(corners, [(x > 0.0) | ~outside for x in weights], outside)


def counted_first(corners: tuple[Corners, ...], counts: list, outside) -> Nearest:
    """Bring the vertices that count to the front; the last of them is repeated."""
    count = sum(x.astype(jnp.int32) for x in counts)
    pick = lambda first, one, two: jtu.tree_map(
        lambda x, y: jnp.where(first, x, y), one, two
    )
    a, b, c = corners
    first = pick(counts[0], a, pick(counts[1], b, c))
    last = pick(counts[2], c, pick(counts[1], b, a))
    second = pick(count == 3, b, last)
    return Nearest((first, second, last), count, outside)
