"""Contact of convex shapes of which one is round, by Newton's method and by descent."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._loops import once
from ..model import GeomKind
from ..spatial import clamp, Mat3, safe_sqrt, Vec3
from ._convex_shapes import across, Core, Corners, Placed
from .points import unit, unit_normal


# Contact of convex shapes of which one is round: cylinders and ellipsoids.
#
# With $M = A - B$ and its support function $h(n) = \max_{m \in M} n \cdot m$, the signed
# distance of two shapes is $-\min_n h(n)$ over unit vectors, and the normal is where it is
# attained. There, with the polytopes' vertices $p_i$ and the round part's $s(n)$,
#
# $$\sum_i \lambda_i p_i + s(n) = h\,n, \qquad n \cdot (p_i - p_0) = 0, \qquad
# \sum_i \lambda_i = 1, \quad \lambda_i \ge 0.$$
#
# Polyhedral algorithms come near it. Newton's method on the sphere then solves it to
# rounding: vertices with $\lambda_i < 0$ leave, a step ends where another vertex becomes as
# far as the others, which enters, and a step that does not lower $h$ is shortened. One more
# Newton step, with derivatives, differentiates the solution implicitly. A face of a cylinder,
# where $s(n)$ is not unique, is compared by itself.


_LONGEST = 0.3


class Feature(NamedTuple):
    """Contact of two shapes.

    - `corners`: vertices of the polytopes, those that count first.
    - `count`: number of vertices that hold the nearest point: 1, 2 or 3.
    - `normal`: direction from the first to the second shape, in the frame of the first.
    - `face`: 1 or 2 if it is a face of the first or second shape, a cylinder; else 0.
    """

    corners: tuple[Corners, Corners, Corners]
    count: Any
    normal: Vec3
    face: Any


def choose(condition, one, two):
    return jtu.tree_map(lambda x, y: jnp.where(condition, x, y), one, two)


def bare(corners: Corners) -> Corners:
    """Return vertices of the polytopes, without round parts."""
    one, two = corners
    return one._replace(round=None), two._replace(round=None)


def vertex(placed: Placed, corners: Corners) -> Vec3:
    one, two = _ends(placed, corners)
    return one - two


def _ends(placed: Placed, corners: Corners) -> tuple[Vec3, Vec3]:
    one, two = corners
    second = placed.second.vertex(two.number)
    return placed.first.vertex(one.number), placed.offset.point(second)


def _round_part(core: Core, direction: Vec3) -> tuple[Vec3, Mat3]:
    """Return the point of the round part that lies farthest in a direction, and its
    derivative by the direction."""
    size, spot = core.round_size, core.round_unit(direction)
    scaled = Vec3(*(x * s for x, s in zip(direction, size, strict=True)))
    length = safe_sqrt(scaled.dot(scaled))
    eps = float(jnp.finfo(length.dtype).eps)
    # A flat ellipsoid has no curvature across; near the axis of a cylinder, rounding would
    # choose the point of the face.
    tiny = eps**2 * ((size.x + size.y) + size.z)
    if core.kind is GeomKind.CYLINDER:
        tiny = 64 * eps * size.x
    positive = length > tiny
    inverse = jnp.where(positive, 1.0 / jnp.where(positive, length, 1.0), 0.0)
    flat = jnp.where(positive, 1.0, 0.0).astype(length.dtype)
    point = Vec3(*(x * s * flat for x, s in zip(spot, size, strict=True)))
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


def support_height(placed: Placed, normal: Vec3):
    """Return the support function $h(n)$."""
    return normal.dot(placed.difference(placed.support(normal)))


def newton(placed: Placed, origin: Vec3, edges, count, normal: Vec3) -> Vec3:
    """Return the normal after one Newton step among those perpendicular to all edges."""
    base, step = newton_step(placed, origin, edges, count, normal)
    flat = unit_normal(edges[0], edges[1], normal)
    turned = jnp.where(flat.dot(normal) < 0.0, -1.0, 1.0)
    return choose(count == 3, flat * turned, unit(base + step))


def newton_step(
    placed: Placed, origin: Vec3, edges, count, normal: Vec3
) -> tuple[Vec3, Vec3]:
    """Return the nearest normal that is perpendicular to the first edge, and a Newton step
    from there; zero if there are two edges."""
    base = choose(count >= 2, _perpendicular(normal, edges[0]), normal)
    beside = unit(across(base))
    one = choose(count >= 2, unit(edges[0].cross(base), beside), beside)
    two = base.cross(one)
    spot, rate = _round(placed, base)
    point = origin + spot
    height = base.dot(point)
    slope = point.dot(one), point.dot(two)
    a, b = one.dot(rate @ one) - height, one.dot(rate @ two)
    c = two.dot(rate @ two) - height
    small = float(jnp.finfo(height.dtype).eps) ** 0.5
    both = _downhill((a, b, c), slope, small * jnp.abs(height), _at_kink(placed, base))
    least = small * (jnp.abs(a) + jnp.abs(height))
    bend = jnp.where(a > least, a, jnp.maximum(jnp.abs(a), least))
    alone = slope[0] / jnp.where(bend > 0.0, bend, 1.0)
    step = jnp.where(count == 1, both[0], alone), jnp.where(count == 1, both[1], 0.0)
    length = safe_sqrt(step[0] * step[0] + step[1] * step[1])
    long = length > _LONGEST
    shrink = jnp.where(long, _LONGEST / jnp.where(long, length, 1.0), 1.0)
    shrink = jnp.where(count == 3, 0.0, shrink)
    return base, -(one * (step[0] * shrink)) - (two * (step[1] * shrink))


def _downhill(bend: tuple, slope: tuple, least, kink) -> tuple[Any, Any]:
    """Return the way from the solution of a quadratic function of two variables; where it
    is not convex, that of one with the absolute values of its curvatures.

    **Arguments:**

    - `bend`: entries of the symmetric matrix of second derivatives.
    - `slope`: first derivatives.
    - `least`: curvatures below this are raised.
    - `kink`: true where the slope is reversed.
    """
    a, b, c = bend
    small = float(jnp.finfo(a.dtype).eps) ** 0.5
    least = least + small * (jnp.abs(a) + jnp.abs(c))
    det = a * c - b * b
    convex = (a > 0.0) & (c > 0.0) & (det > least * (a + c)) & ~kink
    square = jnp.maximum(jnp.abs(det), least * least)
    spread = safe_sqrt((a - c) * (a - c) + 4.0 * b * b)
    total = jnp.maximum(jnp.abs(a + c), spread) + least
    total = jnp.where(total > 0.0, total, 1.0)
    first, cross = (a * a + b * b + square) / total, b * (a + c) / total
    last = (b * b + c * c + square) / total
    round_ = jnp.maximum(first, last)
    first, last = (jnp.where(kink, round_, x) for x in (first, last))
    cross = jnp.where(kink, 0.0, cross)
    either = lambda x, y: jnp.where(convex, x, y)
    p, q, r = either(a, first), either(b, cross), either(c, last)
    size = either(det, first * last - cross * cross)
    size = jnp.where(size > 0.0, size, 1.0)
    return (r * slope[0] - q * slope[1]) / size, (p * slope[1] - q * slope[0]) / size


def _at_kink(placed: Placed, normal: Vec3):
    """Return whether a normal is that of a face of a cylinder."""
    kink = normal.x != normal.x
    for k, core in enumerate((placed.first, placed.second)):
        if core.kind is GeomKind.CYLINDER:
            beside = normal.cross(cap_axis(placed, k))
            tiny = 64 * float(jnp.finfo(normal.x.dtype).eps)
            kink = kink | (beside.dot(beside) <= tiny**2)
    return kink


def _perpendicular(v: Vec3, edge: Vec3) -> Vec3:
    """Return the unit vector perpendicular to an edge that is nearest to a vector."""
    square = edge.dot(edge)
    positive = square > 0.0
    share = jnp.where(positive, v.dot(edge) / jnp.where(positive, square, 1.0), 0.0)
    return unit(v - (edge * share), v)


def vertex_weights(placed: Placed, origin: Vec3, edges, count, normal: Vec3):
    """Return the weights $\\lambda$ of three vertices."""
    point = origin + _round(placed, normal)[0]
    one, two = edges
    aa, ab, bb = one.dot(one), one.dot(two), two.dot(two)
    a, b = -point.dot(one), -point.dot(two)
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


def feature_contact(placed: Placed, feature: Feature):
    """Return depth, normal, and the points of both shapes that touch, with derivatives."""
    solved = _on_edges(placed, feature)
    for k, core in enumerate((placed.first, placed.second)):
        if core.kind is GeomKind.CYLINDER:
            own = _on_face(placed, k, feature)
            solved = choose(feature.face == k + 1, own, solved)
    return solved


def _on_edges(placed: Placed, feature: Feature):
    count = feature.count
    points = [vertex(placed, each) for each in feature.corners]
    edges = points[1] - points[0], points[2] - points[0]
    # A Newton step at the solution: it moves nothing, but its derivative is that of the
    # solution.
    normal = newton(placed, points[0], edges, count, feature.normal)
    weights = vertex_weights(placed, points[0], edges, count, normal)
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
    return normal.dot(spot), normal, tuple(sides)


def _on_face(placed: Placed, which: int, feature: Feature):
    axis = cap_axis(placed, which)
    normal = axis * jnp.where(axis.dot(feature.normal) < 0.0, -1.0, 1.0)
    corners = flat_support(placed, which, normal)
    depth = normal.dot(placed.difference(corners))
    # The other shape has the point; the face is as far from it as it is deep.
    other = placed.ends(corners)[1 - which]
    apart = normal * depth
    return (
        (depth, normal, (other, other - apart))
        if which
        else (depth, normal, (other + apart, other))
    )


# Faces of cylinders.


def cap(placed: Placed, which: int, normal: Vec3):
    """Return the normal of the face of a cylinder that is nearest to a normal, the
    support function there, and whether the point that touches lies on the face."""
    axis = cap_axis(placed, which)
    axis = axis * jnp.where(axis.dot(normal) < 0.0, -1.0, 1.0)
    radius = (placed.first, placed.second)[which].size.x
    point = placed.difference(flat_support(placed, which, axis))
    height = axis.dot(point)
    beside = point - (axis * height)
    return axis, height, beside.dot(beside) <= radius * radius


def cap_axis(placed: Placed, which: int) -> Vec3:
    zero = jnp.zeros_like(placed.offset.pos.x)
    return placed.offset.rot.columns[2] if which else Vec3(zero, zero, zero + 1.0)


def flat_support(placed: Placed, which: int, direction: Vec3) -> Corners:
    """Return the support without the disk of a cylinder: the middle of its face."""
    corners = list(placed.support(direction))
    middle = jtu.tree_map(jnp.zeros_like, corners[which].round)
    corners[which] = corners[which]._replace(round=middle)
    return corners[0], corners[1]


# The normal at which two convex shapes touch, of which one is round.
#
# The support function $h(n)$ of the difference of the shapes is lowered on the sphere; see
# `_round`. Vertices of the polytopes at which the others are not farther are known. Vertices
# with $\lambda_i < 0$ leave. A step of Newton's method ends where another vertex becomes as
# far, which enters; a step that does not lower $h$ is shortened.
#
# At the normal of a face of a cylinder, $h$ has a kink. Where that is not the solution but
# lower than what is known, the search starts there, downhill.


_STEPS = 48


class _State(NamedTuple):
    """A normal at which all vertices that count are equally far, and no other one is
    farther.

    - `corners`, `count`: the vertices.
    - `height`: support function of the normal.
    - `share`: fraction of the next step that is taken.
    - `found`: vertex that is as far as the others after this fraction of the step.
    - `enters`: true if there is such a vertex.
    """

    corners: tuple[Corners, Corners, Corners]
    count: Any
    normal: Vec3
    height: Any
    share: Any
    found: Corners
    enters: Any
    steps: Any
    done: Any


def touching_feature(
    placed: Placed, corners: tuple[Corners, ...], normal: Vec3
) -> Feature:
    """Solve for the normal.

    **Arguments:**

    - `corners`, `normal`: three points of $M$ and a normal near the solution.
    """
    caps = [
        (k, *cap(placed, k, normal))
        for k, core in enumerate((placed.first, placed.second))
        if core.kind is GeomKind.CYLINDER
    ]
    start = _started(placed, corners, normal)
    rounding = _rounding(vertex(placed, start.corners[0]))
    for _, radial, height, holds in caps:
        # On the rim, up to rounding, a point is as far.
        found = holds & (height <= start.height + rounding)
        lower = ~holds & (height < start.height - rounding) & ~start.done
        start = choose(once(lower), _at(placed, radial), start)
        start = start._replace(done=start.done | found)
    going = lambda state: jnp.any(~state.done)
    end = lax.while_loop(going, lambda state: _improved(placed, state), start)
    least, face = end.height, jnp.zeros_like(end.count)
    direction = end.normal
    for k, radial, height, holds in caps:
        # On the rim, the support function is the same up to rounding.
        better = holds & (height <= least + rounding)
        direction = choose(better, radial, direction)
        least = jnp.where(better, height, least)
        face = jnp.where(better, k + 1, face)
    support = tuple(bare(each) for each in [placed.support(direction)] * 3)
    chosen = choose(face > 0, support, end.corners)
    return Feature(chosen, jnp.where(face > 0, 1, end.count), direction, face)


def _started(placed: Placed, corners: tuple[Corners, ...], normal: Vec3) -> _State:
    """Return the given vertices, if no other one is farther at their normal; otherwise
    the one that is farthest in the given direction."""
    several, count = _distinct(tuple(bare(each) for each in corners))
    points, edges = _edges_of(placed, several)
    turned = newton(placed, points[0], edges, count, normal)
    turned = choose(count == 1, normal, turned)
    beyond = turned.dot(vertex(placed, bare(placed.support(turned))) - points[0])
    cosine = turned.dot(normal)
    holds = once((beyond <= _rounding(points[0])) & (cosine > 0.9) & (count > 1))
    given = _at(placed, turned)._replace(corners=several, count=count)
    return choose(holds, given, _at(placed, normal))


def _at(placed: Placed, normal: Vec3) -> _State:
    """Return a normal with the vertex that is farthest."""
    vertex, height = bare(placed.support(normal)), support_height(placed, normal)
    return _State(
        corners=(vertex, vertex, vertex),
        count=jnp.ones_like(height, jnp.int32),
        normal=normal,
        height=height,
        share=jnp.ones_like(height),
        found=vertex,
        enters=height != height,
        steps=jnp.zeros_like(height, jnp.int32),
        # A comparison that is true for what is not a number too.
        done=~(normal.dot(normal) > 0.5),
    )


def _edges_of(placed: Placed, corners: tuple[Corners, ...]):
    """Return three vertices, and the ways to the last two from the first."""
    points = [vertex(placed, each) for each in corners]
    return points, (points[1] - points[0], points[2] - points[0])


def _rounding(point: Vec3):
    size = jnp.abs(point.x) + jnp.abs(point.y) + jnp.abs(point.z)
    return 256 * float(jnp.finfo(size.dtype).eps) * size


def _improved(placed: Placed, state: _State) -> _State:
    """Return the state after a share of one step of Newton's method, up to the first
    vertex that becomes as far; or without a vertex that pulls."""
    points, edges = _edges_of(placed, state.corners)
    normal, count = state.normal, state.count
    step = newton_step(placed, points[0], edges, count, normal)[1]
    length = safe_sqrt(step.dot(step))
    eps = float(jnp.finfo(length.dtype).eps)
    weights = vertex_weights(placed, points[0], edges, count, normal)
    least = jnp.minimum(jnp.minimum(weights[0], weights[1]), weights[2])
    leaves = once((least < -1e-9) & (count > 1) & (length < eps ** (1 / 3)))
    trial = unit(normal + (step * state.share))
    found = once(bare(placed.support(trial)))
    arm = vertex(placed, found) - points[0]
    rounding = _rounding(points[0])
    beyond = trial.dot(arm) > rounding
    for k, each in enumerate((*state.corners, state.found)):
        known = state.enters if k == 3 else state.count > k
        beyond = beyond & ~(_same(found, each) & known)
    beyond = once(beyond & ~leaves)
    rise = step.dot(arm)
    rise = jnp.where(rise > 0.0, rise, 1.0)
    until = clamp(-normal.dot(arm) / rise, 0.0, state.share)
    height = support_height(placed, trial)
    moves = once(~leaves & ~beyond & (height <= state.height + rounding))
    enters = moves & state.enters & (count < 3)
    grown = _with(state.corners, state.found, count)
    left = _without(state.corners, weights, least, count)
    corners = choose(leaves, left, choose(enters, grown, state.corners))
    change = jnp.where(leaves, -1, jnp.where(enters, 1, 0))
    shrunk = jnp.where(beyond, until, 0.25 * state.share)
    share = jnp.where(leaves | moves, 1.0, shrunk)
    still = (length <= 256 * eps) | (state.share * length <= eps) & ~state.enters
    finished = still & ~leaves & ~enters | (state.steps >= _STEPS)
    new = _State(
        corners=corners,
        count=count + change,
        normal=choose(moves, trial, normal),
        height=jnp.where(moves, height, state.height),
        share=share,
        found=choose(beyond, found, state.found),
        enters=beyond,
        steps=state.steps + 1,
        done=finished | ~(trial.dot(trial) > 0.5),
    )
    return choose(state.done, state, new)


def _without(corners: tuple, weights, least, count):
    """Return the vertices without the one of the least weight."""
    a, b, c = corners
    first = weights[0] == least
    second = ~first & (weights[1] == least)
    return (choose(first, b, a), choose((first | second) & (count == 3), c, b), c)


def _with(corners: tuple, new: Corners, count):
    a, b, c = corners
    return (a, choose(count == 1, new, b), choose(count == 2, new, c))


def _same(one: Corners, two: Corners):
    return (one[0].number == two[0].number) & (one[1].number == two[1].number)


def _distinct(corners: tuple[Corners, ...]):
    """Bring distinct vertices to the front, and count them."""
    a, b, c = corners
    ab, ac, bc = _same(a, b), _same(a, c), _same(b, c)
    second = choose(ab, c, b)
    count = 1 + (~(ab & ac)).astype(jnp.int32) + (~(ab | ac | bc)).astype(jnp.int32)
    return (a, second, c), count
