from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ._fields import as_array


class HeightFields(eqx.Module):
    r"""Terrain on regular grids, referred to by `Geoms.data` of shapes of kind
    `HFIELD`.

    Rows run along y and columns along x of the frame of the shape, from the negative to
    the positive side. Each cell of the grid consists of two triangles, divided by the
    diagonal from its first corner to the opposite one. Below the surface, the terrain
    is solid down to z = -base.

    Heights are in meters, not relative to a scale as in MuJoCo. To randomize a terrain,
    write its heights: `eqx.tree_at(lambda s: s.height_fields.heights, sys,
    terrain.ravel())`.

    **Arguments:**

    - `names`, `rows`, `columns`: one entry per height field; at least two rows and
        columns.
    - `heights`: z of the grid points, in row-major order, one field after the other, m.
        Heights must be above -base.
    - `size`: half length along x, half length along y, and base, m.
    - `capacity`: largest number of contacts of each height field with one other
        shape. Each possible contact adds rows to the constraint solver. If a shape
        touches more triangles, its deepest contacts are kept, and `solve` reports that
        it has not converged.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    heights: Float[Array, " nheight"] = eqx.field(converter=as_array)
    size: Float[Array, "nfield 3"] = eqx.field(converter=as_array)
    capacity: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        for name, rows, columns in zip(self.names, self.rows, self.columns):
            if rows < 2 or columns < 2:
                raise ValueError(
                    f"Height field {name!r} has {rows} rows and {columns} columns. Use at "
                    "least two of each."
                )
        if len(self.capacity) != self.nfield or min(self.capacity, default=1) < 1:
            raise ValueError(
                "HeightFields.capacity must have one positive number for each of the "
                f"{self.nfield} height fields, got {self.capacity}."
            )

    @staticmethod
    def none() -> "HeightFields":
        """Return no height fields."""
        return HeightFields((), (), (), np.zeros(0), np.zeros((0, 3)), ())

    @property
    def nfield(self) -> int:
        """Number of height fields."""
        return len(self.names)

    @property
    def nheight(self) -> int:
        """Number of grid points of all height fields."""
        return sum(map(int.__mul__, self.rows, self.columns))

    def span(self, field: int) -> tuple[int, int]:
        """Return the range of a height field in `heights`."""
        counts = [a * b for a, b in zip(self.rows, self.columns)]
        start = sum(counts[:field])
        return start, start + counts[field]

    def grid(self, field: int) -> Any:
        """Return the heights of a field, `(rows, columns)`."""
        first, last = self.span(field)
        shape = self.rows[field], self.columns[field]
        heights = self.heights[first:last]
        return heights.reshape(*shape, *heights.shape[1:])
