"""Terrain of many patches, and random terrain of a robot."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._errors import check_count, check_key
from ..model import System
from ..model.arrays import as_array
from ._kinds import AbstractTerrain
from .surface import Surface, surface_of, with_terrain


class TerrainGrid(eqx.Module):
    """Patches of terrain side by side on one height field: rows are levels of difficulty,
    along y, and columns are kinds, along x.

    All environments share one grid, and each starts on a patch of its own.

    **Arguments:**

    - `kinds`: one kind of terrain per column.
    - `levels`: number of rows. Row k has the difficulty k / (levels - 1).
    - `points`: grid points along each side of a patch, at least 2.
    - `cell`: distance of neighboring grid points, m.
    - `border`: grid points of flat ground on each side of the grid.
    """

    kinds: tuple[AbstractTerrain, ...]
    levels: int = eqx.field(static=True, default=10)
    points: int = eqx.field(static=True, default=80)
    cell: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    border: int = eqx.field(static=True, default=20)

    def __check_init__(self):
        for name, value, least in (
            ("kinds", len(self.kinds), 1),
            ("levels", self.levels, 1),
            ("points", self.points, 2),
            ("border", self.border, 0),
        ):
            check_count(f"TerrainGrid.{name}", value, least)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the height field."""
        rows, columns = self.levels * self.points, len(self.kinds) * self.points
        return rows + 2 * self.border, columns + 2 * self.border

    @property
    def size(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Lengths of the height field along x and y, m."""
        rows, columns = self.shape
        return (columns - 1) * self.cell, (rows - 1) * self.cell

    @property
    def length(self) -> Float[Array, ""]:
        """Length of the sides of a patch, m."""
        return self.points * self.cell

    def heights(self, key: PRNGKeyArray) -> Float[Array, "rows columns"]:
        """Draw the heights of all patches, m."""
        check_key(key)
        shape, dtype = (self.points, self.points), self.cell.dtype
        difficulty = jnp.arange(self.levels, dtype=dtype) / max(self.levels - 1, 1)
        columns = []
        for number, kind in enumerate(self.kinds):
            keys = jr.split(jr.fold_in(key, number), self.levels)
            one = lambda key, hard, kind=kind: kind(key, hard, shape, self.cell)
            patches = jax.vmap(one)(keys, difficulty)
            columns.append(patches.reshape(-1, self.points))
        return jnp.pad(jnp.concatenate(columns, axis=1), self.border)

    def origins(
        self, heights: Float[Array, "rows columns"]
    ) -> Float[Array, "levels kinds 3"]:
        """Return the middle of each patch on the ground: x, y and z in the frame of the
        height field, m."""
        level, column = jnp.meshgrid(
            jnp.arange(self.levels), jnp.arange(len(self.kinds)), indexing="ij"
        )
        x, y = self._middle(level, column)
        return jnp.stack([x, y, self._surface(heights).height(x, y)], axis=-1)

    def _middle(self, level: Any, column: Any) -> tuple[Any, Any]:
        """Return x and y of the middle of patches."""
        rows, columns = self.shape

        def place(number, all_of_them):
            number = jnp.asarray(number).astype(self.cell.dtype)
            points = self.border + (number + 0.5) * self.points - all_of_them / 2
            return points * self.cell

        return place(column, columns), place(level, rows)

    def spawn(
        self,
        key: PRNGKeyArray,
        level: Int[Array, ""] | int,
        column: Int[Array, ""] | int,
        heights: Float[Array, "rows columns"],
        spread: Float[Array, ""] | float = 0.3,
    ) -> Float[Array, "3"]:
        """Draw a point on the ground about the middle of a patch.

        **Arguments:**

        - `level`, `column`: row and column of the patch.
        - `heights`: heights of the grid, m.
        - `spread`: largest distance from the middle along x and y, m.

        **Returns:** x, y and z in the frame of the height field, m.
        """
        x, y = self._middle(level, column)
        shift = jr.uniform(key, (2,), x.dtype, -1.0, 1.0) * spread
        x, y = x + shift[0], y + shift[1]
        return jnp.stack([x, y, self._surface(heights).height(x, y)])

    def patch(
        self, x: Float[Array, ""], y: Float[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return level and column of the patch at a point of the height field; those of
        the nearest patch on the border."""
        rows, columns = self.shape
        number = lambda at, all_of_them, count: jnp.clip(
            jnp.floor((at / self.cell + all_of_them / 2 - self.border) / self.points),
            0,
            count - 1,
        ).astype(jnp.int32)
        return number(y, rows, self.levels), number(x, columns, len(self.kinds))

    def _surface(self, heights: Any) -> Surface:
        if heights.shape != self.shape:
            raise ValueError(
                f"`heights` have the shape {heights.shape}, but those of this grid have "
                f"{self.shape}. Pass the result of `grid.heights(key)`."
            )
        x, y = self.size
        return Surface(heights.ravel(), *self.shape, x / 2, y / 2)


class RandomTerrain(eqx.Module):
    """Randomization of a height field: a kind of terrain and a difficulty, drawn at each
    reset; a function `(key, sys) -> sys` for `eqsim.DomainRandomization`.

    Each environment then has heights of its own in its state. They are relative to the
    middle of the terrain, where robots start as on flat ground; see also `with_terrain`.

    **Arguments:**

    - `kinds`: kinds of terrain, equally probable.
    - `difficulty`: smallest and largest difficulty, uniformly distributed.
    - `name`: name of the height field; by default the first one.
    """

    kinds: tuple[AbstractTerrain, ...]
    difficulty: Float[Array, "2"] = eqx.field(converter=as_array, default=(0.0, 1.0))
    name: str | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_count("the number of `RandomTerrain.kinds`", len(self.kinds))

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        fields = sys.height_fields
        if not fields.nfield:
            raise ValueError(
                "`RandomTerrain` needs a robot with a height field. Add one with "
                "`eqsim.io.with_height_field`."
            )
        field = 0 if self.name is None else sys.height_field(self.name).index
        surface, dtype = surface_of(sys, field), fields.heights.dtype
        shape = surface.rows, surface.columns
        # Cells are taken as squares; a patch of other cells is stretched along y.
        cell = 2.0 * surface.half_x / (surface.columns - 1)
        keys = jr.split(key, 3)
        low, high = self.difficulty.astype(dtype)
        hard = low + jr.uniform(keys[0], (), dtype) * (high - low)
        number = jr.randint(keys[1], (), 0, len(self.kinds))
        branches = [
            lambda kind=kind: kind(keys[2], hard, shape, cell) for kind in self.kinds
        ]
        terrain = lax.switch(number, branches).astype(dtype)
        zero = jnp.zeros((), dtype)
        middle = surface._replace(heights=terrain.ravel()).height(zero, zero)
        return with_terrain(sys, terrain - middle, name=fields.names[field])
