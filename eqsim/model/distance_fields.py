"""Shapes given by a signed distance field (MJCF: `sdf`): the interface, and the five fields
of MuJoCo's plugins, which are also examples.

A field is static and hashable by value. Its numbers that have derivatives are the sizes of
the shape, `Geoms.size`.
"""

import abc
import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ..spatial import safe_sqrt, Vec3


@dataclasses.dataclass(frozen=True)
class AbstractDistanceField(abc.ABC):
    r"""A kind of shape, the set $\{x : d(x) \le 0\}$ of a field $d$. Use `replace_shape` to
    give a robot such a shape.

    Contacts are found as in MuJoCo: from `starts` points of a Halton sequence in the
    intersection of two boxes, `iterations` steps of gradient descent minimize
    $d_1 + d_2 + |\max(d_1, d_2)|$. Each start leads to at most one contact, and contacts
    exist only in penetration. A pair uses the larger `starts` and `iterations` of its two
    fields. Subclasses are frozen dataclasses if they have fields of their own.

    **Arguments:**

    - `starts`, `iterations`: MuJoCo's `sdf_initpoints`, 1 to 50, and `sdf_iterations`.
    - `box`: center and half sizes of the box of the starts, as multiples of `extents`.
    """

    value: ClassVar[int] = 8
    num_sizes: ClassVar[int] = 3

    starts: int = 40
    iterations: int = 10
    box: tuple[float, float, float, float, float, float] = (
        0.0,
        0.0,
        0.0,
        1.0,
        1.0,
        1.0,
    )

    def __post_init__(self):
        _check_starts(self)

    @property
    def name(self) -> str:
        """Name of the class in capitals, as in `GeomKind`."""
        return type(self).__name__.upper()

    @abc.abstractmethod
    def distance(self, point: Vec3, size: Vec3) -> Any:
        """Compute the distance of points from the surface, negative inside, m.

        Its derivatives must be finite: use `eqsim.spatial.safe_sqrt` for lengths.

        **Arguments:**

        - `point`: points in the frame of the shape, components of any shape.
        - `size`: sizes of the shape, components that broadcast with those of `point`.
        """

    @abc.abstractmethod
    def extents(self, size: Vec3) -> Vec3:
        """Compute half the sides of a box about the origin that contains the shape, m."""

    def value_and_gradient(self, point: Vec3, size: Vec3) -> tuple[Any, Vec3]:
        """Compute the distance and its derivative by the point."""
        dist, pull = jax.vjp(lambda x: self.distance(x, size), point)
        return dist, pull(jnp.ones_like(dist))[0]

    def start_box(self, size: Vec3) -> tuple[Vec3, Vec3]:
        """Compute the center and half the sides of the box of the starts, m."""
        half = self.extents(size)
        scaled = [a * x for a, x in zip(self.box, (*half, *half), strict=True)]
        return Vec3(*scaled[:3]), Vec3(*scaled[3:])


def _check_starts(field: AbstractDistanceField) -> None:
    if not 1 <= field.starts <= 50:
        raise ValueError(f"`starts` must be 1 to 50, got {field.starts}.")
    if field.iterations < 1:
        raise ValueError(f"`iterations` must be positive, got {field.iterations}.")
    if len(field.box) != 6 or not all(x > 0.0 for x in field.box[3:]):
        raise ValueError(
            "`box` must be three coordinates and three positive half sizes, got "
            f"{field.box}."
        )


class Torus(AbstractDistanceField):
    """A torus about the z axis; its sizes are the radius of the circle and that of the tube
    (MJCF: `mujoco.sdf.torus`)."""

    def distance(self, point: Vec3, size: Vec3) -> Any:
        return _length(_length(point.x, point.y) - size.x, point.z) - size.y

    def extents(self, size: Vec3) -> Vec3:
        outer = size.x + size.y
        return Vec3(outer, outer, size.y)


class Bowl(AbstractDistanceField):
    """A part of a spherical shell, open above; its sizes are the height of the rim over the
    center, the radius, and half the thickness (MJCF: `mujoco.sdf.bowl`)."""

    def distance(self, point: Vec3, size: Vec3) -> Any:
        height, radius, thickness = size
        width = safe_sqrt(radius * radius - height * height)
        level = _length(point.x, point.y)
        above = height * level < width * point.z
        rim = _length(level - width, point.z - height)
        shell = jnp.abs(safe_sqrt(point.dot(point)) - radius)
        return jnp.where(above, rim, shell) - thickness

    def extents(self, size: Vec3) -> Vec3:
        outer = size.y + size.z
        return Vec3(outer, outer, outer)


# Bolt and nut have a thread of 12 turns per unit of length, and a hexagonal head.
_TURNS = 12.0
_SLOPE = math.sqrt(0.5)


class Bolt(AbstractDistanceField):
    """A bolt of length 1 with a head at z = 0, downward; its size is the radius of the thread
    (MJCF: `mujoco.sdf.bolt`)."""

    def distance(self, point: Vec3, size: Vec3) -> Any:
        outside, thread, cone = _thread(point, size)
        shaft = jnp.maximum(thread, jnp.abs(point.z + 0.5) - 0.5)
        shaft = jnp.maximum(shaft, -(cone + _SLOPE))
        return jnp.minimum(shaft, _head(point, outside))

    def extents(self, size: Vec3) -> Vec3:
        return _around_head(size)


