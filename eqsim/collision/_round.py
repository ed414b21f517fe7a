r"""Contact of convex shapes of which one is round: cylinders and ellipsoids.

With $M = A - B$ and its support function $h(n) = \max_{m \in M} n \cdot m$, the signed
distance of two shapes is $-\min_n h(n)$ over unit vectors, and the normal is where it is
attained. There, with the polytopes' vertices $p_i$ and the round part's $s(n)$,

$$\sum_i \lambda_i p_i + s(n) = h\,n, \qquad n \cdot (p_i - p_0) = 0, \qquad
\sum_i \lambda_i = 1, \quad \lambda_i \ge 0.$$

Polyhedral algorithms come near it. Newton's method on the sphere then solves it to
rounding, while vertices with $\lambda_i < 0$ leave and such beyond the plane enter. One
more Newton step, with derivatives, differentiates the solution implicitly. A face of a
cylinder, where $s(n)$ is not unique, is compared by itself.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..model import GeomKind
from ..spatial import Mat3, safe_sqrt, Vec3
from ._cores import across, Core, Corners, Placed
from ._penetration import once
from ._points import unit


_STEPS = 24
_LONGEST = 0.3


class Feature(NamedTuple):
    """Where two shapes touch.

    - `corners`: vertices of the polytopes, those that count first.
    - `count`: how many count: 1, 2 or 3.
    - `normal`: from the first to the second shape, in the frame of the first.
    - `face`: 1 or 2 if it is a face of the first or second shape, a cylinder; else 0.
    """

    corners: tuple[Corners, Corners, Corners]
    count: Any
    normal: Vec3
    face: Any


class _State(NamedTuple):
    corners: tuple[Corners, Corners, Corners]
    count: Any
    normal: Vec3
    steps: Any
    done: Any


def touching_feature(
    placed: Placed, corners: tuple[Corners, ...], normal: Vec3
) -> Feature:
    """Solve for the normal.

    **Arguments:**

    - `corners`, `normal`: three points of $M$ and a normal near the solution.
    """
    numbers = tuple(_bare(each) for each in corners)
    ordered, count = _distinct(numbers)
    steps = jnp.zeros_like(count)
    start = _State(ordered, count, normal, steps, count < 0)
    going = lambda state: jnp.any(~state.done)
    end = lax.while_loop(going, lambda state: _improved(placed, state), start)
    least, face = _height(placed, end.normal), jnp.zeros_like(count)
    direction = end.normal
    for k, core in enumerate((placed.first, placed.second)):
        if core.kind is not GeomKind.CYLINDER:
            continue
        across, height, holds = _cap(placed, k, normal)
        better = holds & (height <= least)
        direction = _where(better, across, direction)
        least = jnp.where(better, height, least)
        face = jnp.where(better, k + 1, face)
    support = tuple(_bare(each) for each in [placed.support(direction)] * 3)
    chosen = _where(face > 0, support, end.corners)
    return Feature(chosen, jnp.where(face > 0, 1, end.count), direction, face)


def _where(condition, one, two):
    return jtu.tree_map(lambda x, y: jnp.where(condition, x, y), one, two)


def _bare(corners: Corners) -> Corners:
    """Return vertices of the polytopes, without round parts."""
    one, two = corners
    return one._replace(round=None), two._replace(round=None)


def _vertex(placed: Placed, corners: Corners) -> Vec3:
    one, two = _ends(placed, corners)
    return one - two


def _ends(placed: Placed, corners: Corners) -> tuple[Vec3, Vec3]:
    one, two = corners
    second = placed.second.vertex(two.number)
    return placed.first.vertex(one.number), placed.offset.point(second)


def _same(one: Corners, two: Corners):
    return (one[0].number == two[0].number) & (one[1].number == two[1].number)


def _distinct(corners: tuple[Corners, ...]):
    """Bring distinct vertices to the front, and count them."""
    a, b, c = corners
    ab, ac, bc = _same(a, b), _same(a, c), _same(b, c)
    second = _where(ab, c, b)
    count = 1 + (~(ab & ac)).astype(jnp.int32) + (~(ab | ac | bc)).astype(jnp.int32)
    return (a, second, c), count


def _round_part(core: Core, direction: Vec3) -> tuple[Vec3, Mat3]:
    """Return the point of the round part that lies farthest in a direction, and its
    derivative by the direction."""
    size, spot = core.round_size, core.round_unit(direction)
    scaled = Vec3(*(x * s for x, s in zip(direction, size, strict=True)))
    length = safe_sqrt(scaled | scaled)
    inverse = jnp.where(length > 0.0, 1.0 / jnp.where(length > 0.0, length, 1.0), 0.0)
    point = Vec3(*(x * s for x, s in zip(spot, size, strict=True)))
    zero = jnp.zeros_like(length)
    squares = [s * s * inverse for s in size]
    plain = Mat3(squares[0], zero, zero, zero, squares[1], zero, zero, zero, squares[2])
    return point, plain - point.outer(point * inverse)


def _round(placed: Placed, normal: Vec3) -> tuple[Vec3, Mat3]:
    """Return $s(n)$ and its derivative."""
    zero = jnp.zeros_like(normal.x)
    point, rate = Vec3(zero, zero, zero), Mat3(*([zero] * 9))
    if placed.first.is_round:
        point, rate = _round_part(placed.first, normal)
    if placed.second.is_round:
        rot = placed.offset.rot
        own, slope = _round_part(placed.second, rot.T @ -normal)
        point, rate = point - (rot @ own), rate + ((rot @ slope) @ rot.T)
    return point, rate


def _height(placed: Placed, normal: Vec3):
    """Return the support function $h(n)$."""
    return normal | placed.difference(placed.support(normal))


def _improved(placed: Placed, state: _State) -> _State:
    """Return the state after one step: of Newton's method, or of the vertices."""
    points = [_vertex(placed, each) for each in state.corners]
    edges = points[1] - points[0], points[2] - points[0]
    normal = _newton(placed, points[0], edges, state.count, state.normal)
    weights = _weights(placed, points[0], edges, state.count, normal)
    least = jnp.minimum(jnp.minimum(weights[0], weights[1]), weights[2])
    leaves = once((least < -1e-9) & (state.count > 1))
    left = _without(state.corners, weights, least, state.count)
    found = once(_bare(placed.support(normal)))
    size = jnp.abs(points[0].x) + jnp.abs(points[0].y) + jnp.abs(points[0].z)
    rounding = 256 * float(jnp.finfo(size.dtype).eps)
    gain = normal | (_vertex(placed, found) - points[0])
    enters = ~leaves & (gain > rounding * size) & (state.count < 3)
    for k, each in enumerate(state.corners):
        enters = enters & ~(_same(found, each) & (state.count > k))
    grown = _with(state.corners, found, state.count)
    corners = _where(leaves, left, _where(enters, grown, state.corners))
    change = jnp.where(leaves, -1, jnp.where(enters, 1, 0))
    # A vertex that leaves says that this normal is not to be trusted.
    kept = _where(leaves, state.normal, normal)
    moved = normal - state.normal
    still = (moved | moved) <= rounding**2
    finished = still & ~leaves & ~enters | (state.steps >= _STEPS)
    new = _State(corners, state.count + change, kept, state.steps + 1, finished)
    # A comparison that is true for what is not a number too.
    lost = ~((normal | normal) > 0.5)
    new = new._replace(done=new.done | lost)
    return _where(state.done, state, new)


