import equinox as eqx
from jaxtyping import Array, Float

from ._fields import as_array
from ._kinds import GeomKind
from ._shape_kinds import AnyKind


_WITH_DATA = (GeomKind.MESH, GeomKind.HFIELD)


class Geoms(eqx.Module):
    r"""Shapes, for collisions and fluid forces.

    **Arguments:**

    - `names`, `kinds`, `links`: one entry per shape; link -1 is the world.
    - `condim`: dimension of the contact space: 1 (frictionless), 3 (sliding friction), 4
        (also torsional) or 6 (also rolling friction).
    - `priority`, `contype`, `conaffinity`: rules for which pairs collide and whose
        contact parameters are used, as in MuJoCo.
    - `fluid`: true if fluid forces act on the ellipsoid of the shape (MJCF:
        `fluidshape`), and not on the inertia box of the link.
    - `pos`, `quat`: frame in the link, m and unit quaternion.
    - `size`: radius (sphere); radius and half length (capsule, cylinder, along z);
        semiaxes (ellipsoid); half sizes (box; for a mesh, those of its box, used only
        for fluid forces). Not used for height fields and planes; planes are infinite
        with normal z.
    - `friction`: sliding, torsional and rolling friction coefficients.
    - `solref`, `solimp`, `solmix`: softness of contacts, and weight of the softness
        when those of two shapes are mixed.
    - `margin`: distance at which the contact constraint starts, m.
    - `fluid_coefficients`: blunt, slender and angular drag, Kutta lift and Magnus lift
        of the ellipsoid (MJCF: `fluidcoef`); not used if `fluid` is false.
    - `data`: index of the mesh or height field of each shape in `System.meshes` or
        `System.height_fields`; -1 for other shapes. Empty if there are no such shapes.
    - `colors`: red, green, blue and opacity of each shape, from 0 to 1, which the viewer
        draws. Empty if they are unknown.
    - `groups`: group of each shape, 0 to 5, by which the viewer shows and hides shapes; 0
        to 2 are visible at first. Empty if all are 0.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[AnyKind, ...] = eqx.field(static=True)
    links: tuple[int, ...] = eqx.field(static=True)
    condim: tuple[int, ...] = eqx.field(static=True)
    priority: tuple[int, ...] = eqx.field(static=True)
    contype: tuple[int, ...] = eqx.field(static=True)
    conaffinity: tuple[int, ...] = eqx.field(static=True)
    fluid: tuple[bool, ...] = eqx.field(static=True)
    pos: Float[Array, "ngeom 3"] = eqx.field(converter=as_array)
    quat: Float[Array, "ngeom 4"] = eqx.field(converter=as_array)
    size: Float[Array, "ngeom 3"] = eqx.field(converter=as_array)
    friction: Float[Array, "ngeom 3"] = eqx.field(converter=as_array)
    solref: Float[Array, "ngeom 2"] = eqx.field(converter=as_array)
    solimp: Float[Array, "ngeom 5"] = eqx.field(converter=as_array)
    solmix: Float[Array, " ngeom"] = eqx.field(converter=as_array)
    margin: Float[Array, " ngeom"] = eqx.field(converter=as_array)
    fluid_coefficients: Float[Array, "ngeom 5"] = eqx.field(converter=as_array)
    data: tuple[int, ...] = eqx.field(static=True, default=())
    colors: tuple[tuple[float, float, float, float], ...] = eqx.field(
        static=True, default=()
    )
    groups: tuple[int, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        for field, values in (("colors", self.colors), ("groups", self.groups)):
            if values and len(values) != len(self.kinds):
                raise ValueError(
                    f"Geoms.{field} has {len(values)} entries for {len(self.kinds)} shapes. "
                    "Give one per shape, or none."
                )
        for geom, kind in enumerate(self.kinds):
            if kind in _WITH_DATA and (not self.data or self.data[geom] < 0):
                raise ValueError(
                    f"Shape {self.names[geom]!r} is a {kind.name.lower()}, but Geoms.data "
                    "has no index for it. Give the index of its mesh or height field."
                )


class Pairs(eqx.Module):
    """Explicit contact pairs with their own parameters (MJCF: `pair`).

    **Arguments:**

    - `geoms`: two shape indices per pair.
    - `condim`: dimension of the contact space of each pair.
    - `friction`: sliding (two directions), torsional and rolling (two directions)
        friction coefficients.
    - `solref`, `solimp`, `margin`: softness and margin, see `Geoms`.
    - `solref_friction`: softness along friction axes, for elliptic cones; zeros to use
        that of the normal.
    """

    geoms: tuple[tuple[int, int], ...] = eqx.field(static=True)
    condim: tuple[int, ...] = eqx.field(static=True)
    friction: Float[Array, "npair 5"] = eqx.field(converter=as_array)
    solref: Float[Array, "npair 2"] = eqx.field(converter=as_array)
    solref_friction: Float[Array, "npair 2"] = eqx.field(converter=as_array)
    solimp: Float[Array, "npair 5"] = eqx.field(converter=as_array)
    margin: Float[Array, " npair"] = eqx.field(converter=as_array)
