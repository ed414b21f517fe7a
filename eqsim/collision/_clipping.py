r"""The overlap of two convex polygons, or of a segment and one, in a plane.

The subject is cut by the line through each side of the base, one after the other
(Sutherland and Hodgman, *Reentrant polygon clipping*, 1974). Each corner of what is left is
told by the two lines that cross there, such that its place can be computed again, with
derivatives.

Of more than four corners, MuJoCo keeps the four that a greedy search for the quadrilateral
of largest area ends with.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._calls import are_rows_together
from ..spatial import Vec3
from ._points import unit
from ._rows import count_rows, read_rows, write_row


class Plane(NamedTuple):
    """Coordinates in a plane: a point of it, and its normal."""

    origin: Vec3
    normal: Vec3

    @property
    def axes(self) -> tuple[Vec3, Vec3]:
        """Two unit vectors in the plane; with the normal they are right-handed."""
        x, y, z = map(jnp.abs, self.normal)
        zero, one = jnp.zeros_like(x), jnp.ones_like(x)
        flat = (x <= y) & (x <= z)
        other = Vec3(jnp.where(flat, one, zero), jnp.where(flat, zero, one), zero)
        first = unit(other - (self.normal * (self.normal | other)))
        return first, self.normal ^ first

    def coordinates(self, points: Vec3) -> tuple[Any, Any]:
        """Return the coordinates of the projections of points."""
        arm = points - self.origin
        first, second = self.axes
        return first | arm, second | arm

    def height(self, points: Vec3):
        """Return the distances of points from the plane."""
        return self.normal | (points - self.origin)


class Outline(NamedTuple):
    """A polygon: its corners, `(n, *batch)`, of which the first `count` exist.

    - `x`, `y`: coordinates.
    - `z`: height of the corner of the subject, which need not be planar, over the plane.
    - `before`, `after`: numbers of the lines that cross there. The first `n / 2` belong to
        the subject, the others to the base.
    """

    x: Any
    y: Any
    z: Any
    before: Any
    after: Any
    count: Any


def overlap(base: tuple, subject: tuple, counts: tuple, tolerance: float) -> Outline:
    """Return the part of a subject that is inside of a base; both clockwise.

    **Arguments:**

    - `base`, `subject`: coordinates of the corners, `(size, *batch)` each; those of the
        subject with heights over the plane of the base.
    - `counts`: numbers of corners of base and subject.
    - `tolerance`: points count as inside up to this distance.
    """
    size = base[0].shape[0]
    double = lambda x: jnp.concatenate([x, jnp.zeros_like(x)])
    rows = count_rows(jnp.zeros((2 * size, *counts[1].shape[1:]))) + 0 * counts[1]
    before = jnp.where(rows == 0, counts[1] - 1, rows - 1)
    x, y, z = (x + 0.0 * counts[0].astype(x.dtype) for x in map(double, subject))
    start = Outline(x, y, z, before, rows, counts[1])

    def cut(carry):
        k, outline = carry
        active = k < counts[0]
        side = side_of(base, counts[0], jnp.minimum(k, counts[0] - 1))
        cut = _cut(outline, side, k + size, active, tolerance)
        choose = lambda x, y: jnp.where(active, x, y)
        return k + 1, jtu.tree_map(choose, cut, outline)

    more = lambda carry: jnp.any((carry[0] < counts[0]) & (carry[1].count > 0))
    return lax.while_loop(more, cut, (jnp.zeros_like(counts[0]), start))[1]


class Side(NamedTuple):
    """A line: a point, and the unit vector to the side that is kept."""

    x: Any
    y: Any
    inward_x: Any
    inward_y: Any

    def height(self, x, y):
        """Return the distance of a point from the line, positive on the side kept."""
        return (x - self.x) * self.inward_x + (y - self.y) * self.inward_y

    def holds(self, ends: list, tolerance):
        """Return whether both ends of a side of another polygon lie on this line."""
        one, two = (jnp.abs(self.height(*end)) <= tolerance for end in ends)
        return one & two

    @property
    def is_upper(self):
        """True for one of two opposite sides of a polygon."""
        return 0.83 * self.inward_x + 0.56 * self.inward_y < 0.0


def side_of(base: tuple, count, number) -> Side:
    """Return the line through a side of a polygon of `count` corners."""
    following = jnp.where(number + 1 < count, number + 1, 0)
    x, y = (read_rows(c, number) for c in base)
    along_x, along_y = (
        read_rows(base[0], following) - x,
        read_rows(base[1], following) - y,
    )
    square = along_x**2 + along_y**2
    positive = square > 0.0
    scale = jnp.where(positive, 1.0 / jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)
    return Side(x, y, along_y * scale, -along_x * scale)


_ALIGNED = 2.0**-22
"""Distance of aligned sides, relative to the size of a polygon. Vertices of meshes are
rounded to single precision."""


def aligned_lines(base: tuple, subject: tuple, counts: tuple, lines):
    """Replace lines by those of the other polygon that lie on them, where these are chosen:
    those of the base on its upper sides, those of the subject on lower sides. See `Outline`
    for the numbers.

    A corner where aligned sides meet moves with the one polygon in one direction and with
    the other in the opposite direction. If all aligned sides were those of one polygon, the
    overlap would move with it, instead of half as far.

    **Arguments:**

    - `base`, `subject`, `counts`: see `overlap`.
    - `lines`: numbers of lines, `(n, *batch)`.
    """
    size = base[0].shape[0]
    most = [jnp.max(jnp.abs(c), axis=0, keepdims=True) for c in base]
    small = _ALIGNED * (most[0] + most[1])
    of_base = lines >= size
    number = jnp.where(of_base, lines - size, lines)
    ends = _ends(subject, counts[1], jnp.where(of_base, 0, number))
    side = side_of(base, counts[0], jnp.where(of_base, number, 0))

    def visit(carry):
        k, found = carry
        here, there = (jnp.minimum(k, count - 1) for count in counts)
        other = side_of(base, counts[0], here)
        to_base = other.holds(ends, small) & other.is_upper & ~of_base
        to_base = to_base & (k < counts[0])
        own = side.holds(_ends(subject, counts[1], there), small)
        to_subject = own & ~side.is_upper & of_base & (k < counts[1])
        found = jnp.where(to_base, k + size, jnp.where(to_subject, k, found))
        return k + 1, found

    more = lambda carry: jnp.any(carry[0] < jnp.maximum(*counts))
    start = jnp.zeros_like(counts[0] + counts[1]), lines
    return lax.while_loop(more, visit, start)[1]


def _ends(polygon: tuple, count, number) -> list:
    """Return the coordinates of both ends of a side."""
    following = jnp.where(number + 1 < count, number + 1, 0)
    return [[read_rows(c, k) for c in polygon[:2]] for k in (number, following)]


def _cut(old: Outline, side: Side, line, active, tolerance) -> Outline:
    """Return what is left of a polygon on one side of a line."""
    limit = jnp.where(active, old.count, 0)

    def edge(k, here):
        """Return the corner at which an edge crosses the line, if it does, and the next
        corner, if it is left."""
        following = jnp.where(k + 1 < old.count, k + 1, 0)
        there = jtu.tree_map(lambda x: read_rows(x, following), old[:-1])
        one, two = side.height(*here[:2]), side.height(*there[:2])
        inside, enters = one > -tolerance, two > -tolerance
        across = inside ^ enters
        rise = two - one
        share = -one / jnp.where(rise == 0.0, 1.0, rise)
        crosses = across & (rise != 0.0) & (share >= 0.0) & (share <= 1.0) & (k < limit)
        place = (p + share * (q - p) for p, q in zip(here[:3], there[:3], strict=True))
        lines = jnp.where(enters, line, here[4]), jnp.where(enters, here[4], line)
        return (*place, *lines), crosses, there, enters & (k < limit)

    if are_rows_together():
        corner, crosses, there, enters = edge(count_rows(old.x), old[:-1])
        twice = lambda x, y: jnp.stack([x, y], 1).reshape(-1, *x.shape[1:])
        return _chosen(jtu.tree_map(twice, corner, there), twice(crosses, enters))

    def visit(carry):
        k, last, new = carry
        corner, crosses, there, enters = edge(k, last)
        new = _with_corner(new, corner, crosses)
        return k + 1, there, _with_corner(new, there, enters)

    none = old._replace(count=jnp.zeros_like(old.count))
    first = jtu.tree_map(lambda x: x[:1], old[:-1])
    more = lambda carry: jnp.any(carry[0] < limit)
    zero = jnp.zeros_like(old.count)
    return lax.while_loop(more, visit, (zero, first, none))[2]


def _chosen(corners: tuple, chosen) -> Outline:
    """Return an outline of half as many rows, of the chosen ones of some corners."""
    size, rows = chosen.shape[0] // 2, count_rows(chosen)
    place = jnp.cumsum(chosen, axis=0, dtype=jnp.int32) - 1
    others = jnp.indices(chosen.shape, dtype=jnp.int32, sparse=True)[1:]
    place = jnp.where(chosen, place, chosen.shape[0])
    number = jnp.zeros((size, *chosen.shape[1:]), jnp.int32)
    number = number.at[(place, *others)].set(rows, mode="drop")
    count = jnp.sum(chosen, axis=0, keepdims=True, dtype=jnp.int32)
    x, y, z, before, after = (read_rows(x, number) for x in corners)
    return Outline(x, y, z, before, after, count)


def _with_corner(outline: Outline, corner: tuple, when) -> Outline:
    count = outline.count
    x, y, z, before, after = (
        write_row(old, count, value, when)
        for old, value in zip(outline[:-1], corner, strict=True)
    )
    return Outline(x, y, z, before, after, count + jnp.where(when, 1, 0))


def kept(outline: Outline, keep) -> Outline:
    """Return the corners that are kept, `(n, *batch)`."""
    new = outline._replace(count=jnp.zeros_like(outline.count))
    if are_rows_together():
        chosen = keep & (count_rows(keep) < outline.count)
        none = jnp.zeros_like(chosen)
        double = lambda x: jnp.concatenate([x, x])
        corners = tuple(map(double, outline[:-1]))
        return _chosen(corners, jnp.concatenate([chosen, none]))

    def visit(carry):
        k, new = carry
        corner = jtu.tree_map(lambda x: read_rows(x, k), outline[:-1])
        when = read_rows(keep, k) & (k < outline.count)
        return k + 1, _with_corner(new, corner, when)

    more = lambda carry: jnp.any(carry[0] < outline.count)
    return lax.while_loop(more, visit, (jnp.zeros_like(outline.count), new))[1]


class _Quad(NamedTuple):
    """Search for four corners: the current and the best ones, the best area, which corner
    is moved next (0: the fourth, 1: the third, 2: the second), and how often the first
    one was moved."""

    corners: tuple[Any, Any, Any, Any]
    best: tuple[Any, Any, Any, Any]
    area: Any
    moved: Any


def four_corners(x, y, count, *, with_first: bool = False) -> tuple[Any, Any, Any, Any]:
    """Return four corners of a polygon: all it has, or those of a large quadrilateral.

    **Arguments:**

    - `with_first`: true to keep the first corner.
    """
    tries = jnp.minimum(count, 1) if with_first else count
    last, same = x.shape[0] - 1, 1024 * float(jnp.finfo(x.dtype).eps)
    point = lambda k: [read_rows(c, jnp.minimum(k, last)) for c in (x, y)]
    following = lambda k: jnp.where(k + 1 < count, k + 1, 0)

    def area(a, b, c, d):
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = map(point, (a, b, c, d))
        return jnp.abs((ax - cx) * (by - dy) - (ay - cy) * (bx - dx))

    def step(quad: _Quad) -> _Quad:
        a, b, c, d = quad.corners
        moves = [quad.moved == k for k in range(3)]
        ahead = lambda move, k: jnp.where(move, following(k), k)
        tried = a, ahead(moves[2], b), ahead(moves[1], c), ahead(moves[0], d)
        size = area(*tried)
        active = a < tries
        # Rounding does not choose between equal areas.
        better = active & (size > quad.area + same * quad.area)
        choose = lambda when, new, old: jtu.tree_map(
            lambda p, q: jnp.where(when, p, q), new, old
        )
        corners = choose(better, tried, quad.corners)
        best = choose(better, tried, quad.best)
        # The first corner moves on, and pushes those that it reaches.
        stuck = active & ~better & moves[0]
        push_b = b == a
        pushed_b = jnp.where(push_b, following(b), b)
        push_c = push_b & (c == pushed_b)
        pushed_c = jnp.where(push_c, following(c), c)
        pushed_d = jnp.where(push_c & (d == pushed_c), following(d), d)
        corners = choose(stuck, (a + 1, pushed_b, pushed_c, pushed_d), corners)
        onward = jnp.where(moves[0], jnp.where(better, 1, 0), quad.moved)
        onward = jnp.where(moves[1] & ~better, 2, onward)
        onward = jnp.where(moves[2] & ~better, 0, onward)
        return _Quad(corners, best, jnp.where(better, size, quad.area), onward)

    zero = jnp.zeros_like(count)
    many = count > 4
    one, two, three = (jnp.minimum(k, jnp.maximum(count - 1, 0)) for k in (1, 2, 3))
    first = jnp.where(many, zero, count)
    best = zero, one, two, three
    start = _Quad((first, one, two, three), best, area(*best), zero)
    more = lambda quad: jnp.any(quad.corners[0] < tries)
    return lax.while_loop(more, step, start).best
