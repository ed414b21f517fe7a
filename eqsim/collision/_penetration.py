r"""How deep two convex polytopes are in each other: expanding polytope algorithm.

The difference $M = \{a - b\}$ of two convex sets contains the origin where they overlap,
and its face nearest to the origin is the shortest way out. A polytope inside of $M$ is
expanded at its own nearest face until that is a face of $M$. Faces are compared by the
signed distance of their planes, so that the origin may lie outside at first: then a
plane that separates the two sets is found.

Source: van den Bergen, *Proximity queries and penetration depth computation on 3D game
objects*, 2001.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..spatial import Vec3
from ._cores import Corners, pick, Placed


# A vertex is a bit of an int32.
_VERTICES = 32
_FACES = 2 * _VERTICES - 4
_NEVER = 1e30
# Round shapes need no more: Newton's method follows. As a share of their size.
_ROUND_SHARE = 1e-4


class Simplex(NamedTuple):
    """Three points of $M$: those of both shapes, and their differences."""

    corners: tuple[Corners, ...]
    points: tuple[Vec3, ...]


class Face(NamedTuple):
    """The face of $M$ whose plane has the smallest signed distance from the origin.

    - `simplex`: its corners; counterclockwise, seen from outside.
    - `dist`: signed distance; negative if the origin is outside.
    - `apart`: whether the sets are farther apart than was asked for.
    """

    simplex: Simplex
    dist: Any
    apart: Any


class _Faces(NamedTuple):
    """Faces of the polytope: corners, outer normals, signed distances of the planes from
    the origin; infinite where there is no face."""

    corners: tuple[Any, Any, Any]
    normal: Vec3
    dist: Any


class _Polytope(NamedTuple):
    """Vertices, `(_VERTICES, *batch)`, faces, `(_FACES, *batch)`, number of vertices, and
    whether no more are needed."""

    corners: Corners
    points: Vec3
    faces: _Faces
    count: Any
    done: Any
    apart: Any


def nearest_face(placed: Placed, reach, toward: Vec3) -> Face:
    """Return the face of $M$ that is nearest to the origin.

    **Arguments:**

    - `reach`: distance beyond which sets need not be told apart further.
    - `toward`: a direction from the first to the second set.
    """
    start = _tetrahedron(placed, _first_tetrahedron(placed, toward))
    size = jnp.sqrt(jnp.max(start.points | start.points, axis=0, keepdims=True))
    rounding = 64 * float(jnp.finfo(size.dtype).eps) * size
    enough = _ROUND_SHARE * size if placed.is_round else rounding
    expand = lambda polytope: _expanded(placed, polytope, reach, rounding, enough)
    more = lambda polytope: jnp.any(~polytope.done)
    end = lax.while_loop(more, expand, start)
    best = _argmin(end.faces.dist)
    corners = tuple(_row(corner, best) for corner in end.faces.corners)
    found = [
        jtu.tree_map(lambda x, k=k: _row(x, k), (end.corners, end.points))
        for k in corners
    ]
    simplex = Simplex(*zip(*found, strict=True))
    return Face(simplex, _row(end.faces.dist, best), end.apart)


def _first_tetrahedron(placed: Placed, toward: Vec3) -> list[Corners]:
    """Return four points of $M$ that are not in one plane. The first three
    turn counterclockwise, seen from outside."""

    def farthest(direction, origin):
        """The vertex that is farthest along a direction, or against it."""
        one, two = placed.support(direction), placed.support(-direction)
        far = lambda corners: jnp.abs(direction | (placed.difference(corners) - origin))
        return _either(far(one) >= far(two), one, two)

    a, b = placed.support(toward), placed.support(-toward)
    origin, other = map(placed.difference, (a, b))
    line = other - origin
    c = farthest(_across(line), origin)
    normal = line ^ (placed.difference(c) - origin)
    d = farthest(normal, origin)
    outward = (normal | (placed.difference(d) - origin)) < 0.0
    return [a, _either(outward, b, c), _either(outward, c, b), d]


def once(x):
    """Keep a compiler from evaluating something twice, with different rounding: where
    decisions contradict each other, the polytope is not closed."""
    return lax.optimization_barrier(x)


def _either(first, one: Corners, two: Corners) -> Corners:
    """Choose between two points."""
    return once(jtu.tree_map(lambda x, y: jnp.where(first, x, y), one, two))


def _across(v: Vec3) -> Vec3:
    """Return a vector that is perpendicular to another one."""
    x, y, z = map(jnp.abs, v)
    zero = jnp.zeros_like(v.x)
    flat = (x <= y) & (x <= z)
    one, two = Vec3(zero, v.z, -v.y), Vec3(v.y, -v.x, zero)
    return Vec3(*(jnp.where(flat, p, q) for p, q in zip(one, two, strict=True)))


def _tetrahedron(placed: Placed, corners: list[Corners]) -> _Polytope:
    points = [placed.difference(each) for each in corners]
    fill = lambda xs, size: jnp.concatenate([*xs, *[xs[-1]] * (size - len(xs))])
    column = lambda *xs: fill(list(xs), _VERTICES)
    stored, vertices = jtu.tree_map(column, *corners), jtu.tree_map(column, *points)
    zero = jnp.zeros_like(points[0].x)
    whole = lambda value: (value + zero).astype(jnp.int32)
    faces = [
        _face(tuple(map(whole, three)), tuple(points[k] for k in three))
        for three in ((0, 1, 2), (0, 3, 1), (1, 3, 2), (2, 3, 0))
    ]
    joined = jtu.tree_map(lambda *xs: fill(list(xs), _FACES), *faces)
    empty = _count(joined.dist) >= len(faces)
    joined = joined._replace(dist=jnp.where(empty, jnp.inf, joined.dist))
    never = zero != zero
    return _Polytope(stored, vertices, joined, whole(4), never, never)


def _face(corners: tuple, points: tuple[Vec3, ...]) -> _Faces:
    """Return one face; a face without area is never the nearest one."""
    a, b, c = points
    one, two = b - a, c - a
    normal = one ^ two
    area, tiny = normal | normal, float(jnp.finfo(a.x.dtype).eps) ** 2
    flat = area <= tiny * (one | one) * (two | two)
    scale = jnp.where(flat, 0.0, 1.0 / jnp.sqrt(jnp.where(flat, 1.0, area)))
    normal = normal * scale
    return _Faces(corners, normal, jnp.where(flat, _NEVER, normal | a))


def _expanded(
    placed: Placed, polytope: _Polytope, reach, rounding, enough
) -> _Polytope:
    """Return the polytope with one more vertex, beyond its nearest face, if that is more
    than `enough` inside of $M$."""
    faces = polytope.faces
    best = once(_argmin(faces.dist))
    normal, dist = pick(faces.normal, best), _row(faces.dist, best)
    corners = once(placed.support(normal))
    point = once(placed.difference(corners))
    far = normal | point
    apart = far < -reach
    # A comparison that is true for what is not a number too.
    done = polytope.done | apart | ~(far - dist > enough)
    done = once(done | (polytope.count >= _VERTICES))
    at = polytope.count
    write = lambda x, y: _written(x, at, y, ~done)
    grown = jtu.tree_map(write, (polytope.corners, polytope.points), (corners, point))
    beyond = (faces.normal | point) - faces.dist
    visible = once((beyond > rounding) & (faces.dist < _NEVER) & ~done)
    return _Polytope(
        corners=grown[0],
        points=grown[1],
        faces=_with_fan(faces, grown[1], visible, at),
        count=at + jnp.where(done, 0, 1).astype(at.dtype),
        done=done,
        apart=polytope.apart | (apart & ~polytope.done),
    )


def _with_fan(faces: _Faces, points: Vec3, visible, at) -> _Faces:
    """Replace visible faces by those that join their outline with a vertex."""
    following, first = _queue(visible)
    size = visible.shape[0]

    def mark(carry):
        face, marks = carry
        a, b, c = (
            _row(corner, jnp.minimum(face, size - 1)) for corner in faces.corners
        )
        for one, two in ((a, b), (b, c), (c, a)):
            bit = _row(marks, one) | (1 << two)
            marks = _written(marks, one, bit, face < size)
        return _next(following, face), marks

    def join(carry):
        face, new = carry
        a, b, c = (
            _row(corner, jnp.minimum(face, size - 1)) for corner in faces.corners
        )
        for one, two in ((a, b), (b, c), (c, a)):
            outline = ((_row(marks, two) >> one) & 1) == 0
            corners = one, two, at
            added = once(_face(corners, tuple(pick(points, k) for k in corners)))
            free = _argmin(jnp.where(jnp.isinf(new.dist), 0.0, 1.0))
            keep = outline & (face < size)
            new = jtu.tree_map(lambda x, y: _written(x, free, y, keep), new, added)
        return _next(following, face), new

    going = lambda carry: jnp.any(carry[0] < size)
    none = jnp.zeros((_VERTICES, *at.shape[1:]), at.dtype)
    marks = lax.while_loop(going, mark, (first, none))[1]
    left = faces._replace(dist=jnp.where(visible, jnp.inf, faces.dist))
    return lax.while_loop(going, join, (first, left))[1]


def _queue(chosen):
    """Return, for each row, the next one that is chosen, and the first of all."""
    size = chosen.shape[0]
    rows = jnp.where(chosen, _count(chosen), size)
    following = lax.cummin(rows, axis=0, reverse=True)
    return following, following[:1]


def _next(following, row):
    size = following.shape[0]
    after = jnp.minimum(row + 1, size - 1)
    return jnp.where(row + 1 < size, _row(following, after), size)


def _count(x):
    """Return the number of each row."""
    rows = jnp.arange(x.shape[0], dtype=jnp.int32)
    return rows.reshape(-1, *(1 for _ in x.shape[1:])) + jnp.zeros(x.shape, jnp.int32)


def _row(x, number):
    return jnp.take_along_axis(x, number, axis=0, mode="promise_in_bounds")


def _written(x, number, value, when):
    """Replace one row of each environment."""
    return jnp.where((_count(x) == number) & when, value, x)


def _argmin(x):
    return jnp.argmin(x, axis=0, keepdims=True).astype(jnp.int32)
