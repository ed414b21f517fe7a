r"""Contacts of distance fields: gradient descent from several points, as in MuJoCo.

First the fields of MuJoCo's other shapes; then the two fields of a pair and the objectives;
then the descent and the contacts.

The descent stops after a fixed number of steps, mostly before it has converged, so contacts
depend on the way. Derivatives are those of the steps that were taken: the factor of a step,
which a line search chooses, counts as constant.

Source: MuJoCo, `engine_collision_sdf.c`. Its plugins approximate gradients by differences,
which agree with those here to about 1e-8.
"""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from .._loops import each_row
from ..kinematics.link_motion import Pose
from ..model import Collider, GeomKind
from ..model.distance_fields import AbstractDistanceField
from ..model.kinds import AnyKind
from ..spatial import clamp, Mat3, safe_sqrt, Vec3
from ..spatial.rotations import zero_length
from .points import half_extents, Point, Shape, unit


# Distances and gradients of MuJoCo's other shapes, as its descent sees them.


def _plane(point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
    zero = jnp.zeros_like(point.z)
    return point.z, Vec3(zero, zero, zero + 1.0)


def _sphere(point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
    length = _norm(point)
    return length - size.x, _divided(point, length)


def _capsule(point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
    level = point.z - clamp(point.z, -size.y, size.y)
    return _sphere(point._replace(z=level), size)


def _ellipsoid(point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
    scaled = Vec3(*(x / s for x, s in zip(point, size, strict=True)))
    twice = Vec3(*(x / s for x, s in zip(scaled, size, strict=True)))
    one, two = _norm(scaled), _norm(twice)
    safe = jnp.where(two > 0.0, two, 1.0)
    dist = one * (one - 1.0) / safe
    outward = twice * ((2.0 * one - 1.0) / (jnp.where(one > 0.0, one, 1.0) * safe))
    inward = Vec3(*(x / (s * s) for x, s in zip(twice, size, strict=True)))
    grad = outward - inward * (one * (one - 1.0) / (safe * safe * safe))
    return dist, unit(grad)


def _cylinder(point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
    level = _norm(point._replace(z=jnp.zeros_like(point.z)))
    across, along = level - size.x, jnp.abs(point.z) - size.y
    out = Vec3(*(jnp.maximum(x, 0.0) for x in (across, along, jnp.zeros_like(along))))
    far = _norm(out)
    dist = jnp.minimum(jnp.maximum(across, along), 0.0) + far
    wall = across > along
    inside = jnp.where(wall, across, along) < 0.0
    apart = _divided(out, far)
    radial = jnp.where(inside, wall.astype(dist.dtype), apart.x)
    axial = jnp.where(inside, (~wall).astype(dist.dtype), apart.y)
    sides = _divided(point._replace(z=jnp.zeros_like(point.z)), level)
    return dist, Vec3(sides.x * radial, sides.y * radial, jnp.sign(point.z) * axial)


def _box(point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
    over = Vec3(*(jnp.abs(x) - s for x, s in zip(point, size, strict=True)))
    most = jnp.maximum(jnp.maximum(over.x, over.y), over.z)
    inside, sign = most < 0.0, Vec3(*(jnp.where(x < 0.0, -1.0, 1.0) for x in point))
    # Outside, the distance from the surface.
    out = Vec3(*(jnp.maximum(x, 0.0) for x in over))
    far = _norm(out)
    apart = _divided(out, far)
    # Inside, a field that turns from radial directions to those of the faces.
    depths = Vec3(*(jnp.where(inside, -x, 1.0) for x in over))
    field = unit(Vec3(*(s / x for x, s in zip(depths, size, strict=True))))
    x, y, z = (d / f for d, f in zip(depths, field, strict=True))
    dist = jnp.where(inside, -jnp.minimum(x, jnp.minimum(y, z)), far)
    grad = (jnp.where(inside, f, a) * s for f, a, s in zip(field, apart, sign))
    return dist, Vec3(*grad)


def _norm(v: Vec3):
    return safe_sqrt(v.dot(v))


def _divided(v: Vec3, length) -> Vec3:
    """Return a vector divided by its length, zero if that is zero."""
    return v * jnp.where(length > 0.0, 1.0 / jnp.where(length > 0.0, length, 1.0), 0.0)


_SHAPES: dict[AnyKind, Callable] = {
    GeomKind.PLANE: _plane,
    GeomKind.SPHERE: _sphere,
    GeomKind.CAPSULE: _capsule,
    GeomKind.ELLIPSOID: _ellipsoid,
    GeomKind.CYLINDER: _cylinder,
    GeomKind.BOX: _box,
}


def _value_and_gradient(kind: AnyKind, point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
    if isinstance(kind, AbstractDistanceField):
        return kind.value_and_gradient(point, size)
    return _SHAPES[kind](point, size)


def _distance(kind: AnyKind, point: Vec3, size: Vec3):
    if isinstance(kind, AbstractDistanceField):
        return kind.distance(point, size)
    return _SHAPES[kind](point, size)[0]


# The two fields of a pair, and what the descent minimizes.


class _Fields(NamedTuple):
    """The sizes of both shapes, and the frame of the second one in that of the first."""

    first: Vec3
    second: Vec3
    offset: Pose

    def distances(self, kinds: tuple[AnyKind, AnyKind], point: Vec3) -> tuple[Any, Any]:
        """Return the distances of points from the second and from the first shape.

        **Arguments:**

        - `point`: points in the frame of the second shape.
        """
        other = self.offset.point(point)
        return (
            _distance(kinds[1], point, self.second),
            _distance(kinds[0], other, self.first),
        )

    def gradients(self, kinds: tuple[AnyKind, AnyKind], point: Vec3) -> tuple:
        """Return these distances, and their gradients in the frame of the second shape."""
        other = self.offset.point(point)
        one, down = _value_and_gradient(kinds[1], point, self.second)
        two, up = _value_and_gradient(kinds[0], other, self.first)
        return (one, two), (down, self.offset.rot.T @ up)


class _Objective(NamedTuple):
    """A function of two distances, and its gradient by theirs."""

    value: Callable
    gradient: Callable


def _sum_gradient(dists, grads) -> Vec3:
    (one, two), (down, up) = dists, grads
    sign = jnp.where(jnp.maximum(one, two) > 0.0, 1.0, -1.0)
    return down + up + _chosen(one > two, down, up) * sign


def _chosen(when, one: Vec3, two: Vec3) -> Vec3:
    return jtu.tree_map(lambda x, y: jnp.where(when, x, y), one, two)


# Where both shapes overlap most, and where the depths of both are equal.
_OVERLAP = _Objective(
    lambda one, two: one + two + jnp.abs(jnp.maximum(one, two)), _sum_gradient
)
_DEPTH = _Objective(
    jnp.maximum, lambda dists, grads: _chosen(dists[0] > dists[1], *grads)
)


# The descent, and contacts.


_LEAST_FACTOR = 1e-4
_DECREASE = 0.1
_LARGEST = 1e10


class _Step(NamedTuple):
    """A step of the descent: the factor of the gradient, the value of the objective
    after the step, and whether it is not larger than before."""

    factor: Any
    value: Any
    improves: Any


def _line_search(
    objective: _Objective, kinds: tuple[AnyKind, AnyKind], fields, point, grad
) -> _Step:
    """Halve the factor of a gradient until the objective decreases enough."""
    fields, point, grad = lax.stop_gradient((fields, point, grad))
    value = lambda x: objective.value(*fields.distances(kinds, x))
    start, square = value(point), grad.dot(grad)

    def halve(carry):
        factor, last, going = carry
        factor = jnp.where(going, 0.5 * factor, factor)
        last = jnp.where(going, value(point - grad * factor), last)
        short = last - start > -_DECREASE * factor * square
        return factor, last, going & (factor > _LEAST_FACTOR) & short

    first = jnp.full_like(start, 2.0), start, start == start
    factor, last, _ = lax.while_loop(lambda c: jnp.any(c[2]), halve, first)
    return _Step(factor, last, ~(start < last))


def _descend(
    objective: _Objective, kinds: tuple[AnyKind, AnyKind], fields: _Fields, point, going
):
    """Take a step of the descent. Also return whether it can go on, and whether a step was
    possible."""
    grad = objective.gradient(*fields.gradients(kinds, point))
    finite = ft.reduce(jnp.logical_and, (jnp.abs(x) <= _LARGEST for x in grad))
    grad = Vec3(*(jnp.where(finite, x, 0.0) for x in grad))
    step = _line_search(objective, kinds, fields, point, grad)
    moved = point - grad * lax.stop_gradient(step.factor)
    going = going & finite & step.improves
    return _chosen(going, moved, point), going, finite


class _Touch(NamedTuple):
    """Where a descent ends, in the frame of the second shape.

    - `point`, `dist`: position and distance of the contact. As in MuJoCo, the distance is
        the larger one of the point from the two shapes. Midway between the surfaces, that
        is half of the depth by which the shapes overlap. Planes touch a mesh of the shape in
        MuJoCo, whose whole depth is the sum of both distances.
    - `normal`: direction from the first shape to the second.
    - `valid`: true if it is a contact.
    """

    point: Vec3
    dist: Any
    normal: Vec3
    valid: Any


def _touch(
    kinds: tuple[AnyKind, AnyKind], iterations: int, fields: _Fields, start: Vec3
) -> _Touch:
    """Descend from a point."""

    def step(carry, _):
        point, going, _ = _descend(_OVERLAP, kinds, fields, *carry)
        return (point, going), None

    going = start.x == start.x
    point, _ = lax.scan(step, (start, going), length=iterations)[0]
    # Fields that are not exact have minima without contact, which a step by depth leaves.
    again = jnp.ones_like(going)
    point, _, finite = _descend(_DEPTH, kinds, fields, point, again)
    (one, two), (down, up) = fields.gradients(kinds, point)
    dist = jnp.maximum(one, two)
    apart = unit(up) - unit(down)
    exists, normal = apart.dot(apart) > 1e-30, unit(apart)
    valid = finite & exists & (dist <= 0.0)
    if kinds[0] is not GeomKind.PLANE:
        return _Touch(point + normal * (0.5 * dist), dist, normal, valid)
    return _Touch(point + normal * (0.5 * (one - two)), one + two, normal, valid)


@ft.lru_cache(maxsize=64)
def _halton(count: int) -> np.ndarray:
    """Return the first points of the Halton sequence of bases 2, 3 and 5, `(count, 3)`."""

    def entry(index: int, base: int) -> float:
        total, digit = 0.0, 1.0 / base
        while index > 0:
            index, rest = divmod(index, base)
            total, digit = total + digit * rest, digit / base
        return total

    return np.array([[entry(k, base) for base in (2, 3, 5)] for k in range(count)])


def _start_box(kind: AnyKind, size: Vec3) -> tuple[Vec3, Vec3]:
    """Return the center and half the sides of the box in which the descent starts."""
    if isinstance(kind, AbstractDistanceField):
        return kind.start_box(size)
    zero = jnp.zeros_like(size.x)
    if kind is GeomKind.PLANE:
        half = jnp.full_like(zero, _LARGEST)
        return Vec3(zero, zero, -half), Vec3(half, half, half)
    return Vec3(zero, zero, zero), half_extents(kind, size)


def _boxes(kinds: tuple[AnyKind, AnyKind], fields: _Fields) -> tuple[Vec3, Vec3]:
    """Return the corners of the intersection of both boxes, in the frame of the first
    shape."""
    center, half = _start_box(kinds[0], fields.first)
    other, around = _start_box(kinds[1], fields.second)
    other = fields.offset.point(other)
    around = Mat3(*map(jnp.abs, fields.offset.rot)) @ around
    low = jtu.tree_map(jnp.maximum, center - half, other - around)
    return low, jtu.tree_map(jnp.minimum, center + half, other + around)


def field_points(
    kinds: tuple[AnyKind, AnyKind], one: Shape, two: Shape, margin
) -> list[Point]:
    """Return the contacts of a shape with a distance field, one for each start."""
    starts, iterations = _counts(kinds)
    rot = one.pose.rot.T
    place = rot @ (two.pose.pos - one.pose.pos)
    fields = _Fields(one.size, two.size, Pose(rot @ two.pose.rot, place))
    shape = jnp.broadcast_shapes(*(x.shape for x in jtu.tree_leaves(fields)))
    fields = jtu.tree_map(lambda x: jnp.broadcast_to(x, shape), fields)
    low, high = _boxes(kinds, fields)
    meet = ft.reduce(jnp.logical_and, jtu.tree_map(jnp.less_equal, low, high))

    def visit(numbers):
        at = (a + (b - a) * h for a, b, h in zip(low, high, numbers, strict=True))
        start = fields.offset.rot.T @ (Vec3(*at) - fields.offset.pos)
        return _touch(kinds, iterations, fields, start)

    columns = _halton(starts).T
    rows = Vec3(*(jnp.asarray(x, place.x.dtype) for x in columns))
    found = each_row(visit, rows)
    valid = found.valid & meet[None] & ~_repeated(lax.stop_gradient(found))
    pose = jtu.tree_map(lambda x: x[None], two.pose)
    pos, normal = pose.point(found.point), pose.rot @ found.normal
    points = Point(found.dist, pos, normal, None, valid)
    return [jtu.tree_map(lambda x, k=k: x[k], points) for k in range(starts)]


def _repeated(found: _Touch) -> Any:
    """Return which contacts are where an earlier one is."""
    apart = Vec3(*(x[:, None] - x[None] for x in found.point))
    square = apart.dot(apart)
    same = found.valid[None] & (square < zero_length(square.dtype) ** 2)
    starts = np.arange(len(same))
    earlier = starts[:, None] > starts
    earlier = earlier.reshape(*earlier.shape, *(1 for _ in same.shape[2:]))
    return jnp.any(same & earlier, axis=1)


def _counts(kinds: tuple[AnyKind, AnyKind]) -> tuple[int, int]:
    """Return the numbers of starts and iterations."""
    fields = [kind for kind in kinds if isinstance(kind, AbstractDistanceField)]
    return max(k.starts for k in fields), max(k.iterations for k in fields)


def field_collider(first: AnyKind, second: AnyKind) -> Collider:
    """Return how a shape touches a distance field."""
    kinds = first, second
    find, number = ft.partial(field_points, kinds), _counts(kinds)[0]
    return Collider(find, number, one_by_one=True, measures=False)


TOUCHING: tuple[GeomKind | None, ...] = (*(GeomKind(k.value) for k in _SHAPES), None)
"""Kinds that touch distance fields; None: distance fields."""
