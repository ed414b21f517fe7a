"""Replacement of shapes of a robot."""

import dataclasses

import jax.numpy as jnp

from ._kinds import GeomKind
from ._shape_kinds import AnyKind
from ._system import System


def replace_shape(
    sys: System, geom: str, kind: AnyKind, size: tuple[float, ...]
) -> System:
    """Return the robot with one shape replaced by a shape of another kind. Masses do
    not change.

    **Arguments:**

    - `geom`: name of the shape.
    - `kind`: kind of the new shape, neither mesh nor height field.
    - `size`: up to three sizes, see `Geoms`.

    **Raises:** `ValueError` if the shape does not exist, or the kind needs data.
    """
    index = sys.geom(geom).index
    if kind in (GeomKind.MESH, GeomKind.HFIELD):
        raise ValueError(f"`kind` is {kind.name}, which needs data. Load it from MJCF.")
    if len(size) > 3:
        raise ValueError(f"`size` has {len(size)} entries; a shape has at most 3.")
    geoms = sys.geoms
    kinds = (*geoms.kinds[:index], kind, *geoms.kinds[index + 1 :])
    row = jnp.zeros(3, geoms.size.dtype).at[: len(size)].set(jnp.asarray(size))
    data = geoms.data
    if data:
        data = (*data[:index], -1, *data[index + 1 :])
    new = dataclasses.replace(
        geoms, kinds=kinds, size=geoms.size.at[index].set(row), data=data
    )
    return dataclasses.replace(sys, geoms=new)
