import equinox as eqx
from jaxtyping import Array, Float

from ._fields import array, static
from ._kinds import GeomKind


class Geoms(eqx.Module):
    r"""The shapes that collide.

    **Arguments:**

    - `names`, `kinds`, `links`: one entry per shape; link -1 is the world.
    - `condim`: dimension of the contact space, 1 (frictionless) or 3 (Coulomb friction).
    - `priority`, `contype`, `conaffinity`: which pairs touch and whose numbers win, as in
        MuJoCo.
    - `pos`, `quat`: frame in the link, m and unit quaternion.
    - `size`: radius; radius and half length (capsule, cylinder: axis z); half sizes (box);
        not read for a plane, which is infinite with normal z.
    - `friction`: sliding, torsional, rolling coefficient.
    - `solref`, `solimp`, `solmix`: softness, and its weight when two shapes are mixed.
    - `margin`: distance at which the contact constraint starts, m.
    """

    names: tuple[str, ...] = static()
    kinds: tuple[GeomKind, ...] = static()
    links: tuple[int, ...] = static()
    condim: tuple[int, ...] = static()
    priority: tuple[int, ...] = static()
    contype: tuple[int, ...] = static()
    conaffinity: tuple[int, ...] = static()
    pos: Float[Array, "ngeom 3"] = array()
    quat: Float[Array, "ngeom 4"] = array()
    size: Float[Array, "ngeom 3"] = array()
    friction: Float[Array, "ngeom 3"] = array()
    solref: Float[Array, "ngeom 2"] = array()
    solimp: Float[Array, "ngeom 5"] = array()
    solmix: Float[Array, " ngeom"] = array()
    margin: Float[Array, " ngeom"] = array()


class Pairs(eqx.Module):
    """Contact pairs that are named one by one, with their own numbers (MJCF: `pair`).

    **Arguments:**

    - `geoms`: two shape indices per pair.
    - `condim`: per pair.
    - `friction`: sliding (two directions), torsional, rolling (two directions).
    - `solref`, `solimp`, `margin`: as for `Geoms`.
    """

    geoms: tuple[tuple[int, int], ...] = static()
    condim: tuple[int, ...] = static()
    friction: Float[Array, "npair 5"] = array()
    solref: Float[Array, "npair 2"] = array()
    solimp: Float[Array, "npair 5"] = array()
    margin: Float[Array, " npair"] = array()
