"""The surface of height fields: heights between grid points, and terrain of a robot.

Rows of a grid run along y and columns along x of the frame of the shape. Each cell is divided
by the diagonal from its first corner to the opposite one, as in MuJoCo, so that the surface is
continuous, and linear on each triangle.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from .._primitive import patterned
from ..kinematics import forward
from ..model import GeomKind, System, validate
from ..spatial import clamp, Mat3, quaternion_matrix
from ..spatial.clamps import at_least
from ..spatial.rotations import normalize4


class Surface(NamedTuple):
    """Heights on a grid, in the frame of the height field.

    - `heights`: z of the grid points in row-major order, m.
    - `rows`, `columns`: size of the grid.
    - `half_x`, `half_y`: half lengths along x and y, m.
    """

    heights: Float[Array, " nheight"]
    rows: int
    columns: int
    half_x: Float[Array, ""]
    half_y: Float[Array, ""]

    def within(self, x: Any, y: Any) -> Bool[Array, "..."]:
        """Return true for points above or below the grid."""
        return (jnp.abs(x) <= self.half_x) & (jnp.abs(y) <= self.half_y)

    def height(self, x: Any, y: Any) -> Float[Array, "..."]:
        """Interpolate heights; outside of the grid, that of the nearest point of its
        border."""
        x = clamp(x, -self.half_x, self.half_x)
        y = clamp(y, -self.half_y, self.half_y)
        along_x = (x + self.half_x) * ((self.columns - 1) / (2.0 * self.half_x))
        along_y = (y + self.half_y) * ((self.rows - 1) / (2.0 * self.half_y))
        column = jnp.clip(jnp.floor(along_x), 0, self.columns - 2)
        row = jnp.clip(jnp.floor(along_y), 0, self.rows - 2)
        right, up = along_x - column, along_y - row
        # The triangle below the diagonal has the corner to the right of the first one.
        below = right > up
        # Whatever is not a number reads some entry too.
        last = self.rows * self.columns - self.columns - 2
        first = row.astype(int) * self.columns + column.astype(int)
        first = jnp.clip(first, 0, last)
        side = first + jnp.where(below, 1, self.columns)
        near, between, far = (
            self.heights.at[index].get(mode="promise_in_bounds")
            for index in (first, side, first + (self.columns + 1))
        )
        major, minor = jnp.where(below, right, up), jnp.where(below, up, right)
        return near + major * (between - near) + minor * (far - between)


def surface_of(sys: System, field: int) -> Surface:
    """Return the surface of a height field, in its frame."""
    fields = sys.height_fields
    first, last = fields.span(field)
    size = fields.size[field]
    rows, columns = fields.rows[field], fields.columns[field]
    return Surface(fields.heights[first:last], rows, columns, size[0], size[1])


def ground_height(
    sys: System,
    x: Float[Array, "*points"],
    y: Float[Array, "*points"],
    name: str | None = None,
) -> Float[Array, "*points"]:
    """Interpolate the height of a height field of the world at points (x, y).

    The surface is that of MuJoCo: linear on the two triangles of each cell.
    Differentiable with respect to points, heights, size and position of the field; on
    edges, derivatives are those of one of the triangles.

    **Arguments:**

    - `sys`: a robot with a height field. The field may be moved, and turned about the
        vertical axis.
    - `x`, `y`: points in the world, m.
    - `name`: name of the height field; by default the only one.

    **Returns:** z of the ground in the world, m. Outside of the field, that of the
    nearest point of its border. NaN if its z axis is not vertical.

    **Raises:** `ValueError` if there is no such height field in the world.
    """
    field, pos, rot = placed_field(sys, name)
    away_x, away_y = x - pos[0], y - pos[1]
    height = surface_of(sys, field).height(
        rot.xx * away_x + rot.yx * away_y, rot.xy * away_x + rot.yy * away_y
    )
    return jnp.where(is_vertical(rot.zz), pos[2] + height, jnp.nan)


def placed_field(
    sys: System, name: str | None = None
) -> tuple[int, Float[Array, "3"], Mat3]:
    """Find a height field of the world: its index, and position and rotation of its
    shape.

    **Raises:** `ValueError` if there is no such height field, or several shapes have it.
    """
    geom = _geom_of(sys, name)
    rot = quaternion_matrix(normalize4([sys.geoms.quat[geom, k] for k in range(4)]))
    return sys.geoms.data[geom], sys.geoms.pos[geom], rot


def is_vertical(cosine: Any) -> Any:
    """Return true if the z axis of a frame, given its z component, is vertical up to
    rounding."""
    return cosine > 1.0 - 64 * float(jnp.finfo(cosine.dtype).eps)


def _geom_of(sys: System, name: str | None) -> int:
    """Return the shape of the world with a height field of some name."""
    field = _field_of(sys, name)
    own = [
        geom
        for geom, (kind, data) in enumerate(zip(sys.geoms.kinds, sys.geoms.data))
        if kind is GeomKind.HFIELD and data == field and sys.geoms.links[geom] < 0
    ]
    if len(own) != 1:
        raise ValueError(
            f"{len(own)} shapes of the world have the height field "
            f"{sys.height_fields.names[field]!r}; one is needed. Use "
            "`eqsim.sensors.height_scan` for several, or for those of links."
        )
    return own[0]


def _field_of(sys: System, name: str | None) -> int:
    if name is not None:
        return sys.height_field(name).index
    names = sys.height_fields.names
    if len(names) != 1:
        remedy = (
            "Pass `name`." if names else "Add one with `eqsim.io.with_height_field`."
        )
        raise ValueError(
            f"This robot has {len(names)} height fields {list(names)}; one is needed. "
            f"{remedy}"
        )
    return 0


# Terrain of a robot.


def with_terrain(
    sys: System,
    heights: Float[Array, "rows columns"],
    size: tuple[Any, Any] | None = None,
    name: str | None = None,
) -> System:
    """Return the robot on another terrain.

    The heights replace those of a height field of the same resolution, so that programs
    are not compiled again. The bottom of the field is lowered if heights would reach it.

    **Arguments:**

    - `sys`: a robot with a height field, see `eqsim.io.with_height_field`.
    - `heights`: heights of the grid points, in rows along x, m.
    - `size`: lengths of the terrain along x and y, m; by default they stay.
    - `name`: name of the height field; by default the only one.

    **Raises:** `ValueError` if there is no such field, if its resolution differs, if a
    height is not finite, or if the terrain is smaller than the robot. Traced values are
    not checked.
    """
    field, fields = _field_of(sys, name), sys.height_fields
    shape = fields.rows[field], fields.columns[field]
    if heights.shape != shape:
        raise ValueError(
            f"`heights` have the shape {heights.shape}, but the height field "
            f"{fields.names[field]!r} has the resolution {shape} (rows, columns). Load a "
            "robot of that resolution: `eqsim.io.with_height_field(..., rows="
            f"{heights.shape[0]}, columns={heights.shape[-1]})`."
        )
    if not isinstance(heights, Tracer) and not np.all(np.isfinite(heights)):
        raise ValueError(
            "`heights` must be finite, but some are infinite or not numbers."
        )
    dtype, (first, last) = fields.heights.dtype, fields.span(field)
    heights = jnp.asarray(heights, dtype)
    sizes = fields.size
    if size is not None:
        sizes = sizes.at[field, :2].set(
            jnp.stack([jnp.asarray(x / 2, dtype) for x in size])
        )
    base = at_least(sizes[field, 2], _DEPTH - jnp.min(heights))
    sizes = sizes.at[field, 2].set(base)
    everything = fields.heights.at[first:last].set(heights.ravel())
    where = lambda s: (s.height_fields.heights, s.height_fields.size)
    new = eqx.tree_at(where, sys, (everything, sizes))
    leaves = jax.tree_util.tree_leaves(new)
    if any(isinstance(x, Tracer) for x in leaves) or new.dt.ndim > 0:
        return new
    validate(new)
    _check_larger(new, field)
    return patterned(new)


# Least depth of the bottom below the surface, m.
_DEPTH = 0.1


def _check_larger(sys: System, field: int) -> None:
    """Raise `ValueError` if a terrain is smaller than the robot at its reference."""
    moving = [link for link in range(sys.nlink) if _moves(sys, link)]
    if not moving:
        return
    pos = np.asarray(forward(sys, jnp.asarray(sys.joints.ref)).pos)[moving, :2]
    span = np.max(pos, axis=0) - np.min(pos, axis=0)
    for axis, own, length in zip(
        "xy", span, 2.0 * np.asarray(sys.height_fields.size)[field]
    ):
        if own > length:
            raise ValueError(
                f"The terrain is {length:.3g} m long along {axis}, but the links of the "
                f"robot extend over {own:.3g} m. Pass a larger `size` (in m)."
            )


def _moves(sys: System, link: int) -> bool:
    while link >= 0:
        if link in sys.joints.links:
            return True
        link = sys.links.parents[link]
    return False
