r"""The normal at which two convex shapes touch, of which one is round.

The support function $h(n)$ of the difference of the shapes is lowered on the sphere; see
`_round`. Vertices of the polytopes at which the others are not farther are known. Vertices
with $\lambda_i < 0$ leave. A step of Newton's method ends where another vertex becomes as
far, which enters; a step that does not lower $h$ is shortened.

At the normal of a face of a cylinder, $h$ has a kink. Where that is not the solution but
lower than what is known, the search starts there, downhill.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..model import GeomKind
from ..spatial import clamp, safe_sqrt, Vec3
from ._cores import Corners, Placed
from ._penetration import once
from ._points import unit
from ._round import (
    bare,
    cap,
    choose,
    Feature,
    newton,
    newton_step,
    support_height,
    vertex,
    vertex_weights,
)


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
    for _, across, height, holds in caps:
        # On the rim, up to rounding, a point is as far.
        found = holds & (height <= start.height + rounding)
        lower = ~holds & (height < start.height - rounding) & ~start.done
        start = choose(once(lower), _at(placed, across), start)
        start = start._replace(done=start.done | found)
    going = lambda state: jnp.any(~state.done)
    end = lax.while_loop(going, lambda state: _improved(placed, state), start)
    least, face = end.height, jnp.zeros_like(end.count)
    direction = end.normal
    for k, across, height, holds in caps:
        # On the rim, the support function is the same up to rounding.
        better = holds & (height <= least + rounding)
        direction = choose(better, across, direction)
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
    beyond = turned | (vertex(placed, bare(placed.support(turned))) - points[0])
    cosine = turned | normal
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
        done=~((normal | normal) > 0.5),
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
    length = safe_sqrt(step | step)
    eps = float(jnp.finfo(length.dtype).eps)
    weights = vertex_weights(placed, points[0], edges, count, normal)
    least = jnp.minimum(jnp.minimum(weights[0], weights[1]), weights[2])
    leaves = once((least < -1e-9) & (count > 1) & (length < eps ** (1 / 3)))
    trial = unit(normal + (step * state.share))
    found = once(bare(placed.support(trial)))
    arm = vertex(placed, found) - points[0]
    rounding = _rounding(points[0])
    beyond = (trial | arm) > rounding
    for k, each in enumerate((*state.corners, state.found)):
        known = state.enters if k == 3 else state.count > k
        beyond = beyond & ~(_same(found, each) & known)
    beyond = once(beyond & ~leaves)
    rise = step | arm
    rise = jnp.where(rise > 0.0, rise, 1.0)
    until = clamp(-(normal | arm) / rise, 0.0, state.share)
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
        done=finished | ~((trial | trial) > 0.5),
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