def _without(corners: tuple, weights, least, count):
    """Return the vertices without the one of the least weight."""
    a, b, c = corners
    first = weights[0] == least
    second = ~first & (weights[1] == least)
    return (_where(first, b, a), _where((first | second) & (count == 3), c, b), c)


def _with(corners: tuple, new: Corners, count):
    a, b, c = corners
    return (a, _where(count == 1, new, b), _where(count == 2, new, c))


def _newton(placed: Placed, origin: Vec3, edges, count, normal: Vec3) -> Vec3:
    """Return the normal after one Newton step among those perpendicular to all edges."""
    flat = unit(edges[0] ^ edges[1], normal)
    turned = jnp.where((flat | normal) < 0.0, -1.0, 1.0)
    base = _where(count >= 2, _perpendicular(normal, edges[0]), normal)
    beside = unit(across(base))
    one = _where(count >= 2, unit(edges[0] ^ base, beside), beside)
    two = base ^ one
    spot, rate = _round(placed, base)
    point = origin + spot
    height = base | point
    slope = point | one, point | two
    a, b = (one | (rate @ one)) - height, one | (rate @ two)
    c = (two | (rate @ two)) - height
    # Where the function is not convex, only steepest descent leads on.
    least = 1e-3 * (jnp.abs(a) + jnp.abs(c) + jnp.abs(height))
    det, line = a * c - b * b, a > least
    convex = line & (det > least * least)
    safe = jnp.where(convex, det, 1.0)
    scale = jnp.abs(a) + jnp.abs(b) + jnp.abs(c) + least
    scale = jnp.where(scale > 0.0, scale, 1.0)
    both = (
        jnp.where(convex, (c * slope[0] - b * slope[1]) / safe, slope[0] / scale),
        jnp.where(convex, (a * slope[1] - b * slope[0]) / safe, slope[1] / scale),
    )
    alone = slope[0] / jnp.where(line, a, scale)
    step = jnp.where(count == 1, both[0], alone), jnp.where(count == 1, both[1], 0.0)
    length = safe_sqrt(step[0] * step[0] + step[1] * step[1])
    long = length > _LONGEST
    shrink = jnp.where(long, _LONGEST / jnp.where(long, length, 1.0), 1.0)
    new = unit(base - (one * (step[0] * shrink)) - (two * (step[1] * shrink)))
    return _where(count == 3, flat * turned, new)