class Nut(AbstractDistanceField):
    """A hexagonal nut for `Bolt`; its size is the radius of the thread (MJCF:
    `mujoco.sdf.nut`)."""

    def distance(self, point: Vec3, size: Vec3) -> Any:
        outside, thread, cone = _thread(point, size)
        hole = jnp.maximum(thread, -(cone + 0.5 * _SLOPE))
        hole = jnp.minimum(hole, -cone - 0.05 * _SLOPE)
        return jnp.maximum(_head(point, outside), -hole)

    def extents(self, size: Vec3) -> Vec3:
        return _around_head(size)


def _thread(point: Vec3, size: Vec3) -> tuple[Any, Any, Any]:
    """Return the distance from a cylinder, and those from its thread and from a cone."""
    outside = _length(point.x, point.y) - size.x
    turns = _TURNS * point.z - _azimuth(point) / (2.0 * math.pi)
    wave = jnp.abs(turns - jnp.floor(turns) - 0.5)
    thread = (outside - wave / _TURNS) * _SLOPE
    return outside, thread, (point.z - outside) * _SLOPE


def _head(point: Vec3, outside) -> Any:
    """Return the distance from a hexagonal prism whose edges are cut by a cone."""
    sixth = math.pi / 3.0
    side = jnp.floor(_azimuth(point) / sixth + 0.5)
    across = jnp.cos(side * sixth) * point.x + jnp.sin(side * sixth) * point.y
    prism = jnp.maximum(across - 0.5, jnp.abs(point.z + 0.25) - 0.25)
    return jnp.maximum(prism, (point.z + outside - 0.22) * _SLOPE)


def _around_head(size: Vec3) -> Vec3:
    zero = 0.0 * size.x
    return Vec3(zero + 0.6, zero + 0.6, zero + 1.0)


@dataclasses.dataclass(frozen=True)
class Gear(AbstractDistanceField):
    """A spur gear with involute teeth about the z axis; its sizes are the pitch diameter, the
    thickness, and the diameter of the hole (MJCF: `mujoco.sdf.gear`).

    **Arguments:**

    - `teeth`: number of teeth, at least 3.
    - `phase`: angle by which the teeth are turned backwards, rad (MJCF: `alpha`).
    """

    teeth: float = 25.0
    phase: float = 0.0

    def __post_init__(self):
        _check_starts(self)
        if not 3.0 <= self.teeth < math.inf:
            raise ValueError(f"`teeth` must be at least 3, got {self.teeth}.")

    def distance(self, point: Vec3, size: Vec3) -> Any:
        flat, along = self._profile(point, size), jnp.abs(point.z) - 0.5 * size.y
        outside = _length(jnp.maximum(flat, 0.0), jnp.maximum(along, 0.0))
        return jnp.minimum(jnp.maximum(flat, along), 0.0) + outside

    def extents(self, size: Vec3) -> Vec3:
        across = max(0.625, 0.5 + 1.0 / self.teeth) * size.x
        return Vec3(across, across, 0.55 * size.y)

    def _profile(self, point: Vec3, size: Vec3) -> Any:
        """Return the distance from the gear in the plane."""
        number, diameter = self.teeth, size.x
        module = diameter / number
        outer, low = 0.5 * diameter + module, 0.5 * diameter - 1.2 * module
        inner = 0.5 * size.z
        pressure = 3.096e-5 * number * number - 6.557e-3 * number + 0.551
        base = 0.5 * diameter * math.cos(pressure)
        level = _length(point.x, point.y)
        # Both flanks of a tooth, as angles from the one and from the other side.
        stride = 2.0 * math.pi / number
        shift = 0.5 * stride - 2.0 * (math.tan(pressure) - pressure)
        angle = _azimuth(point) + self.phase
        ahead = _remainder(angle + 0.5 * shift, stride) - 0.5 * shift
        behind = _remainder(-angle - 0.5 * shift, stride) - 0.5 * shift
        # The distance from an involute is the length of the tangent to the base circle,
        # minus that of the string.
        beyond = level > base
        tangent = safe_sqrt(jnp.where(beyond, level * level - base * base, 1.0))
        unwound = jnp.arctan2(tangent, base)
        flank = jnp.maximum(
            tangent - base * (ahead + unwound), tangent - base * (behind + unwound)
        )
        flank = jnp.where(beyond, flank, -1e6)
        walls = jnp.maximum(ahead, behind) - (stride - shift)
        teeth = jnp.maximum(walls, flank)
        teeth = _smooth_intersection(level - outer, teeth, 0.0035 * diameter)
        teeth = _smooth_union(level - low, teeth, base - low)
        teeth = jnp.maximum(teeth, inner - level)
        teeth = jnp.where(level - outer > 0.2, level - outer, teeth)
        return jnp.where(inner > level, inner - level, teeth)


def _remainder(x, period: float) -> Any:
    return x - period * jnp.floor(x / period)


def _smooth_union(a, b, width) -> Any:
    weight = jnp.clip(0.5 + 0.5 * (b - a) / width, 0.0, 1.0)
    return b * (1.0 - weight) + a * weight - width * weight * (1.0 - weight)


def _smooth_intersection(a, b, width) -> Any:
    rest = _smooth_union(jnp.maximum(a, -b), jnp.maximum(b, -a), width)
    return jnp.maximum(jnp.maximum(a, b), -rest)


def _azimuth(point: Vec3) -> Any:
    """Return the angle about the z axis; zero on it, with derivative zero."""
    on_axis = (point.x == 0.0) & (point.y == 0.0)
    y, x = jnp.where(on_axis, 0.0, point.y), jnp.where(on_axis, 1.0, point.x)
    return jnp.arctan2(y, x)


def _length(x, y) -> Any:
    return safe_sqrt(x * x + y * y)
