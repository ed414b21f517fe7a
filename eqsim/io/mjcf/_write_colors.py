from typing import Any

from ...model import System
from ._write_sensors import is_invisible


def write_color(sys: System, geom: int) -> dict[str, Any]:
    """Return the color and the group of a shape as attributes of a geom."""
    geoms, out = sys.geoms, {}
    color = geoms.colors[geom] if geoms.colors else None
    if is_invisible(sys, geom):
        # Rays pass through it.
        color = (*(color or (0.5, 0.5, 0.5))[:3], 0.0)
    if color is not None:
        out["rgba"] = color
    if geoms.groups:
        out["group"] = geoms.groups[geom]
    return out
