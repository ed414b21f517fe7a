"""`State` and `System`: the state of a robot, and the robot.

`System` holds primary parameters alone. Before it stand the references by which elements are
looked up by name; they give indices into the arrays of a robot, also while tracing.
"""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from .._primitive import AbstractPatterned, Pattern, patterned, with_pattern
from ._text import robot_text
from .actuator_models import AbstractActuatorModel, attached, AttachedModel
from .actuator_parameters import Actuators
from .arrays import as_array
from .kinds import Cone, Integrator, JointKind
from .meshes import HeightFields, Meshes
from .parts import (
    Equalities,
    Geoms,
    Joints,
    Keyframe,
    Keyframes,
    Links,
    Pairs,
    Sites,
    Tendons,
)
from .sensor_kinds import Sensors


class State(eqx.Module):
    """The state that the next step needs; the same type in every pipeline.

    **Arguments:**

    - `q`: coordinates, as MuJoCo's `qpos` (m, rad, unit quaternions scalar first).
    - `qd`: velocities, as MuJoCo's `qvel`. Free joints: linear in world axes, angular
        in body axes.
    - `act`: activations, actuator by actuator; then the memory of attached actuator
        models.
    - `aux`: private data of a pipeline, such as that of eqsim-mjx, which never affects a
        converged result.
    """

    q: Float[Array, " nq"]
    qd: Float[Array, " nv"]
    act: Float[Array, " na"]
    aux: PyTree = None


@dataclasses.dataclass(frozen=True)
class LinkRef:
    """Indices of a link.

    **Arguments:**

    - `name`: name of the link.
    - `index`: index in arrays with one entry per link, such as `sys.links.mass`.
    - `parent`: index of the parent link, -1 for the world.
    - `joints`: indices of the joints between the link and its parent.
    - `q`, `qd`: slices of the coordinates and velocities of these joints; empty for a
        fixed link.
    """

    name: str
    index: int
    parent: int
    joints: tuple[int, ...]
    _q: tuple[int, int]
    _qd: tuple[int, int]

    @property
    def q(self) -> slice:
        """The coordinates of the link's joints in `State.q`."""
        return slice(*self._q)

    @property
    def qd(self) -> slice:
        """The velocities of the link's joints in `State.qd`."""
        return slice(*self._qd)


@dataclasses.dataclass(frozen=True)
class JointRef:
    """Indices of a joint.

    **Arguments:**

    - `name`: name of the joint.
    - `index`: index in arrays with one entry per joint, such as `sys.joints.range`.
    - `kind`: kind of the joint: free, spherical, prismatic or revolute.
    - `link`: index of its link.
    - `q`: slice of its coordinates in `State.q` and in `sys.joints.ref`.
    - `qd`: slice of its velocities in `State.qd` and in arrays with one entry per
        degree of freedom, such as `sys.joints.damping`.
    """

    name: str
    index: int
    kind: JointKind
    link: int
    _q: tuple[int, int]
    _qd: tuple[int, int]

    @property
    def q(self) -> slice:
        """Its coordinates in `State.q`."""
        return slice(*self._q)

    @property
    def qd(self) -> slice:
        """Its velocities in `State.qd`."""
        return slice(*self._qd)


@dataclasses.dataclass(frozen=True)
class ActuatorRef:
    """Indices of an actuator.

    **Arguments:**

    - `name`: name of the actuator.
    - `index`: index in arrays with one entry per actuator, such as
        `sys.actuators.gain`.
    - `ctrl`: slice of its controls.
    - `act`: slice of its activations in `State.act`; empty without dynamics. State
        variables of attached models follow after the activations of all actuators.
    """

    name: str
    index: int
    _ctrl: tuple[int, int]
    _act: tuple[int, int]

    @property
    def ctrl(self) -> slice:
        """Its controls in `ctrl`."""
        return slice(*self._ctrl)

    @property
    def act(self) -> slice:
        """Its activations in `State.act`."""
        return slice(*self._act)


