"""Height fields in place of planes, for robots whose files have no terrain."""

import math
import os
from collections.abc import Mapping
from typing import Any

from ..._errors import check_count
from .mujoco_names import engine
from .sources import read_spec


def with_height_field(
    source: str | os.PathLike | Any,
    rows: int,
    columns: int,
    size: tuple[Any, Any],
    *,
    assets: Mapping[str, bytes | str] | None = None,
    plane: str | None = None,
    name: str = "terrain",
    base: float = 1.0,
) -> Any:
    """Read an MJCF file, and replace a plane of the world by a flat height field.

    Friction, material and all other properties of the plane are kept. The field has no
    ground beyond its sides.

    !!! example

        ```python
        spec = with_height_field("scene.xml", *grid.shape, grid.size)
        sys = with_terrain(load_mjcf(spec), grid.heights(key))
        ```

    **Arguments:**

    - `source`: path of a file, XML text, or a `mujoco.MjSpec`, which is not changed.
    - `rows`, `columns`: grid points along y and x, at least 2.
    - `size`: lengths along x and y, m.
    - `assets`: see `load_mjcf`.
    - `plane`: name of the plane; by default the only plane of the world.
    - `name`: name of the height field.
    - `base`: depth of its bottom below the ground, m.

    **Returns:** a `mujoco.MjSpec` for `load_mjcf`.

    **Raises:** `ValueError` if there is no such plane, a number is out of range, or
    MuJoCo rejects the file.
    """
    check_count("rows", rows, 2)
    check_count("columns", columns, 2)
    for key, value in (("size", size[0]), ("size", size[1]), ("base", base)):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"`{key}` must be positive and finite (m), got {value}.")
    spec, mujoco = read_spec(source, assets), engine()
    if any(field.name == name for field in spec.hfields):
        raise ValueError(
            f"The file has a height field {name!r} already. Load it as it is, or pass "
            "another `name`."
        )
    geom = _plane(spec, plane)
    spec.add_hfield(
        name=name,
        nrow=rows,
        ncol=columns,
        size=[float(size[0]) / 2, float(size[1]) / 2, 1.0, base],
        userdata=[0.0] * (rows * columns),
    )
    geom.type, geom.hfieldname = mujoco.mjtGeom.mjGEOM_HFIELD, name
    geom.size = [0.0, 0.0, 0.0]
    return spec


def _plane(spec: Any, name: str | None) -> Any:
    """Return the plane of the world with a name, or the only one."""
    kind = engine().mjtGeom.mjGEOM_PLANE
    planes = [geom for geom in spec.worldbody.geoms if geom.type == kind]
    chosen = [geom for geom in planes if name is None or geom.name == name]
    if len(chosen) != 1:
        names = [geom.name for geom in planes]
        wanted = "one plane" if name is None else f"a plane {name!r}"
        remedy = (
            "Pass `plane`, the name of the one to replace."
            if planes
            else "Add `<geom type='plane' size='0 0 1'/>` to its `worldbody`."
        )
        raise ValueError(
            f"The world of the file must have {wanted}; its planes are {names}. {remedy}"
        )
    return chosen[0]
