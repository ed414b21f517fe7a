"""Parts of a robot: links, joints, sites, shapes, equality constraints, keyframes and
tendons.
"""

import collections
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .arrays import as_array
from .kinds import AnyKind, EqualityKind, GeomKind, JointKind, WrapKind


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


class Joints(eqx.Module):
    r"""Joints, in the order of their links; a link may have several joints.

    **Arguments:**

    - `names`, `kinds`, `links`: one entry per joint.
    - `limited`: true for joints whose `range` is enforced.
    - `has_friction`: true for degrees of freedom whose `frictionloss` is simulated.
    - `force_limited`: true for joints whose `force_range` is enforced.
    - `actuator_gravity`: true for joints whose gravity compensation counts as an
        actuator force, which is limited by `force_range`.
    - `anchor`, `axis`: anchor and axis in the link frame, m and unit vector.
    - `range`: lower and upper limit, rad or m; for a spherical joint, the second entry
        is the largest angle.
    - `limit_margin`: distance to the limit at which the constraint starts, rad or m.
    - `limit_solref`, `limit_solimp`: softness of the limit, as in MuJoCo.
    - `stiffness`: spring stiffness, N m/rad or N/m.
    - `stiffness_poly`: higher coefficients of the stiffness. With the deflection $x$ of
        a hinge or slide, the spring force is $-x (k + k_1 x + k_2 x^2 + \dots)$. For a
        ball joint, and each half of a free joint, $x$ is a vector, and the polynomial
        uses its length. None: no joint has such a spring.
    - `ref`: coordinates at which links have the poses `Links.pos` and `Links.quat`.
    - `spring_ref`: coordinates at which springs are at rest.
    - `damping`, `armature`, `frictionloss`: damping, armature and dry friction of each
        degree of freedom.
    - `damping_poly`: higher coefficients of the damping, for each degree of freedom.
        The force is $-\dot q\,(d + d_1 |\dot q| + d_2 \dot q^2 + \dots)$. None: linear
        damping.
    - `friction_solref`, `friction_solimp`: softness of dry friction, as in MuJoCo.
    - `force_range`: lower and upper limit of the sum of all actuator forces on each
        joint, N m or N. None: no joint has a limit.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[JointKind, ...] = eqx.field(static=True)
    links: tuple[int, ...] = eqx.field(static=True)
    limited: tuple[bool, ...] = eqx.field(static=True)
    has_friction: tuple[bool, ...] = eqx.field(static=True)
    force_limited: tuple[bool, ...] = eqx.field(static=True)
    actuator_gravity: tuple[bool, ...] = eqx.field(static=True)
    anchor: Float[Array, "njoint 3"] = eqx.field(converter=as_array)
    axis: Float[Array, "njoint 3"] = eqx.field(converter=as_array)
    range: Float[Array, "njoint 2"] = eqx.field(converter=as_array)
    limit_margin: Float[Array, " njoint"] = eqx.field(converter=as_array)
    limit_solref: Float[Array, "njoint 2"] = eqx.field(converter=as_array)
    limit_solimp: Float[Array, "njoint 5"] = eqx.field(converter=as_array)
    stiffness: Float[Array, " njoint"] = eqx.field(converter=as_array)
    ref: Float[Array, " nq"] = eqx.field(converter=as_array)
    spring_ref: Float[Array, " nq"] = eqx.field(converter=as_array)
    damping: Float[Array, " nv"] = eqx.field(converter=as_array)
    armature: Float[Array, " nv"] = eqx.field(converter=as_array)
    frictionloss: Float[Array, " nv"] = eqx.field(converter=as_array)
    friction_solref: Float[Array, "nv 2"] = eqx.field(converter=as_array)
    friction_solimp: Float[Array, "nv 5"] = eqx.field(converter=as_array)
    stiffness_poly: Float[Array, "njoint order"] | None = eqx.field(
        converter=as_array, default=None
    )
    damping_poly: Float[Array, "nv order"] | None = eqx.field(
        converter=as_array, default=None
    )
    force_range: Float[Array, "njoint 2"] | None = eqx.field(
        converter=as_array, default=None
    )

    def __check_init__(self):
        if list(self.links) != sorted(self.links):
            raise ValueError(
                f"Joints must be sorted by their links, got links {self.links}."
            )
        counts = collections.Counter(self.links)
        for joint, (kind, link) in enumerate(zip(self.kinds, self.links)):
            if kind is JointKind.FREE and counts[link] > 1:
                raise ValueError(
                    f"Joint {self.names[joint]!r} is free but shares its link with "
                    "other joints. Give the free joint a link of its own."
                )

    @property
    def q_starts(self) -> tuple[int, ...]:
        """Start index of the coordinates of each joint in `q`."""
        return _starts([kind.nq for kind in self.kinds])

    @property
    def v_starts(self) -> tuple[int, ...]:
        """Start index of the degrees of freedom of each joint in `qd`."""
        return _starts([kind.nv for kind in self.kinds])


def _starts(sizes: list[int]) -> tuple[int, ...]:
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return tuple(starts[:-1])


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
        for fluid forces); of distance fields, see their classes, such as `Torus`. Not used
        for height fields and planes; planes are infinite
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
    - `surface_velocity`: linear (m/s) and angular (rad/s) velocity of the surface relative
        to the shape, about its center and in its frame, for conveyor belts and turntables.
        Contacts see it along friction axes; the shape does not move. None: no surface
        moves.
    - `adhesion`: force with which each contact can pull, N. Those of the two shapes add up,
        unless one has a higher priority. None: no shape adheres.
    - `gap`: distance beyond the margin within which contacts with adhesion pull, and
        contacts count for actuators on links, m. None: zero.
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
    surface_velocity: Float[Array, "ngeom 6"] | None = eqx.field(
        converter=as_array, default=None
    )
    adhesion: Float[Array, " ngeom"] | None = eqx.field(
        converter=as_array, default=None
    )
    gap: Float[Array, " ngeom"] | None = eqx.field(converter=as_array, default=None)

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
    - `solref`, `solimp`, `margin`, `adhesion`, `gap`: see `Geoms`.
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
    adhesion: Float[Array, " npair"] | None = eqx.field(
        converter=as_array, default=None
    )
    gap: Float[Array, " npair"] | None = eqx.field(converter=as_array, default=None)


class Equalities(eqx.Module):
    r"""Equality constraints between two links, two joints or two tendons.

    `CONNECT` keeps a point of the first object at a point of the second, `WELD` also
    their relative orientation; the objects are links or sites. `JOINT` and `TENDON`
    couple positions, where $x = y - y_0$ is the deviation of the second one from its
    reference,

    $$q - q_0 = c_0 + c_1 x + c_2 x^2 + c_3 x^3 + c_4 x^4.$$

    **Arguments:**

    - `names`, `kinds`: one entry per constraint.
    - `objects`: first and second object: links (-1: the world), sites, joints or tendons.
        A joint or tendon without partner (-1) is held at $q_0 + c_0$.
    - `at_sites`: true if the objects of a connect or weld are sites, whose frames are
        then held together; `anchors` and `relative_quat` are not used.
    - `active`: 1 for active constraints, 0 for inactive ones. Can be changed, batched
        and randomized without recompiling.
    - `anchors`: points on the first and on the second link, in their frames, m.
    - `relative_quat`: orientation of the second link relative to the first (weld).
    - `torque_scale`: length that scales rotations relative to translations, m (weld).
    - `coefficients`: polynomial coefficients $c_0$ to $c_4$.
    - `solref`, `solimp`: softness, as in MuJoCo.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[EqualityKind, ...] = eqx.field(static=True)
    objects: tuple[tuple[int, int], ...] = eqx.field(static=True)
    at_sites: tuple[bool, ...] = eqx.field(static=True)
    active: Float[Array, " nequality"] = eqx.field(converter=as_array)
    anchors: Float[Array, "nequality 2 3"] = eqx.field(converter=as_array)
    relative_quat: Float[Array, "nequality 4"] = eqx.field(converter=as_array)
    torque_scale: Float[Array, " nequality"] = eqx.field(converter=as_array)
    coefficients: Float[Array, "nequality 5"] = eqx.field(converter=as_array)
    solref: Float[Array, "nequality 2"] = eqx.field(converter=as_array)
    solimp: Float[Array, "nequality 5"] = eqx.field(converter=as_array)

    @staticmethod
    def none() -> "Equalities":
        """Return no constraints."""
        one, five = np.zeros(0), np.zeros((0, 5))
        return Equalities(
            names=(),
            kinds=(),
            objects=(),
            at_sites=(),
            active=one,
            anchors=np.zeros((0, 2, 3)),
            relative_quat=np.zeros((0, 4)),
            torque_scale=one,
            coefficients=five,
            solref=np.zeros((0, 2)),
            solimp=five,
        )