@dataclasses.dataclass(frozen=True)
class GeomRef:
    """Indices of a shape.

    **Arguments:**

    - `name`: name of the shape.
    - `index`: index in arrays with one entry per shape, such as `sys.geoms.friction`.
    - `link`: index of its link, -1 for the world.
    """

    name: str
    index: int
    link: int


@dataclasses.dataclass(frozen=True)
class SiteRef:
    """Indices of a site.

    **Arguments:**

    - `name`: name of the site.
    - `index`: index in arrays with one entry per site, such as `sys.sites.pos`.
    - `link`: index of its link, -1 for the world.
    """

    name: str
    index: int
    link: int


@dataclasses.dataclass(frozen=True)
class MeshRef:
    """Indices of a mesh.

    **Arguments:**

    - `name`: name of the mesh.
    - `index`: index in `sys.meshes`, and in `sys.geoms.data`.
    - `vertices`: slice of the vertices of its convex hull in `sys.meshes.vertices`; empty
        if it has no hull.
    - `other_vertices`: slice of its other vertices in `sys.meshes.other_vertices`.
    """

    name: str
    index: int
    _vertices: tuple[int, int]
    _others: tuple[int, int]

    @property
    def vertices(self) -> slice:
        """The vertices of its convex hull in `sys.meshes.vertices`."""
        return slice(*self._vertices)

    @property
    def other_vertices(self) -> slice:
        """Its other vertices in `sys.meshes.other_vertices`."""
        return slice(*self._others)


@dataclasses.dataclass(frozen=True)
class HeightFieldRef:
    """Indices of a height field.

    **Arguments:**

    - `name`: name of the height field.
    - `index`: index in `sys.height_fields.size`, and in `sys.geoms.data`.
    - `shape`: numbers of rows and columns.
    - `heights`: slice of its heights in `sys.height_fields.heights`.
    """

    name: str
    index: int
    shape: tuple[int, int]
    _heights: tuple[int, int]

    @property
    def heights(self) -> slice:
        """Its heights in `sys.height_fields.heights`, in row-major order."""
        return slice(*self._heights)


@dataclasses.dataclass(frozen=True)
class ElementRef:
    """Index of a tendon, an equality constraint or another element.

    **Arguments:**

    - `name`: name of the element.
    - `index`: index in arrays with one entry per element of its kind.
    """

    name: str
    index: int


def find_name(names: tuple[str, ...], name: str, kind: str) -> int:
    """Return the index of a name among the elements of one kind.

    **Arguments:**

    - `names`: names of all elements of this kind.
    - `name`: name to find.
    - `kind`: word for such an element in messages, for instance `"joint"`.

    **Raises:** `ValueError` with the closest name and all existing names.
    """
    if name in names:
        return names.index(name)
    if not names:
        raise ValueError(
            f"There is no {kind} {name!r}: this robot has no {_plural(kind)}."
        )
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"There is no {kind} {name!r}.{hint} This robot has: {', '.join(names)}."
    )


def _plural(kind: str) -> str:
    return f"{kind}es" if kind.endswith("sh") else f"{kind}s"


