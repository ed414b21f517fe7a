import equinox as eqx
from jaxtyping import Array, Float

from ._fields import as_array


class Links(eqx.Module):
    r"""Rigid bodies, ordered so that parents come first. Link 0 is the first body after
    the world.

    **Arguments:**

    - `names`, `parents`: one entry per link; the parent of a root link is -1, the
        world.
    - `translating`: true if a link only slides, along distinct axes of the world, and
        has no moving child. MuJoCo leaves armature out of the inverse weight of such
        links.
    - `mocap`: true if the pose of a link is an input (MJCF: `mocap`). It is a child of
        the world without joints, and `pos` and `quat` are its pose; see `set_mocap`.
    - `pos`, `quat`: frame of the link in its parent's frame when all its joints are at
        their reference, m and unit quaternion (scalar first). Not used for free links.
    - `mass`: mass, kg.
    - `com`: center of mass in the link frame, m.
    - `inertia`: principal moments about the center of mass, kg m$^2$.
    - `inertia_quat`: orientation of the principal axes in the link frame.
    - `gravity_compensation`: fraction of the weight that is compensated; 1 for all of
        it.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parents: tuple[int, ...] = eqx.field(static=True)
    translating: tuple[bool, ...] = eqx.field(static=True)
    mocap: tuple[bool, ...] = eqx.field(static=True)
    pos: Float[Array, "nlink 3"] = eqx.field(converter=as_array)
    quat: Float[Array, "nlink 4"] = eqx.field(converter=as_array)
    mass: Float[Array, " nlink"] = eqx.field(converter=as_array)
    com: Float[Array, "nlink 3"] = eqx.field(converter=as_array)
    inertia: Float[Array, "nlink 3"] = eqx.field(converter=as_array)
    inertia_quat: Float[Array, "nlink 4"] = eqx.field(converter=as_array)
    gravity_compensation: Float[Array, " nlink"] = eqx.field(converter=as_array)

    def __check_init__(self):
        for link, parent in enumerate(self.parents):
            if not -1 <= parent < link:
                raise ValueError(
                    f"Link {link} ({self.names[link]!r}) has parent {parent}. Sort the "
                    "links so that parents come first; the parent of a root link is -1."
                )
            if self.mocap[link] and parent != -1:
                raise ValueError(
                    f"Link {self.names[link]!r} is a mocap link, but its parent is "
                    f"{self.names[parent]!r}. Mocap links must be children of the world."
                )
