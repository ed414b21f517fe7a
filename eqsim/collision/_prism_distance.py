r"""Nearest points of a triangular prism and a point or a segment, in closed form.

Spheres and capsules are balls about points and segments. On height fields they are by far
the most frequent shapes, so they do without the iterations of general convex shapes.

- If they overlap, the shortest way out is along a normal of the difference $M$ of both
  sets: that of a face of the prism, or of an edge and the segment.
- If they are apart, the nearest points are an end of the segment and a point of a
  triangle, or a point inside of the segment and one of an edge.

Source: Ericson, *Real-Time Collision Detection*, 2005, sections 5.1 and 5.2.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ..model._gather import concatenate, take
from ..spatial import Vec3
from ._cores import Corner
from ._points import unit
from ._rows import read_rows
from ._separation import combine, counted_first, Nearest, triangle_weights


# Vertices as in `_prisms.py`; counterclockwise seen from outside, for the left half.
_FACES = np.array([(3, 4, 5), (0, 2, 1), (0, 1, 4), (1, 2, 5), (2, 0, 3)])
_TRIANGLES = np.concatenate([_FACES, [(0, 4, 3), (1, 5, 4), (2, 3, 5)]])
_EDGES = np.array(
    [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)]
)


class _Candidates(NamedTuple):
    """Faces, edges or points of $M$ that may be nearest, `(n, *batch)`.

    - `measure`: the nearest one has the smallest.
    - `first`, `second`: numbers of the vertices of prism and segment, three of each.
    - `weights`: weights of the three points; positive for those that count.
    """

    measure: Any
    first: tuple[Any, Any, Any]
    second: tuple[Any, Any, Any]
    weights: tuple[Any, Any, Any]


def nearest_of_prism(points: Vec3, right, ends: Vec3) -> Nearest:
    """Return what is nearest of a prism and a point or a segment.

    **Arguments:**

    - `points`: vertices of the prism, `(6, *batch)`.
    - `right`: true if it is the right half of a cell.
    - `ends`: the point or the ends of the segment, `(1 or 2, *batch)`.
    """
    two = ends.x.shape[0] == 2
    inside = [_faces(points, right, ends)]
    outside = [_corners(points, ends, k) for k in range(ends.x.shape[0])]
    if two:
        inside += _edges_across(points, ends)
        outside += [_edges_apart(points, ends), _vertices_apart(points, ends)]
    deepest, nearest = (_smallest(concatenate(each)) for each in (inside, outside))
    apart = ~(deepest.measure > 0.0)
    best = jtu.tree_map(lambda x, y: jnp.where(apart, x, y), nearest, deepest)
    corners = tuple(
        (Corner(a, None), Corner(b, None))
        for a, b in zip(best.first, best.second, strict=True)
    )
    return counted_first(corners, [x > 0.0 for x in best.weights], apart)


def _smallest(all_of_them: _Candidates) -> _Candidates:
    best = jnp.argmin(all_of_them.measure, axis=0, keepdims=True).astype(jnp.int32)
    return jtu.tree_map(lambda x: read_rows(x, best), all_of_them)


def _numbers(table, like) -> tuple[Any, Any, Any]:
    """Return the columns of a table as arrays of the shape of `like`."""
    zero = jnp.zeros(like.shape, jnp.int32)
    shape = -1, *(1 for _ in like.shape[1:])
    columns = np.asarray(table, np.int32).T
    a, b, c = (zero + jnp.asarray(column.reshape(shape)) for column in columns)
    return a, b, c


def _ones(like) -> tuple[Any, Any, Any]:
    one = jnp.ones_like(like)
    return one, one, one


def _faces(points: Vec3, right, ends: Vec3) -> _Candidates:
    """Compare the depths below the faces of the prism."""
    a, b, c = (take(points, _FACES[:, k]) for k in range(3))
    side = jnp.where(right, -1.0, 1.0).astype(a.x.dtype)
    normal = unit((b - a) ^ (c - a)) * side
    low, second = normal | take(ends, [0]), jnp.zeros(a.x.shape, jnp.int32)
    if ends.x.shape[0] == 2:
        other = normal | take(ends, [1])
        second, low = jnp.where(other < low, 1, second), jnp.minimum(low, other)
    depth = (normal | a) - low
    one, two, three = _numbers(_FACES, depth)
    turned = one, jnp.where(right, three, two), jnp.where(right, two, three)
    return _Candidates(depth, turned, (second, second, second), _ones(depth))


def _edges_across(points: Vec3, ends: Vec3) -> list[_Candidates]:
    """Compare the depths along normals of an edge and the segment, both ways."""
    start, stop = (take(points, _EDGES[:, k]) for k in range(2))
    first, last = take(ends, [0]), take(ends, [1])
    edge, line = stop - start, last - first
    across = edge ^ line
    eps = float(jnp.finfo(across.x.dtype).eps)
    slanted = (across | across) > (64 * eps) ** 2 * (edge | edge) * (line | line)
    normal = unit(across)
    heights = [normal | take(points, [k]) for k in range(6)]
    top = bottom = heights[0]
    for height in heights[1:]:
        top, bottom = jnp.maximum(top, height), jnp.minimum(bottom, height)
    rounding = 64 * eps * jnp.maximum(jnp.abs(top), jnp.abs(bottom))
    at, depth = normal | start, normal | (start - first)
    found = []
    for sign, reached in ((1.0, at >= top - rounding), (-1.0, at <= bottom + rounding)):
        measure = jnp.where(slanted & reached, sign * depth, jnp.inf)
        # The corners turn so that the normal leads out of the difference.
        order = (0, 0, 1) if sign > 0.0 else (0, 1, 0)
        ends_in_order = (0, 1, 0) if sign > 0.0 else (0, 0, 1)
        numbers = _numbers(_EDGES[:, order], depth)
        others = _numbers(np.tile(ends_in_order, (len(_EDGES), 1)), depth)
        found.append(_Candidates(measure, numbers, others, _ones(depth)))
    return found


def _corners(points: Vec3, ends: Vec3, which: int) -> _Candidates:
    """Compare the distances of an end from the triangles of the prism."""
    end = take(ends, [which])
    corners = tuple(take(points, _TRIANGLES[:, k]) - end for k in range(3))
    weights = triangle_weights(*corners)
    point = combine(weights, corners)
    square = point | point
    second = jnp.full(square.shape, which, jnp.int32)
    numbers = _numbers(_TRIANGLES, square)
    return _Candidates(square, numbers, (second, second, second), weights)


def _edges_apart(points: Vec3, ends: Vec3) -> _Candidates:
    """Compare the distances of points inside of the edges and of the segment."""
    start, stop = (take(points, _EDGES[:, k]) for k in range(2))
    first, last = take(ends, [0]), take(ends, [1])
    edge, line, apart = stop - start, last - first, start - first
    aa, ab, bb = edge | edge, edge | line, line | line
    a, b = edge | apart, line | apart
    det = aa * bb - ab * ab
    slanted = det > 64 * float(jnp.finfo(det.dtype).eps) * aa * bb
    safe = jnp.where(slanted, det, 1.0)
    on_edge, on_line = (ab * b - bb * a) / safe, (aa * b - ab * a) / safe
    within = lambda x: (x > 0.0) & (x < 1.0)
    between = apart + (edge * on_edge) - (line * on_line)
    valid = slanted & within(on_edge) & within(on_line)
    square = jnp.where(valid, between | between, jnp.inf)
    numbers = _numbers(_EDGES[:, (0, 0, 1)], square)
    others = _numbers(np.tile((0, 1, 0), (len(_EDGES), 1)), square)
    return _Candidates(square, numbers, others, _ones(square))


def _vertices_apart(points: Vec3, ends: Vec3) -> _Candidates:
    """Compare the distances of the vertices from points inside of the segment."""
    first, last = take(ends, [0]), take(ends, [1])
    line, apart = last - first, points - first
    square, along = line | line, line | apart
    positive = square > 0.0
    share = along / jnp.where(positive, square, 1.0)
    between = apart - (line * share)
    valid = positive & (share > 0.0) & (share < 1.0)
    measure = jnp.where(valid, between | between, jnp.inf)
    numbers = _numbers(np.tile(np.arange(6)[:, None], (1, 3)), measure)
    others = _numbers(np.tile((0, 1, 1), (6, 1)), measure)
    one, two, _ = _ones(measure)
    return _Candidates(measure, numbers, others, (one, two, jnp.zeros_like(one)))