def span(starts: tuple[int, ...], sizes: list[int]) -> tuple[int, int]:
    """Return the start index and the end of consecutive elements."""
    return (starts[0], starts[-1] + sizes[-1]) if starts else (0, 0)


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
    - `noslip_iterations`: 0 for regularized friction. Otherwise slip below the
        largest force of friction is almost eliminated, as with MuJoCo's noslip solver; the
        number is only written by `write_mjcf`, because the solver iterates until
        convergence.
    - `sites`, `tendons`, `sensors`: sites, tendons and sensors; none by default.
    - `meshes`, `height_fields`: meshes and height fields of shapes of these kinds; none
        by default.
    - `actuator_models`: models attached to actuators, see `with_actuator_model`.
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
    noslip_iterations: int = eqx.field(static=True, default=0)
    sites: Sites = eqx.field(default_factory=Sites.none)
    tendons: Tendons = eqx.field(default_factory=Tendons.none)
    sensors: Sensors = eqx.field(default_factory=Sensors.none)
    meshes: Meshes = eqx.field(default_factory=Meshes.none)
    height_fields: HeightFields = eqx.field(default_factory=HeightFields.none)
    actuator_models: tuple[AttachedModel, ...] = ()
    pattern: Pattern = eqx.field(static=True, default=Pattern(), repr=False)

    def __str__(self) -> str:
        return robot_text(self)

    def without_pattern(self) -> "System":
        """Return the robot without known zeros and ones.

        Robots of one structure that were loaded separately then share compiled programs,
        and can be stacked to a batch: `jax.tree.map(lambda *x: jnp.stack(x), *robots)`.
        Robots whose numbers were changed after loading have the same pattern already.
        """
        return with_pattern(self, Pattern())

    def with_actuator_model(
        self,
        names: str | Sequence[str],
        model: AbstractActuatorModel | Sequence[AbstractActuatorModel],
        *,
        shared: bool = False,
    ) -> "System":
        """Return the robot with a model attached to actuators, after those attached before.

        ```python
        sys = sys.with_actuator_model(sys.actuators.names, eqsim.actuators.Delay(0.01, 5))
        ```

        The parameters of the model are `sys.actuator_models[-1].model`, and its state
        variables are the last entries of `State.act`, actuator by actuator.

        **Arguments:**

        - `names`: name of an actuator, or several names.
        - `model`: model of one actuator, or one model per actuator with the same
            structure.
        - `shared`: true for one set of parameters, such as the weights of a network, for
            all these actuators; by default each has its own.

        **Raises:** `ValueError` for an unknown or repeated name, an orientation servo, a
        control model of an actuator with several controls, models of different
        structure, or a model that returns other shapes than it declares; `TypeError` if
        `model` is no actuator model.
        """
        if self.dt.ndim:
            raise ValueError(
                "This is a batch of robots: attach the model before the batch is made, or "
                "under `eqx.filter_vmap`."
            )
        own = (names,) if isinstance(names, str) else tuple(names)
        index = tuple(self.actuator(name).index for name in own)
        new = attached(self, index, model, shared)
        return _with_models(self, (*self.actuator_models, new))

    def without_actuator_models(self) -> "System":
        """Return the robot without attached actuator models."""
        return _with_models(self, ())

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
        """Number of activations, and of state variables of actuator models after them."""
        return self.actuators.na + sum(own.size for own in self.actuator_models)

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


def _with_models(sys: System, models: tuple[AttachedModel, ...]) -> System:
    """Return the robot with more or no actuator models. State variables of new ones are zero
    in all keyframes. Nothing is assumed about values of parameters, which may be trained."""
    size = sys.actuators.na + sum(own.size for own in models)
    act = sys.keyframes.act
    if act.shape[1] != size:
        # In NumPy, which compiles nothing.
        xp: Any = jnp if isinstance(act, Tracer) else np
        more = xp.zeros((sys.nkey, max(0, size - act.shape[1])), act.dtype)
        joined = xp.concatenate([xp.asarray(act)[:, :size], more], axis=1)
        act = jnp.asarray(joined, dtype=act.dtype)
    keys = dataclasses.replace(sys.keyframes, act=act)
    new = dataclasses.replace(sys, keyframes=keys, actuator_models=models)
    if sys.pattern == Pattern():
        return new
    new = patterned(new)
    paths = [
        path for path, _ in jtu.tree_leaves_with_path(eqx.filter(new, eqx.is_array))
    ]
    known = zip(paths, new.pattern.entries, strict=True)
    entries = [None if path[0].name == "actuator_models" else x for path, x in known]
    return with_pattern(new, Pattern(tuple(entries)))
