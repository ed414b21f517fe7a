import equinox as eqx
from jaxtyping import Array, Float

from .._calls import AbstractPatterned, Pattern, with_pattern
from ._actuators import Actuators
from ._fields import as_array
from ._kinds import Cone, Integrator
from ._meshes import HeightFields, Meshes
from ._names import (
    ActuatorRef,
    ElementRef,
    find_name,
    GeomRef,
    HeightFieldRef,
    JointRef,
    LinkRef,
    MeshRef,
    SiteRef,
    span,
)
from ._parts import Equalities, Geoms, Joints, Keyframe, Keyframes, Links, Pairs, Sites
from ._sensors import Sensors
from ._tendons import Tendons


class System(AbstractPatterned):
    r"""A robot and its environment: structure (static) and primary parameters (arrays).

    Every array can be batched with `eqx.filter_vmap`, differentiated with
    `eqx.filter_grad`, and changed with `eqx.tree_at` without recompiling. Derived
    quantities are not stored, except for the hint `pattern`.

    **Arguments:**

    - `links`, `joints`, `geoms`, `pairs`, `actuators`, `equalities`: parts of the
        robot.
    - `keyframes`: named states, without influence on the motion.
    - `excludes`: pairs of links whose shapes never touch each other.
    - `filter_parent`: true if a link never touches its parent.
    - `integrator`: integration method.
    - `cone`: shape of the friction cones.
    - `implicit_damping`: true if Euler treats joint damping implicitly.
    - `safe_solref`: true if time constants of constraints are at least `2 dt`.
    - `notes`: features that the loader accepted without effect.
    - `gravity`: gravity, m/s$^2$. `wind`: velocity of the fluid, m/s.
    - `density`, `viscosity`: density and viscosity of the fluid, kg/m$^3$ and Pa s.
    - `impratio`: ratio of frictional to normal impedance.
    - `dt`: time step, s.
    - `sites`, `tendons`, `sensors`: sites, tendons and sensors; none by default.
    - `meshes`, `height_fields`: meshes and height fields of shapes of these kinds; none
        by default.
    - `pattern`: known zeros and ones at the time when the robot was loaded: a hint to
        the kernel compiler, which does not affect results and need not be updated. It
        is part of the structure, see `without_pattern`.
    """

    links: Links
    joints: Joints
    geoms: Geoms
    pairs: Pairs
    actuators: Actuators
    equalities: Equalities
    keyframes: Keyframes
    excludes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    filter_parent: bool = eqx.field(static=True)
    integrator: Integrator = eqx.field(static=True)
    cone: Cone = eqx.field(static=True)
    implicit_damping: bool = eqx.field(static=True)
    safe_solref: bool = eqx.field(static=True)
    has_fluid: bool = eqx.field(static=True)
    notes: tuple[str, ...] = eqx.field(static=True)
    gravity: Float[Array, "3"] = eqx.field(converter=as_array)
    wind: Float[Array, "3"] = eqx.field(converter=as_array)
    density: Float[Array, ""] = eqx.field(converter=as_array)
    viscosity: Float[Array, ""] = eqx.field(converter=as_array)
    impratio: Float[Array, ""] = eqx.field(converter=as_array)
    dt: Float[Array, ""] = eqx.field(converter=as_array)
    sites: Sites = eqx.field(default_factory=Sites.none)
    tendons: Tendons = eqx.field(default_factory=Tendons.none)
    sensors: Sensors = eqx.field(default_factory=Sensors.none)
    meshes: Meshes = eqx.field(default_factory=Meshes.none)
    height_fields: HeightFields = eqx.field(default_factory=HeightFields.none)
    pattern: Pattern = eqx.field(static=True, default=Pattern(), repr=False)

    def __str__(self) -> str:
        # Imported here, because that module imports this one.
        from ._show import show

        return show(self)

    def without_pattern(self) -> "System":
        """Return the robot without known zeros and ones.

        Robots of one structure that were loaded separately then share compiled programs,
        and can be stacked to a batch: `jax.tree.map(lambda *x: jnp.stack(x), *robots)`.
        Robots whose numbers were changed after loading have the same pattern already.
        """
        return with_pattern(self, Pattern())

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return sum(kind.nq for kind in self.joints.kinds)

    @property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return sum(kind.nv for kind in self.joints.kinds)

    @property
    def nu(self) -> int:
        """Number of controls."""
        return sum(map(len, self.actuators.inputs))

    @property
    def nactuator(self) -> int:
        """Number of actuators."""
        return len(self.actuators.names)

    @property
    def nout(self) -> int:
        """Number of actuator forces."""
        return sum(self.actuators.num_outputs)

    @property
    def na(self) -> int:
        """Number of activations."""
        return sum(map(len, self.actuators.states))

    @property
    def nlink(self) -> int:
        """Number of links, not counting the world."""
        return len(self.links.names)

    @property
    def njoint(self) -> int:
        """Number of joints."""
        return len(self.joints.names)

    @property
    def ngeom(self) -> int:
        """Number of shapes."""
        return len(self.geoms.names)

    @property
    def nmesh(self) -> int:
        """Number of meshes."""
        return len(self.meshes.names)

    @property
    def nfield(self) -> int:
        """Number of height fields."""
        return len(self.height_fields.names)

    @property
    def nsite(self) -> int:
        """Number of sites."""
        return len(self.sites.names)

    @property
    def nsensor(self) -> int:
        """Number of sensors."""
        return len(self.sensors.names)

    @property
    def ntendon(self) -> int:
        """Number of tendons."""
        return len(self.tendons.names)

    @property
    def nequality(self) -> int:
        """Number of equality constraints."""
        return len(self.equalities.names)

    @property
    def npair(self) -> int:
        """Number of explicit contact pairs."""
        return len(self.pairs.geoms)

    @property
    def nkey(self) -> int:
        """Number of keyframes."""
        return len(self.keyframes.names)

    def link(self, name: str) -> LinkRef:
        """Find a link by name.

        **Raises:** `ValueError` with all existing names, as do the other lookups.
        Lookups use only the structure, so they work while tracing.
        """
        index = find_name(self.links.names, name, "link")
        owners, joints = self.joints.links, self.joints
        own = tuple(joint for joint, link in enumerate(owners) if link == index)
        kinds = [joints.kinds[joint] for joint in own]
        return LinkRef(
            name,
            index,
            self.links.parents[index],
            own,
            span(tuple(joints.q_starts[k] for k in own), [k.nq for k in kinds]),
            span(tuple(joints.v_starts[k] for k in own), [k.nv for k in kinds]),
        )

    def joint(self, name: str) -> JointRef:
        """Find a joint by name: `state.q[sys.joint("knee").q]`."""
        joints = self.joints
        index = find_name(joints.names, name, "joint")
        kind, q, qd = (
            joints.kinds[index],
            joints.q_starts[index],
            joints.v_starts[index],
        )
        return JointRef(
            name, index, kind, joints.links[index], (q, q + kind.nq), (qd, qd + kind.nv)
        )

    def actuator(self, name: str) -> ActuatorRef:
        """Find an actuator by name: `ctrl.at[sys.actuator("hip").ctrl].set(1.0)`."""
        actuators = self.actuators
        index = find_name(actuators.names, name, "actuator")
        ctrl, act = actuators.ctrl_starts[index], actuators.act_starts[index]
        return ActuatorRef(
            name,
            index,
            (ctrl, ctrl + len(actuators.inputs[index])),
            (act, act + len(actuators.states[index])),
        )

    def geom(self, name: str) -> GeomRef:
        """Find a shape by name: `sys.geoms.friction[sys.geom("foot").index]`."""
        index = find_name(self.geoms.names, name, "shape")
        return GeomRef(name, index, self.geoms.links[index])

    def site(self, name: str) -> SiteRef:
        """Find a site by name: `sys.sites.pos[sys.site("hand").index]`."""
        index = find_name(self.sites.names, name, "site")
        return SiteRef(name, index, self.sites.links[index])

    def mesh(self, name: str) -> MeshRef:
        """Find a mesh by name: `sys.meshes.vertices[sys.mesh("foot").vertices]`."""
        index = find_name(self.meshes.names, name, "mesh")
        hull, rest = self.meshes.hulls.span(index), self.meshes.surfaces.span(index)
        return MeshRef(name, index, hull, rest)

    def height_field(self, name: str) -> HeightFieldRef:
        """Find a height field by name:
        `sys.height_fields.heights[sys.height_field("hills").heights]`."""
        fields = self.height_fields
        index = find_name(fields.names, name, "height field")
        shape = fields.rows[index], fields.columns[index]
        return HeightFieldRef(name, index, shape, fields.span(index))

    def tendon(self, name: str) -> ElementRef:
        """Find a tendon by name: `sys.tendons.stiffness[sys.tendon("knee").index]`."""
        return ElementRef(name, find_name(self.tendons.names, name, "tendon"))

    def equality(self, name: str) -> ElementRef:
        """Find an equality constraint by name:
        `sys.equalities.active[sys.equality("grip").index]`."""
        names = self.equalities.names
        return ElementRef(name, find_name(names, name, "equality constraint"))

    def keyframe(self, name: str) -> Keyframe:
        """Return a keyframe by name. `pipeline.init_keyframe(sys, name)` returns its
        state."""
        keys = self.keyframes
        index = find_name(keys.names, name, "keyframe")
        at = lambda values: values[..., index, :]
        return Keyframe(at(keys.q), at(keys.qd), at(keys.act), at(keys.ctrl))
