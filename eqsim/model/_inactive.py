"""Parameters without influence on the motion, whose gradient is always zero.

There is one function for each part of a robot, which yields what its structure
disables. Add a rule here for every new feature that can be absent.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from ._checks import declared, parts
from ._system import System
from .kinds import (
    Activation,
    ActivationState,
    AnyKind,
    Bias,
    Cone,
    Control,
    EqualityKind,
    Gain,
    GeomKind,
    JointKind,
    Transmission,
    WrapKind,
)
from .pairs import candidate_pairs, weld_links


# Rules.


class Rule(NamedTuple):
    """Array entries that are disabled.

    - `path`: path of the array.
    - `marks`: True for disabled entries; one mark may stand for a row, or for the whole
        array.
    - `reason`: reason why they are disabled.
    """

    path: str
    marks: Any
    reason: str


def rows(marks: Sequence[bool]) -> np.ndarray:
    return np.asarray(marks, bool)


def beyond(counts: Sequence[int], width: int) -> np.ndarray:
    """Return True for the entries of each row after the first `count`."""
    return np.arange(width) >= np.reshape(np.asarray(counts, int), (-1, 1))


# Actuators.


def actuators(sys: System) -> Iterator[Rule]:
    """Yield rules of actuators, muscles, DC motors and PID servos."""
    actuators = sys.actuators
    for name, limited in (
        ("ctrl", actuators.ctrl_limited),
        ("force", actuators.force_limited),
        ("act", actuators.act_limited),
    ):
        off = rows([not flag for flag in limited])
        yield Rule(f"actuators.{name}_range", off, f"Actuators.{name}_limited is False")
    filters = (Activation.FILTER, Activation.FILTER_EXACT)
    marks = [kind not in filters for kind in actuators.activation]
    yield Rule("actuators.time_constant", rows(marks), "the actuator has no filter")
    marks = [not states for states in actuators.states]
    yield Rule("actuators.act_range", rows(marks), "the actuator has no activation")
    marks = [kind is Activation.DC_MOTOR for kind in actuators.activation]
    reason = "the states of a DC motor have bounds of their own"
    yield Rule("actuators.act_range", rows(marks), reason)
    off = [not enabled for enabled in actuators.enabled]
    for name in ("gain", "bias", "force_range"):
        yield Rule(f"actuators.{name}", rows(off), "the actuator is disabled")
    marks = [kind is not Transmission.SLIDER_CRANK for kind in actuators.transmissions]
    yield Rule("actuators.crank_length", rows(marks), "the actuator has no crank")
    marks = [
        joint == -1 and kind is not Transmission.TENDON or count > 1
        for joint, kind, count in zip(
            actuators.joints, actuators.transmissions, actuators.num_outputs
        )
    ]
    reason = "the actuator does not act on a joint or tendon with one force"
    fields = ("damping", "damping_poly", "armature")
    for name in [name for name in fields if vars(actuators)[name] is not None]:
        yield Rule(f"actuators.{name}", rows(marks), reason)
    yield from _force_laws(sys)
    yield from _motors(sys)
    yield from _pids(sys)


def _force_laws(sys: System) -> Iterator[Rule]:
    actuators = sys.actuators
    kinds = [
        sys.joints.kinds[joint] if joint >= 0 else None for joint in actuators.joints
    ]
    own = {Transmission.SITE: 6, Transmission.ORIENTATION: 0, Transmission.BODY: 0}
    read = [
        own.get(transmission, 1 if kind is None else kind.nv)
        for transmission, kind in zip(actuators.transmissions, kinds)
    ]
    read = [n for n, count in zip(read, actuators.num_outputs) for _ in range(count)]
    reason = "the transmission has fewer directions"
    yield Rule("actuators.gear", beyond(read, 6), reason)
    ends = zip(kinds, actuators.transmissions, actuators.targets)
    marks = [
        kind is JointKind.FREE
        or transmission is Transmission.BODY
        or (transmission is Transmission.SITE and reference == -1)
        for kind, transmission, (_, reference) in ends
    ]
    lengthless = np.outer(marks, [False, True, False])
    reason = "the force law has other parameters"
    for name, laws, others in (
        ("gain", actuators.gains, (Gain.MUSCLE, Gain.DC_MOTOR, Gain.PID)),
        ("bias", actuators.biases, (Bias.MUSCLE, Bias.DC_MOTOR)),
    ):
        yield Rule(f"actuators.{name}", lengthless, "the transmission has no length")
        yield Rule(f"actuators.{name}", rows([law in others for law in laws]), reason)
    turns = [gain is Gain.ORIENTATION for gain in actuators.gains]
    yield Rule("actuators.gain", np.outer(turns, [False, True, True]), reason)
    turns = [bias is Bias.ORIENTATION for bias in actuators.biases]
    yield Rule("actuators.bias", np.outer(turns, [False, True, False]), reason)
    if actuators.muscles is not None:
        scaled = rows(actuators.muscles.scaled)
        yield Rule("actuators.muscles.force", scaled, "the peak force is scaled")
        yield Rule("actuators.muscles.scale", ~scaled, "the peak force is given")


# Parameters of DC motors that are used only with a controller, and with one of their
# states.
_CONTROLLER = ("proportional", "integral", "derivative", "max_voltage")
_READ_WITH = {
    ActivationState.SLEW: ("max_slew",),
    ActivationState.INTEGRAL: ("integral", "max_integral"),
    ActivationState.TEMPERATURE: (
        *("temperature_coefficient", "reference_temperature", "ambient_temperature"),
        *("thermal_resistance", "thermal_capacitance"),
    ),
    ActivationState.BRISTLE: (
        *("bristle_stiffness", "bristle_damping", "coulomb_friction"),
        *("static_friction", "stribeck_velocity"),
    ),
    ActivationState.CURRENT: ("time_constant", "max_current_rate"),
}


def _motors(sys: System) -> Iterator[Rule]:
    actuators, motors = sys.actuators, sys.actuators.motors
    if motors is None:
        return
    controls = {Control.POSITION, Control.VELOCITY, Control.FORCE}
    marks = [not controls & set(actuators.inputs[k]) for k in motors.owners]
    for name in _CONTROLLER:
        yield Rule(
            f"actuators.motors.{name}", rows(marks), "the motor has no controller"
        )
    for state, names in _READ_WITH.items():
        marks = [state not in actuators.states[k] for k in motors.owners]
        reason = f"the motor has no state {state.value!r}"
        for name in names:
            yield Rule(f"actuators.motors.{name}", rows(marks), reason)
    silent = rows([actuators.biases[k] is not Bias.DC_MOTOR for k in motors.owners])
    off = rows([not actuators.enabled[k] for k in motors.owners])
    mechanical = ("cogging", "cogging_periods", "cogging_phase", "bristle_damping")
    for name in mechanical:
        reason = "the actuator has another bias"
        yield Rule(f"actuators.motors.{name}", silent, reason)
    # As in MuJoCo, bristles of a disabled motor follow its velocity.
    moving = set(_READ_WITH[ActivationState.BRISTLE]) - {"bristle_damping"}
    for field in dataclasses.fields(motors):
        if field.name not in {"owners", "max_integral", *moving}:
            path = f"actuators.motors.{field.name}"
            yield Rule(path, off, "the actuator is disabled")


def _pids(sys: System) -> Iterator[Rule]:
    actuators, pids = sys.actuators, sys.actuators.pids
    if pids is None:
        return
    off = rows([not actuators.enabled[k] for k in pids.owners])
    for state, name in (
        (ActivationState.INTEGRAL, "integral_gain"),
        (ActivationState.SLEW, "max_slew"),
    ):
        marks = [state not in actuators.states[k] for k in pids.owners]
        reason = f"the servo has no state {state.value!r}"
        yield Rule(f"actuators.pids.{name}", rows(marks), reason)
        yield Rule(f"actuators.pids.{name}", off, "the actuator is disabled")
    reason = "it only says when the integral stops"
    yield Rule("actuators.pids.max_integral", True, reason)


# Meshes.


def meshes(sys: System) -> Iterator[Rule]:
    """Yield rules of mesh vertices that contacts do not use."""
    touching = _touching_data(sys, GeomKind.MESH)
    counts = np.diff(sys.meshes.hulls.vertex_starts)
    apart = [mesh not in touching for mesh in range(sys.nmesh)]
    reason = "no shape with this mesh can touch another one"
    yield Rule("meshes.vertices", np.repeat(rows(apart), counts), reason)
    inner = rows([True] * sys.meshes.nother)
    reason = "only vertices of the convex hull touch"
    yield Rule("meshes.other_vertices", inner, reason)


def height_fields(sys: System) -> Iterator[Rule]:
    """Yield rules of height fields that nothing can touch."""
    touching, fields = _touching_data(sys, GeomKind.HFIELD), sys.height_fields
    apart = rows([field not in touching for field in range(sys.nfield)])
    counts = [a * b for a, b in zip(fields.rows, fields.columns)]
    reason = "nothing can touch this height field"
    yield Rule("height_fields.heights", np.repeat(apart, counts), reason)
    yield Rule("height_fields.size", apart, reason)


def _touching_data(sys: System, kind: GeomKind) -> set[int]:
    geoms = sys.geoms
    touching = {geom for pair in candidate_pairs(sys) for geom in pair[:2]}
    return {geoms.data[geom] for geom in touching if geoms.kinds[geom] is kind}


# All parts.


class Inactive(NamedTuple):
    """The parameters of a robot without influence on its motion.

    **Arguments:**

    - `mask`: the robot with a boolean NumPy array in place of each array, True for
        entries without influence.
    - `reasons`: reason and number of entries without influence, by path, such as
        `"joints.frictionloss"`.
    """

    mask: System
    reasons: dict[str, str]


def inactive_parameters(sys: System) -> Inactive:
    """Find the parameters that cannot influence the motion of this robot, because a
    static flag is off or the part that they describe is absent.

    Derivatives with respect to them are zero in every state. Only the structure is
    used, so this works for batches and while tracing. The result applies to
    `Generalized`; `Spring` and `Positional` ignore further parameters, see
    `docs/pipelines.md`.

    **Arguments:**

    - `sys`: the robot.

    **Returns:** a mask and the reasons. Parameters that have no influence because of
    the value of another parameter (the rest position of a spring with zero stiffness)
    or because of the state (the friction of a foot in the air) are not included.
    """
    rules: dict[str, list[Rule]] = {}
    for part in PARTS:
        for rule in part(sys):
            if np.any(rule.marks):
                rules.setdefault(rule.path, []).append(rule)
    reasons: dict[str, str] = {}
    ranks = {
        f"{path}.{field.name}".removeprefix("System."): len(field.dims)
        for path, part in parts(sys, "System")
        for field in declared(type(part))
    }

    def marked(path, leaf):
        name = jtu.keystr(path).lstrip(".")
        mask, why = np.zeros(leaf.shape, bool), []
        for rule in rules.get(name, ()) if leaf.size else ():
            marks = _spread(rule.marks, ranks[name])
            if np.any(marks & ~mask):
                why.append(rule.reason)
            mask |= marks
        if why:
            reasons[name] = f"{'; '.join(why)} ({_count(mask)})"
        return mask

    arrays = eqx.filter(sys, _is_array)
    mask = jtu.tree_map_with_path(marked, arrays)
    return Inactive(mask, reasons)


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _spread(marks: Any, rank: int) -> np.ndarray:
    """Broadcast marks to the rank of the array of one robot."""
    marks = np.asarray(marks, bool)
    return marks.reshape(marks.shape + (1,) * (rank - marks.ndim))


def _count(mask: np.ndarray) -> str:
    marked = int(np.sum(mask))
    return "all of it" if marked == mask.size else f"{marked} of {mask.size} entries"


_NO_VIOLATION = "dry friction has no violation, on which the impedance could depend"


def _options(sys: System) -> Iterator[Rule]:
    if not sys.has_fluid:
        for name in ("density", "viscosity", "wind"):
            yield Rule(name, True, "System.has_fluid is False")
    if not any(condim > 1 for condim in _condims(sys)):
        yield Rule("impratio", True, "no contact has friction")


def _links(sys: System) -> Iterator[Rule]:
    moving = set(sys.joints.links)
    jointed = tuple(link in moving for link in range(sys.nlink))
    fixed = [weld == -1 for weld in weld_links(sys.links.parents, jointed)]
    for name in ("mass", "com", "inertia", "inertia_quat", "gravity_compensation"):
        yield Rule(f"links.{name}", rows(fixed), "the link is fixed to the world")
    free = [k for k, kind in zip(sys.joints.links, sys.joints.kinds) if _free(kind)]
    placed = [link in free for link in range(sys.nlink)]
    for name in ("pos", "quat"):
        reason = "the coordinates of a free joint place the link"
        yield Rule(f"links.{name}", rows(placed), reason)


def _free(kind: JointKind) -> bool:
    return kind is JointKind.FREE


def _joints(sys: System) -> Iterator[Rule]:
    joints = sys.joints
    off = [not limited for limited in joints.limited]
    for name in ("range", "limit_margin", "limit_solref", "limit_solimp"):
        yield Rule(f"joints.{name}", rows(off), "Joints.limited is False")
    off = [not friction for friction in joints.has_friction]
    for name in ("frictionloss", "friction_solref", "friction_solimp"):
        yield Rule(f"joints.{name}", rows(off), "Joints.has_friction is False")
    yield Rule("joints.friction_solimp", np.arange(5)[None] > 1, _NO_VIOLATION)
    off = [not limited for limited in joints.force_limited]
    yield Rule("joints.force_range", rows(off), "Joints.force_limited is False")
    unanchored = (JointKind.FREE, JointKind.PRISMATIC)
    marks = [kind in unanchored for kind in joints.kinds]
    yield Rule("joints.anchor", rows(marks), "the joint does not turn about a point")
    marks = [kind.nq > 1 for kind in joints.kinds]
    yield Rule("joints.axis", rows(marks), "free and spherical joints have no axis")


def _condims(sys: System) -> tuple[int, ...]:
    """Return the dimension of the contact space of each pair that can touch."""
    return tuple(_condim(sys, *pair) for pair in candidate_pairs(sys))


def _condim(sys: System, one: int, two: int, explicit: int) -> int:
    if explicit >= 0:
        return sys.pairs.condim[explicit]
    condim, priority = sys.geoms.condim, sys.geoms.priority
    if priority[one] != priority[two]:
        return condim[one if priority[one] > priority[two] else two]
    return max(condim[one], condim[two])


# Number of sizes of a shape that are used.
_SIZES: dict[AnyKind, int] = {
    GeomKind.PLANE: 0,
    GeomKind.SPHERE: 1,
    GeomKind.CAPSULE: 2,
}
_SIZES |= {GeomKind.CYLINDER: 2, GeomKind.MESH: 0, GeomKind.HFIELD: 0}


def _geoms(sys: System) -> Iterator[Rule]:
    geoms = sys.geoms
    pairs = candidate_pairs(sys)
    touching = {geom for pair in pairs for geom in pair[:2]}
    apart = rows([geom not in touching for geom in range(sys.ngeom)])
    for name in ("friction", "solref", "solimp", "solmix", "margin"):
        yield Rule(f"geoms.{name}", apart, "the shape cannot touch another one")
    wrapped = rows([geom in sys.tendons.wrap_geoms for geom in range(sys.ngeom)])
    drags = rows(geoms.fluid) & sys.has_fluid
    for name in ("pos", "quat", "size"):
        reason = "the shape cannot touch another one"
        yield Rule(f"geoms.{name}", apart & ~wrapped & ~drags, reason)
    reason = "tendons read the radius only"
    marks = (apart & wrapped & ~drags)[:, None] & (np.arange(3) > 0)
    yield Rule("geoms.size", marks, reason)
    # Fluid forces use three sizes of a mesh.
    read = [_SIZES.get(kind, 3) for kind in geoms.kinds]
    read = [3 if drag and not count else count for count, drag in zip(read, drags)]
    yield Rule("geoms.size", beyond(read, 3), "the shape has fewer sizes")
    round_ = [kind is GeomKind.SPHERE for kind in geoms.kinds]
    yield Rule("geoms.quat", rows(round_), "a sphere has no orientation")
    mixed, decisive, equal = set(), set(), set()
    condim = [1] * sys.ngeom
    for one, two, explicit in pairs:
        if explicit >= 0:
            continue
        mixed |= {one, two}
        first, second = geoms.priority[one], geoms.priority[two]
        winners = {one, two}
        if first != second:
            winners = {one if first > second else two}
        else:
            equal |= winners
        decisive |= winners
        for geom in winners:
            condim[geom] = max(condim[geom], _condim(sys, one, two, explicit))
    for name, used in (
        ("margin", mixed),
        ("friction", decisive),
        ("solref", decisive),
        ("solimp", decisive),
        ("solmix", equal),
    ):
        reason = "another parameter decides (Pairs, or a shape of higher priority)"
        marks = [geom not in used for geom in range(sys.ngeom)]
        yield Rule(f"geoms.{name}", rows(marks), reason)
    read = [{1: 0, 3: 1, 4: 2}.get(dimension, 3) for dimension in condim]
    yield Rule("geoms.friction", beyond(read, 3), "condim leaves out this friction")


def _pairs(sys: System) -> Iterator[Rule]:
    touching = {pair[2] for pair in candidate_pairs(sys)}
    apart = [pair not in touching for pair in range(sys.npair)]
    for name in ("friction", "solref", "solref_friction", "solimp", "margin"):
        yield Rule(f"pairs.{name}", rows(apart), "the two shapes cannot touch")
    stiff = [
        condim == 1 or sys.cone is not Cone.ELLIPTIC for condim in sys.pairs.condim
    ]
    reason = "only elliptic cones with friction have a softness along friction axes"
    yield Rule("pairs.solref_friction", rows(stiff), reason)
    read = [{1: 0, 3: 2, 4: 3}.get(condim, 5) for condim in sys.pairs.condim]
    yield Rule("pairs.friction", beyond(read, 5), "condim leaves out this friction")


def _tendons(sys: System) -> Iterator[Rule]:
    tendons = sys.tendons
    for names, flag in (
        (("stiffness", "stiffness_poly", "spring_length"), "has_spring"),
        (("damping", "damping_poly"), "has_damping"),
    ):
        off = rows([not mark for mark in vars(tendons)[flag]])
        for name in names:
            yield Rule(f"tendons.{name}", off, f"Tendons.{flag} is False")
    off = rows([not limited for limited in tendons.limited])
    for name in ("range", "limit_margin", "limit_solref", "limit_solimp"):
        yield Rule(f"tendons.{name}", off, "Tendons.limited is False")
    off = rows([not friction for friction in tendons.has_friction])
    for name in ("frictionloss", "friction_solref", "friction_solimp"):
        yield Rule(f"tendons.{name}", off, "Tendons.has_friction is False")
    yield Rule("tendons.friction_solimp", np.arange(5)[None] > 1, _NO_VIOLATION)
    off = rows([not heavy for heavy in tendons.has_armature])
    yield Rule("tendons.armature", off, "Tendons.has_armature is False")
    reason = "Tendons.rests_at_reference is True"
    yield Rule("tendons.spring_length", rows(tendons.rests_at_reference), reason)
    off = rows([not limited for limited in tendons.actuator_force_limited])
    reason = "Tendons.actuator_force_limited is False"
    yield Rule("tendons.actuator_force_range", off, reason)


def _equalities(sys: System) -> Iterator[Rule]:
    equalities = sys.equalities
    weld, coupling = EqualityKind.WELD, (EqualityKind.JOINT, EqualityKind.TENDON)
    kinds, at_sites = equalities.kinds, equalities.at_sites
    reason = "this kind of constraint has no such parameter"
    couples = rows([kind in coupling for kind in kinds])
    yield Rule("equalities.anchors", couples | rows(at_sites), reason)
    welds = rows([kind is weld for kind in kinds])
    yield Rule("equalities.relative_quat", ~welds | rows(at_sites), reason)
    yield Rule("equalities.torque_scale", ~welds, reason)
    yield Rule("equalities.coefficients", ~couples, reason)
    alone = [1 if second == -1 else 5 for _, second in equalities.objects]
    reason = "it is a switch, without a derivative"
    yield Rule("equalities.active", rows([True] * len(kinds)), reason)
    reason = "the joint or tendon has no partner"
    yield Rule("equalities.coefficients", beyond(alone, 5) & couples[:, None], reason)


def _sensors(sys: System) -> Iterator[Rule]:
    for name in ("cutoff", "magnetic"):
        yield Rule(f"sensors.{name}", True, "sensors do not influence the motion")


def _sites(sys: System) -> Iterator[Rule]:
    used = {
        index
        for path in sys.tendons.paths
        for point in path
        for index in (
            point.target if point.kind is WrapKind.SITE else -1,
            point.side_site,
        )
    }
    held = zip(sys.equalities.objects, sys.equalities.at_sites)
    used |= {site for objects, at_sites in held if at_sites for site in objects}
    ends = (Transmission.SITE, Transmission.SLIDER_CRANK, Transmission.ORIENTATION)
    acting = sys.actuators
    for kind, joint, targets in zip(
        acting.transmissions, acting.joints, acting.targets
    ):
        used |= set(targets) if kind in ends and joint == -1 else set()
    unused = rows([site not in used for site in range(sys.nsite)])
    for name in ("pos", "quat"):
        yield Rule(f"sites.{name}", unused, "nothing is attached to the site")
    reason = "the shape of a site does not change the motion"
    yield Rule("sites.size", rows([True] * sys.nsite), reason)


def _keyframes(sys: System) -> Iterator[Rule]:
    for name in ("q", "qd", "act", "ctrl"):
        marks = rows([True] * sys.nkey)
        yield Rule(f"keyframes.{name}", marks, "keyframes do not change the motion")


PARTS = (
    _options,
    _links,
    _joints,
    _geoms,
    _pairs,
    actuators,
    _tendons,
    _equalities,
    _sites,
    _sensors,
    _keyframes,
    meshes,
    height_fields,
)
