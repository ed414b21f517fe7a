"""Kinds of terrain: functions of a key and a difficulty that return heights on a grid.

Every kind has a flat platform in the middle, on which a robot starts, and the height 0 at the
border, so that patches can be joined; noise and obstacles may reach the border. Heights are
differentiable with respect to the ranges where they are continuous.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count, check_key
from ..model.arrays import as_array
from ..spatial.clamps import at_least, at_most, clamp


Range = Float[Array, "2"]
"""Values at the difficulties 0 and 1; those between are interpolated linearly."""


class Places(NamedTuple):
    """Grid points relative to the middle of a patch.

    - `x`, `y`: coordinates, m.
    - `ring`: largest absolute value of both, m: the same on squares about the middle.
    - `border`: distance from the nearest side of the patch, m.
    - `cell`: distance of neighboring grid points, m.
    """

    x: Float[Array, "rows columns"]
    y: Float[Array, "rows columns"]
    ring: Float[Array, "rows columns"]
    border: Float[Array, "rows columns"]
    cell: Float[Array, ""]

    @property
    def reach(self) -> Float[Array, ""]:
        """Distance of the middle from the nearest side of the patch, m."""
        return jnp.max(self.border)


def places(shape: tuple[int, int], cell: Any) -> Places:
    """Return the coordinates of grid points."""
    cell = as_array(cell)
    lengths = [(count - 1) / 2 * cell for count in shape]
    axes = [
        (jnp.arange(count, dtype=cell.dtype) - (count - 1) / 2) * cell
        for count in shape
    ]
    y, x = jnp.meshgrid(*axes, indexing="ij")
    far_x, far_y = jnp.abs(x), jnp.abs(y)
    border = jnp.minimum(lengths[1] - far_x, lengths[0] - far_y)
    return Places(x, y, jnp.maximum(far_x, far_y), border, cell)


class AbstractTerrain(eqx.Module):
    """A kind of terrain."""

    def __call__(
        self,
        key: PRNGKeyArray,
        difficulty: Float[Array, ""] | float,
        shape: tuple[int, int],
        cell: Float[Array, ""] | float,
    ) -> Float[Array, "rows columns"]:
        """Draw a terrain.

        **Arguments:**

        - `key`: random key.
        - `difficulty`: from 0, easy, to 1, hard.
        - `shape`: rows and columns of the grid, at least two of each; static.
        - `cell`: distance of neighboring grid points, m.

        **Returns:** heights of the grid points, m.
        """
        check_key(key)
        for name, count in zip(("rows", "columns"), shape, strict=True):
            check_count(name, count, 2)
        at = places(shape, cell)
        return self.heights(key, jnp.asarray(difficulty, at.cell.dtype), at)

    @abc.abstractmethod
    def heights(
        self, key: PRNGKeyArray, difficulty: Float[Array, ""], at: Places
    ) -> Float[Array, "rows columns"]:
        """Return the heights at some places, m."""


def between(ends: Range, difficulty: Float[Array, ""]) -> Float[Array, ""]:
    """Return the value of a range at a difficulty."""
    ends = ends.astype(difficulty.dtype)
    return ends[0] + difficulty * (ends[1] - ends[0])


def _range(value: Any) -> Any:
    """Convert to a range; a single number is the value at all difficulties."""
    value = as_array(value)
    is_number = eqx.is_array(value) and value.ndim == 0
    return jnp.stack([value, value]) if is_number else value


def _outside(at: Places, platform: Any, ramp: Any) -> Float[Array, "rows columns"]:
    """Return 0 on the platform, 1 beyond a ramp around it, and between on the ramp."""
    away = at.ring - platform / 2
    return clamp(away / at_least(ramp, at.cell), 0.0, 1.0)


def _beyond(at: Places, platform: Any) -> Float[Array, "rows columns"]:
    """Return distances from the platform. A grid point on its side belongs to it, despite
    rounding."""
    return at.ring - platform / 2 - at.cell / 64


class Flat(AbstractTerrain):
    """Flat ground at the height 0."""

    def heights(self, key, difficulty, at):
        return jnp.zeros_like(at.x)


class Slope(AbstractTerrain):
    """A pyramid with four slopes about a platform.

    **Arguments:**

    - `slope`: tangent of the angle of inclination.
    - `platform`: length of the sides of the platform, m.
    - `up`: true if the platform is the highest part, false if it is the lowest.
    """

    slope: Range = eqx.field(converter=_range, default=(0.0, 0.5))
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    up: bool = eqx.field(static=True, default=True)

    def heights(self, key, difficulty, at):
        top = at.reach - self.platform / 2
        height = between(self.slope, difficulty) * at_most(at.border, top)
        return height if self.up else -height


class Stairs(AbstractTerrain):
    """Stairs on all four sides of a platform.

    Risers are one cell wide, because a height field has no vertical faces.

    **Arguments:**

    - `step_height`: height of a step, m.
    - `step_width`: depth of a step, m.
    - `platform`: smallest length of the sides of the platform, m.
    - `up`: true if the platform is the highest part, false if it is the lowest.
    """

    step_height: Range = eqx.field(converter=_range, default=(0.02, 0.2))
    step_width: Float[Array, ""] = eqx.field(converter=as_array, default=0.3)
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    up: bool = eqx.field(static=True, default=True)

    def heights(self, key, difficulty, at):
        # Half a cell more, so that rounding does not move steps between grid points.
        inside = jnp.minimum(at.border, at.reach - self.platform / 2) + at.cell / 2
        height = between(self.step_height, difficulty) * jnp.floor(
            jnp.maximum(inside, 0.0) / self.step_width
        )
        return height if self.up else -height


class Obstacles(AbstractTerrain):
    """Rectangular blocks and holes at random places on flat ground.

    **Arguments:**

    - `height`: largest height of blocks, and depth of holes, m; uniformly distributed.
    - `width`: smallest and largest length of the sides, m.
    - `count`: number of obstacles; static. Where several overlap, the last one counts.
    - `platform`: length of the sides of the platform, m.
    """

    height: Range = eqx.field(converter=_range, default=(0.03, 0.25))
    width: Float[Array, "2"] = eqx.field(converter=_range, default=(0.4, 1.2))
    count: int = eqx.field(static=True, default=30)
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        check_count("Obstacles.count", self.count)

    def heights(self, key, difficulty, at):
        drawn = jr.uniform(key, (self.count, 5), at.cell.dtype, -1.0, 1.0)
        most = between(self.height, difficulty)
        middle, half = sum(self.width) / 2, (self.width[1] - self.width[0]) / 2
        far_x, far_y = jnp.max(at.x), jnp.max(at.y)

        def place(ground, own):
            x, y = own[0] * far_x, own[1] * far_y
            wide, long = (middle + own[k] * half for k in (2, 3))
            here = (jnp.abs(at.x - x) < wide / 2) & (jnp.abs(at.y - y) < long / 2)
            return jnp.where(here, own[4] * most, ground), None

        ground, _ = lax.scan(place, jnp.zeros_like(at.x), drawn)
        return jnp.where(_beyond(at, self.platform) > 0.0, ground, 0.0)


class Blocks(AbstractTerrain):
    """Square blocks side by side, of random heights.

    **Arguments:**

    - `height`: heights are uniform from minus to plus this value, m.
    - `width`: length of the sides of the blocks, at least a cell, m.
    - `platform`: length of the sides of the platform, m.
    """

    height: Range = eqx.field(converter=_range, default=(0.01, 0.1))
    width: Float[Array, ""] = eqx.field(converter=as_array, default=0.5)
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def heights(self, key, difficulty, at):
        drawn = jr.uniform(key, at.x.shape, at.cell.dtype, -1.0, 1.0)
        column, row = (_cells(x, self.width)[0] for x in (at.x, at.y))
        ground = between(self.height, difficulty) * _pick(drawn, row, column)
        return jnp.where(_beyond(at, self.platform) > 0.0, ground, 0.0)


def _cells(x: Any, width: Any) -> tuple[Any, Any]:
    """Divide an axis into cells of some width, from its smallest value on: number of the
    cell of each point, and its place in the cell from 0 to 1."""
    along = (x - jnp.min(x)) / width
    # Rounding does not move the first point of a cell to the one before.
    number = jnp.floor(along + 64 * float(jnp.finfo(along.dtype).eps) * (1.0 + along))
    return number, jnp.maximum(along - number, 0.0)


def _pick(table: Any, row: Any, column: Any) -> Any:
    """Read entries of a table; those outside are the nearest ones."""
    last = table.shape[0] - 1, table.shape[1] - 1
    row, column = (
        jnp.clip(index, 0, most).astype(int)
        for index, most in zip((row, column), last, strict=True)
    )
    return table[row, column]


class Waves(AbstractTerrain):
    r"""Waves along x and y, $\tfrac{a}{2} (\sin k_x x + \sin k_y y)$ with random
    phases.

    **Arguments:**

    - `amplitude`: amplitude $a$, m.
    - `length`: length $2 \pi / k$ of a wave, m.
    - `platform`: length of the sides of the platform, m. Around it, the waves begin
        within a quarter of their length.
    """

    amplitude: Range = eqx.field(converter=_range, default=(0.02, 0.2))
    length: Float[Array, ""] = eqx.field(converter=as_array, default=2.0)
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def heights(self, key, difficulty, at):
        phase = jr.uniform(key, (2,), at.cell.dtype, 0.0, 2.0 * jnp.pi)
        scale = 2.0 * jnp.pi / self.length
        waves = jnp.sin(scale * at.x + phase[0]) + jnp.sin(scale * at.y + phase[1])
        height = between(self.amplitude, difficulty) / 2 * waves
        return height * _outside(at, self.platform, self.length / 4)


class SteppingStones(AbstractTerrain):
    """Square stones with gaps between them.

    **Arguments:**

    - `stone`: length of the sides of the stones, m.
    - `gap`: width of the gaps, m. A gap narrower than a cell may vanish.
    - `height`: heights of stones are uniform from minus to plus this value, m.
    - `depth`: depth of the gaps, m.
    - `platform`: length of the sides of the platform, m.
    """

    stone: Range = eqx.field(converter=_range, default=(0.8, 0.3))
    gap: Range = eqx.field(converter=_range, default=(0.1, 0.4))
    height: Range = eqx.field(converter=_range, default=(0.0, 0.05))
    depth: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def heights(self, key, difficulty, at):
        key_shift, key_height = jr.split(key)
        stone, gap = (between(ends, difficulty) for ends in (self.stone, self.gap))
        pitch = stone + gap
        drawn = jr.uniform(key_height, at.x.shape, at.cell.dtype, -1.0, 1.0)
        row, along_y = _cells(at.y, pitch)
        # Each row of stones is shifted at random.
        shift = jr.uniform(key_shift, (at.x.shape[0], 1), at.cell.dtype)
        moved = (at.x - jnp.min(at.x)) / pitch + _pick(shift, row, jnp.zeros_like(row))
        column = jnp.floor(moved)
        # A gap as wide as a cell has one grid point, despite rounding.
        share = (stone - at.cell / 64) / pitch
        on_stone = (along_y < share) & (moved - column < share)
        heights = between(self.height, difficulty) * _pick(drawn, row, column)
        ground = jnp.where(on_stone, heights, -self.depth)
        return jnp.where(_beyond(at, self.platform) > 0.0, ground, 0.0)


class Gaps(AbstractTerrain):
    """Trenches in squares about a platform.

    **Arguments:**

    - `gap`: width of a trench, m.
    - `ground`: distance between two trenches, m.
    - `depth`: depth of the trenches, m.
    - `platform`: length of the sides of the platform, m.
    """

    gap: Range = eqx.field(converter=_range, default=(0.1, 0.8))
    ground: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    depth: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def heights(self, key, difficulty, at):
        gap = between(self.gap, difficulty)
        away = _beyond(at, self.platform)
        within = jnp.mod(away, gap + self.ground) < gap
        trench = within & (away > 0.0) & (at.border > at.cell / 2)
        return jnp.where(trench, -self.depth, jnp.zeros_like(at.x))


class Rough(AbstractTerrain):
    """Uniform noise at points farther apart than the grid, interpolated between them.

    **Arguments:**

    - `height`: noise is uniform from minus to plus this value, m.
    - `spacing`: distance of the points, at least a cell, m.
    - `platform`: length of the sides of the platform, m; around it, the noise begins
        within `spacing`.
    """

    height: Range = eqx.field(converter=_range, default=(0.01, 0.1))
    spacing: Float[Array, ""] = eqx.field(converter=as_array, default=0.3)
    platform: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def heights(self, key, difficulty, at):
        rows, columns = at.x.shape
        drawn = jr.uniform(key, (rows + 1, columns + 1), at.cell.dtype, -1.0, 1.0)
        column, right = _cells(at.x, self.spacing)
        row, up = _cells(at.y, self.spacing)
        low, high = (
            (1.0 - right) * _pick(drawn, row + k, column)
            + right * _pick(drawn, row + k, column + 1)
            for k in (0, 1)
        )
        noise = between(self.height, difficulty) * ((1.0 - up) * low + up * high)
        return noise * _outside(at, self.platform, self.spacing)