def _perpendicular(v: Vec3, edge: Vec3) -> Vec3:
    """Return the unit vector perpendicular to an edge that is nearest to a vector."""
    square = edge | edge
    positive = square > 0.0
    share = jnp.where(positive, (v | edge) / jnp.where(positive, square, 1.0), 0.0)
    return unit(v - (edge * share), v)


def _weights(placed: Placed, origin: Vec3, edges, count, normal: Vec3):
    """Return the weights $\\lambda$ of three vertices."""
    point = origin + _round(placed, normal)[0]
    one, two = edges
    aa, ab, bb = one | one, one | two, two | two
    a, b = -(point | one), -(point | two)
    det = aa * bb - ab * ab
    flat = det <= 0.0
    safe = jnp.where(flat, 1.0, det)
    alone = a / jnp.where(aa > 0.0, aa, 1.0)
    second = jnp.where(flat, alone, (bb * a - ab * b) / safe)
    third = jnp.where(flat, 0.0, (aa * b - ab * a) / safe)
    zero = jnp.zeros_like(alone)
    second = jnp.where(count == 3, second, jnp.where(count == 2, alone, zero))
    third = jnp.where(count == 3, third, zero)
    return 1.0 - second - third, second, third


def _cap(placed: Placed, which: int, normal: Vec3):
    """Return the normal of the face of a cylinder that is nearest to a normal, the
    support function there, and whether the point that touches lies on the face."""
    axis = _axis(placed, which)
    axis = axis * jnp.where((axis | normal) < 0.0, -1.0, 1.0)
    radius = (placed.first, placed.second)[which].size.x
    point = placed.difference(_flat_support(placed, which, axis))
    height = axis | point
    beside = point - (axis * height)
    return axis, height, (beside | beside) <= radius * radius


def _axis(placed: Placed, which: int) -> Vec3:
    zero = jnp.zeros_like(placed.offset.pos.x)
    return placed.offset.rot.columns[2] if which else Vec3(zero, zero, zero + 1.0)


def _flat_support(placed: Placed, which: int, direction: Vec3) -> Corners:
    """Return the support without the disk of a cylinder: the middle of its face."""
    corners = list(placed.support(direction))
    middle = jtu.tree_map(jnp.zeros_like, corners[which].round)
    corners[which] = corners[which]._replace(round=middle)
    return corners[0], corners[1]


def feature_contact(placed: Placed, feature: Feature):
    """Return depth, normal, and the points of both shapes that touch, with derivatives."""
    solved = _on_edges(placed, feature)
    for k, core in enumerate((placed.first, placed.second)):
        if core.kind is GeomKind.CYLINDER:
            own = _on_face(placed, k, feature)
            solved = _where(feature.face == k + 1, own, solved)
    return solved


def _on_edges(placed: Placed, feature: Feature):
    count = feature.count
    points = [_vertex(placed, each) for each in feature.corners]
    edges = points[1] - points[0], points[2] - points[0]
    # A Newton step at the solution: it moves nothing, but its derivative is that of the
    # solution.
    normal = _newton(placed, points[0], edges, count, feature.normal)
    weights = _weights(placed, points[0], edges, count, normal)
    spot = points[0] + _round(placed, normal)[0]
    ends = [_ends(placed, each) for each in feature.corners]
    sides = []
    for k, core in enumerate((placed.first, placed.second)):
        a, b, c = (end[k] * w for end, w in zip(ends, weights, strict=True))
        side = (a + b) + c
        if core.is_round and k == 0:
            side = side + _round_part(core, normal)[0]
        elif core.is_round:
            rot = placed.offset.rot
            side = side + (rot @ _round_part(core, rot.T @ -normal)[0])
        sides.append(side)
    return normal | spot, normal, tuple(sides)


def _on_face(placed: Placed, which: int, feature: Feature):
    axis = _axis(placed, which)
    normal = axis * jnp.where((axis | feature.normal) < 0.0, -1.0, 1.0)
    corners = _flat_support(placed, which, normal)
    depth = normal | placed.difference(corners)
    # The other shape has the point; the face is as far from it as it is deep.
    other = placed.ends(corners)[1 - which]
    apart = normal * depth
    return (
        (depth, normal, (other, other - apart))
        if which
        else (depth, normal, (other + apart, other))
    )