class Keyframe(eqx.Module):
    """A named state of a robot and the corresponding controls.

    **Arguments:**

    - `q`, `qd`, `act`: coordinates, velocities and activations, as in `State`.
    - `ctrl`: input of the actuators.
    """

    q: Float[Array, "*batch nq"]
    qd: Float[Array, "*batch nv"]
    act: Float[Array, "*batch na"]
    ctrl: Float[Array, "*batch nu"]


class Keyframes(eqx.Module):
    """Named states of a robot (MJCF: `key`), without influence on its motion.

    **Arguments:**

    - `names`: one entry per keyframe.
    - `q`, `qd`, `act`: coordinates, velocities and activations, as in `State`.
    - `ctrl`: input of the actuators.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    q: Float[Array, "nkey nq"] = eqx.field(converter=as_array)
    qd: Float[Array, "nkey nv"] = eqx.field(converter=as_array)
    act: Float[Array, "nkey na"] = eqx.field(converter=as_array)
    ctrl: Float[Array, "nkey nu"] = eqx.field(converter=as_array)


class PathPoint(NamedTuple):
    """An element of the path of a tendon.

    - `kind`: kind of the element: joint, site, geom or pulley.
    - `target`: index of the joint, site or geom; -1 for a pulley.
    - `side_site`: site that selects the side on which the tendon wraps around a geom;
        -1 if none. If it lies inside the geom, the tendon passes through its inside.
    """

    kind: WrapKind
    target: int = -1
    side_site: int = -1


Path = tuple[PathPoint, ...]


class Tendons(eqx.Module):
    r"""Strings that couple joints, each with a length $\ell(q)$.

    A *fixed* tendon is a linear combination of hinge and slide coordinates, $\ell =
    \sum_j c_j q_j$. A *spatial* tendon is the shortest path through its sites, around
    spheres and cylinders. After a pulley with divisor $d$, path lengths are divided by
    $d$.

    Springs act outside of the dead band $[\ell_0, \ell_1]$, with the excess $x$ and the
    rate $\dot\ell$: $f = -(k + k_1 x + k_2 x^2)\,x
    - (d + d_1 |\dot\ell| + d_2 \dot\ell^2)\,\dot\ell$.

    **Arguments:**

    - `names`, `paths`: one entry per tendon.
    - `limited`: true if `range` is enforced.
    - `has_spring`, `has_damping`, `has_friction`, `has_armature`: true if stiffness,
        damping, `frictionloss` and `armature` are simulated.
    - `rests_at_reference`: true if the rest length of the spring is the length at
        `Joints.spring_ref`; `spring_length` is then not used.
    - `actuator_force_limited`: true if `actuator_force_range` is enforced.
    - `coef`: coefficients $c$ of all joints in all fixed tendons, in order.
    - `divisor`: divisors of all pulleys in all spatial tendons, in order.
    - `range`: lower and upper limit of the length (rad or m).
    - `limit_margin`: distance to the limit at which the constraint starts.
    - `limit_solref`, `limit_solimp`: softness of the limit, as in MuJoCo.
    - `stiffness`, `stiffness_poly`: stiffness $k$; coefficients $k_1$ and $k_2$.
    - `damping`, `damping_poly`: damping $d$; coefficients $d_1$ and $d_2$.
    - `spring_length`: dead band of the spring, $\ell_0 \le \ell_1$.
    - `armature`: inertia of the rate of length, kg or kg m$^2$.
    - `frictionloss`: dry friction, N or N m.
    - `friction_solref`, `friction_solimp`: softness of dry friction, as in MuJoCo.
    - `actuator_force_range`: lower and upper limit of the sum of all actuator forces on
        the tendon, N or N m.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    paths: tuple[Path, ...] = eqx.field(static=True)
    limited: tuple[bool, ...] = eqx.field(static=True)
    has_spring: tuple[bool, ...] = eqx.field(static=True)
    has_damping: tuple[bool, ...] = eqx.field(static=True)
    has_friction: tuple[bool, ...] = eqx.field(static=True)
    has_armature: tuple[bool, ...] = eqx.field(static=True)
    rests_at_reference: tuple[bool, ...] = eqx.field(static=True)
    actuator_force_limited: tuple[bool, ...] = eqx.field(static=True)
    coef: Float[Array, " ncoef"] = eqx.field(converter=as_array)
    divisor: Float[Array, " npulley"] = eqx.field(converter=as_array)
    range: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    limit_margin: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    limit_solref: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    limit_solimp: Float[Array, "ntendon 5"] = eqx.field(converter=as_array)
    stiffness: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    stiffness_poly: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    damping: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    damping_poly: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    spring_length: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    armature: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    frictionloss: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    friction_solref: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    friction_solimp: Float[Array, "ntendon 5"] = eqx.field(converter=as_array)
    actuator_force_range: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)

    def __check_init__(self):
        for name, path in zip(self.names, self.paths):
            problem = _problem(path)
            if problem:
                raise ValueError(f"The path of tendon {name!r} {problem}")

    @staticmethod
    def none() -> "Tendons":
        """Return no tendons."""
        one, two, five = np.zeros(0), np.zeros((0, 2)), np.zeros((0, 5))
        return Tendons(
            names=(),
            paths=(),
            limited=(),
            has_spring=(),
            has_damping=(),
            has_friction=(),
            has_armature=(),
            rests_at_reference=(),
            actuator_force_limited=(),
            coef=one,
            divisor=one,
            range=two,
            limit_margin=one,
            limit_solref=two,
            limit_solimp=five,
            stiffness=one,
            stiffness_poly=two,
            damping=one,
            damping_poly=two,
            spring_length=two,
            armature=one,
            frictionloss=one,
            friction_solref=two,
            friction_solimp=five,
            actuator_force_range=two,
        )

    @property
    def ncoef(self) -> int:
        """Number of joints in all fixed tendons."""
        return self._count(WrapKind.JOINT)

    @property
    def npulley(self) -> int:
        """Number of pulleys in all spatial tendons."""
        return self._count(WrapKind.PULLEY)

    def _count(self, kind: WrapKind) -> int:
        return sum(point.kind is kind for path in self.paths for point in path)

    @property
    def wrap_geoms(self) -> tuple[int, ...]:
        """Shapes that tendons wrap around."""
        points = [point for path in self.paths for point in path]
        return tuple(
            sorted({point.target for point in points if point.kind is WrapKind.GEOM})
        )


def _problem(path: Path) -> str | None:
    """Return the reason why a path is invalid, if any."""
    kinds = [point.kind for point in path]
    if not kinds:
        return "is empty. Give it joints, or at least two sites."
    if WrapKind.JOINT in kinds:
        if any(kind is not WrapKind.JOINT for kind in kinds):
            return "mixes joints with sites, geoms or pulleys. Use one or the other."
        return None
    for k, kind in enumerate(kinds):
        before = kinds[k - 1] if k else None
        after = kinds[k + 1] if k + 1 < len(kinds) else None
        if kind is WrapKind.GEOM and (before, after) != (WrapKind.SITE, WrapKind.SITE):
            return f"has a geom at position {k} without a site before and after it."
        if kind is WrapKind.PULLEY and after is not WrapKind.SITE:
            return f"has a pulley at position {k} that is not followed by a site."
        if kind is WrapKind.SITE and WrapKind.SITE not in (before, after):
            if WrapKind.GEOM not in (before, after):
                return f"has a site at position {k} without a neighbor to connect to."
    return None
