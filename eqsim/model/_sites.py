import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ._fields import as_array
from ._kinds import GeomKind


class Sites(eqx.Module):
    r"""Sites: frames fixed to links, for ends of tendons, sensors and forces.

    **Arguments:**

    - `names`, `kinds`, `links`: one entry per site; link -1 is the world. The shape is
        used only for touch sensors and drawing.
    - `pos`, `quat`: frame in the link, m and unit quaternion (scalar first).
    - `size`: size of the shape, as in `Geoms`, m.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[GeomKind, ...] = eqx.field(static=True)
    links: tuple[int, ...] = eqx.field(static=True)
    pos: Float[Array, "nsite 3"] = eqx.field(converter=as_array)
    quat: Float[Array, "nsite 4"] = eqx.field(converter=as_array)
    size: Float[Array, "nsite 3"] = eqx.field(converter=as_array)

    @staticmethod
    def none() -> "Sites":
        """Return no sites."""
        three = np.zeros((0, 3))
        return Sites((), (), (), three, np.zeros((0, 4)), three)
