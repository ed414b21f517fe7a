r"""How far apart two convex polytopes are: the algorithm of Gilbert, Johnson and Keerthi.

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
from ._penetration import once, Simplex


_STEPS = 32


class Nearest(NamedTuple):
    """Points of $M$ whose convex hull holds the one nearest to the origin.

    - `corners`: three points, those that count first.
    - `count`: how many count: 1, 2 or 3.
    - `outside`: whether the origin is outside of $M$.
    """

    corners: tuple[Corners, ...]
    count: Any
    outside: Any


class _Search(NamedTuple):
    simplex: Simplex
    weights: tuple[Any, Any, Any]
    steps: Any
    done: Any


def nearest_vertices(placed: Placed, start: Simplex, when) -> Nearest:
    """Return the vertices of $M$ nearest to the origin, which is outside of it.

    **Arguments:**

    - `start`: three vertices.
    - `when`: where this is asked for; elsewhere `start` is returned.
    """
    weights = triangle_weights(*start.points)
    first = _Search(start, weights, jnp.zeros_like(when, jnp.int32), ~when)
    going = lambda search: jnp.any(~search.done)
    end = lax.while_loop(going, lambda search: _nearer(placed, search), first)
    return _sorted(end.simplex.corners, end.weights, when)


def _nearer(placed: Placed, search: _Search) -> _Search:
    """Return the search after one more vertex."""
    # All from the corners: a compiler may evaluate a comparison twice, with different
    # rounding, and then what was chosen for corners and points would not agree.
    corners = search.simplex.corners
    old = Simplex(corners, tuple(placed.difference(each) for each in corners))
    weights = triangle_weights(*old.points)
    point = combine(weights, old.points)
    square = point | point
    corners = once(placed.support(-point))
    vertex = once(placed.difference(corners))
    rounding = 64 * float(jnp.finfo(square.dtype).eps)
    largest = jnp.maximum(square, vertex | vertex)
    # A comparison that is true for what is not a number too.
    done = search.done | ~((square - (point | vertex)) > rounding * largest)
    done = done | (search.steps >= _STEPS)
    start, best, least = (old, weights), old, square
    for k in range(3):
        swap = lambda items, new, k=k: (*items[:k], new, *items[k + 1 :])
        other = Simplex(swap(old.corners, corners), swap(old.points, vertex))
        own = triangle_weights(*other.points)
        nearest = combine(own, other.points)
        better = once((nearest | nearest) < least)
        choose = lambda x, y, better=better: jnp.where(better, x, y)
        best, weights = jtu.tree_map(choose, (other, own), (best, weights))
        least = jnp.minimum(least, nearest | nearest)
    stuck = ~(least < square)
    keep = lambda x, y: jnp.where(done, y, x)
    simplex, weights = jtu.tree_map(keep, (best, weights), start)
    return _Search(simplex, weights, search.steps + 1, done | stuck)


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


def _sorted(corners: tuple[Corners, ...], weights: tuple, outside) -> Nearest:
    """Bring the vertices that count to the front; the last of them is repeated."""
    counts = [weight > 0.0 for weight in weights]
    count = sum(x.astype(jnp.int32) for x in counts)
    pick = lambda first, one, two: jtu.tree_map(
        lambda x, y: jnp.where(first, x, y), one, two
    )
    a, b, c = corners
    first = pick(counts[0], a, pick(counts[1], b, c))
    last = pick(counts[2], c, pick(counts[1], b, a))
    second = pick(count == 3, b, last)
    return Nearest((first, second, last), count, outside)
