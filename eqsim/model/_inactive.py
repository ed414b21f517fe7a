"""Parameters that cannot influence the motion, so that their gradient is always zero.

One function per part of a robot yields what its structure switches off. A new feature
that can be absent adds its rule here.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from ._kinds import (
    Activation,
    Bias,
    Cone,
    EqualityKind,
    Gain,
    GeomKind,
    JointKind,
    Transmission,
    WrapKind,
)
from ._pairs import candidate_pairs, weld_links
from ._shapes import declared, parts
from ._system import System


class Inactive(NamedTuple):
    """The parameters of a robot that cannot influence its motion.

    **Arguments:**

    - `mask`: the robot with a boolean NumPy array in place of each array, True where an
        entry has no influence.
    - `reasons`: by path, such as `"joints.frictionloss"`, why, and how many entries of
        the array have no influence.
    """

    mask: System
    reasons: dict[str, str]


class _Rule(NamedTuple):
    """Entries of an array that are switched off.

    - `path`: of the array.
    - `marks`: True where an entry is switched off; one mark may stand for a row, or for
        the whole array.
    - `reason`: why.
    """

    path: str
    marks: Any
    reason: str


def inactive_parameters(sys: System) -> Inactive:
    """Find the parameters that cannot influence the motion of this robot, because a
    static flag is off or what they describe is absent.

    Derivatives with respect to them are zero in every state. Only the structure is read,
    so this works for batches and while tracing. It holds for `Generalized`; `Spring` and
    `Positional` also leave out the parameters that [Pipelines](pipelines.md) names.

    **Arguments:**

    - `sys`: the robot.

    **Returns:** a mask and the reasons. A parameter that only has no influence at its
    current value, such as the resting position of a spring of stiffness zero, or in the
    current state, such as the friction of a foot in the air, is not listed.
    """
    rules: dict[str, list[_Rule]] = {}
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
    """Marks with as many axes as the array of one robot."""
    marks = np.asarray(marks, bool)
    return marks.reshape(marks.shape + (1,) * (rank - marks.ndim))


def _count(mask: np.ndarray) -> str:
    marked = int(np.sum(mask))
    return "all of it" if marked == mask.size else f"{marked} of {mask.size} entries"


_NO_VIOLATION = "dry friction has no violation, on which the impedance could depend"


def _options(sys: System) -> Iterator[_Rule]:
    if not sys.has_fluid:
        for name in ("density", "viscosity", "wind"):
            yield _Rule(name, True, "System.has_fluid is False")
    if not any(condim > 1 for condim in _condims(sys)):
        yield _Rule("impratio", True, "no contact has friction")


def _links(sys: System) -> Iterator[_Rule]:
    moving = set(sys.joints.links)
    jointed = tuple(link in moving for link in range(sys.nlink))
    fixed = [weld == -1 for weld in weld_links(sys.links.parents, jointed)]
    for name in ("mass", "com", "inertia", "inertia_quat", "gravity_compensation"):
        yield _Rule(f"links.{name}", _rows(fixed), "the link is fixed to the world")
    free = [k for k, kind in zip(sys.joints.links, sys.joints.kinds) if _free(kind)]
    placed = [link in free for link in range(sys.nlink)]
    for name in ("pos", "quat"):
        reason = "the coordinates of a free joint place the link"
        yield _Rule(f"links.{name}", _rows(placed), reason)


def _free(kind: JointKind) -> bool:
    return kind is JointKind.FREE


def _joints(sys: System) -> Iterator[_Rule]:
    joints = sys.joints
    off = [not limited for limited in joints.limited]
    for name in ("range", "limit_margin", "limit_solref", "limit_solimp"):
        yield _Rule(f"joints.{name}", _rows(off), "Joints.limited is False")
    off = [not friction for friction in joints.has_friction]
    for name in ("frictionloss", "friction_solref", "friction_solimp"):
        yield _Rule(f"joints.{name}", _rows(off), "Joints.has_friction is False")
    yield _Rule("joints.friction_solimp", np.arange(5)[None] > 1, _NO_VIOLATION)
    off = [not limited for limited in joints.force_limited]
    yield _Rule("joints.force_range", _rows(off), "Joints.force_limited is False")
    unanchored = (JointKind.FREE, JointKind.PRISMATIC)
    marks = [kind in unanchored for kind in joints.kinds]
    yield _Rule("joints.anchor", _rows(marks), "the joint does not turn about a point")
    marks = [kind.nq > 1 for kind in joints.kinds]
    yield _Rule("joints.axis", _rows(marks), "free and spherical joints have no axis")


def _condims(sys: System) -> tuple[int, ...]:
    """Dimension of the contact space of each pair that can touch."""
    return tuple(_condim(sys, *pair) for pair in candidate_pairs(sys))


def _condim(sys: System, one: int, two: int, explicit: int) -> int:
    if explicit >= 0:
        return sys.pairs.condim[explicit]
    condim, priority = sys.geoms.condim, sys.geoms.priority
    if priority[one] != priority[two]:
        return condim[one if priority[one] > priority[two] else two]
    return max(condim[one], condim[two])


# How many of the three sizes of a shape are read.
_SIZES = {GeomKind.PLANE: 0, GeomKind.SPHERE: 1, GeomKind.CAPSULE: 2}
_SIZES |= {GeomKind.CYLINDER: 2}


def _geoms(sys: System) -> Iterator[_Rule]:
    geoms = sys.geoms
    pairs = candidate_pairs(sys)
    touching = {geom for pair in pairs for geom in pair[:2]}
    apart = _rows([geom not in touching for geom in range(sys.ngeom)])
    for name in ("friction", "solref", "solimp", "solmix", "margin"):
        yield _Rule(f"geoms.{name}", apart, "the shape cannot touch another one")
    wrapped = _rows([geom in sys.tendons.wrap_geoms for geom in range(sys.ngeom)])
    for name in ("pos", "quat", "size"):
        reason = "the shape cannot touch another one"
        yield _Rule(f"geoms.{name}", apart & ~wrapped, reason)
    reason = "tendons read the radius only"
    yield _Rule("geoms.size", (apart & wrapped)[:, None] & (np.arange(3) > 0), reason)
    read = [_SIZES.get(kind, 3) for kind in geoms.kinds]
    yield _Rule("geoms.size", _beyond(read, 3), "the shape has fewer sizes")
    round_ = [kind is GeomKind.SPHERE for kind in geoms.kinds]
    yield _Rule("geoms.quat", _rows(round_), "a sphere has no orientation")
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
        yield _Rule(f"geoms.{name}", _rows(marks), reason)
    read = [{1: 0, 3: 1, 4: 2}.get(dimension, 3) for dimension in condim]
    yield _Rule("geoms.friction", _beyond(read, 3), "condim leaves out this friction")


def _pairs(sys: System) -> Iterator[_Rule]:
    touching = {pair[2] for pair in candidate_pairs(sys)}
    apart = [pair not in touching for pair in range(sys.npair)]
    for name in ("friction", "solref", "solref_friction", "solimp", "margin"):
        yield _Rule(f"pairs.{name}", _rows(apart), "the two shapes cannot touch")
    stiff = [
        condim == 1 or sys.cone is not Cone.ELLIPTIC for condim in sys.pairs.condim
    ]
    reason = "only elliptic cones with friction have a softness along friction axes"
    yield _Rule("pairs.solref_friction", _rows(stiff), reason)
    read = [{1: 0, 3: 2, 4: 3}.get(condim, 5) for condim in sys.pairs.condim]
    yield _Rule("pairs.friction", _beyond(read, 5), "condim leaves out this friction")


def _actuators(sys: System) -> Iterator[_Rule]:
    actuators = sys.actuators
    for name, limited in (
        ("ctrl", actuators.ctrl_limited),
        ("force", actuators.force_limited),
        ("act", actuators.act_limited),
    ):
        off = _rows([not flag for flag in limited])
        yield _Rule(
            f"actuators.{name}_range", off, f"Actuators.{name}_limited is False"
        )
    filters = (Activation.FILTER, Activation.FILTER_EXACT)
    marks = [kind not in filters for kind in actuators.activation]
    yield _Rule("actuators.time_constant", _rows(marks), "the actuator has no filter")
    marks = [not states for states in actuators.states]
    yield _Rule("actuators.act_range", _rows(marks), "the actuator has no activation")
    off = [not enabled for enabled in actuators.enabled]
    for name in ("gain", "bias", "force_range"):
        yield _Rule(f"actuators.{name}", _rows(off), "the actuator is disabled")
    marks = [kind is not Transmission.SLIDER_CRANK for kind in actuators.transmissions]
    yield _Rule("actuators.crank_length", _rows(marks), "the actuator has no crank")
    yield from _force_laws(sys)


def _force_laws(sys: System) -> Iterator[_Rule]:
    actuators = sys.actuators
    kinds = [
        sys.joints.kinds[joint] if joint >= 0 else None for joint in actuators.joints
    ]
    own = {Transmission.SITE: 6, Transmission.ORIENTATION: 0}
    read = [
        own.get(transmission, 1 if kind is None else kind.nv)
        for transmission, kind in zip(actuators.transmissions, kinds)
    ]
    read = [n for n, count in zip(read, actuators.num_outputs) for _ in range(count)]
    reason = "the transmission has fewer directions"
    yield _Rule("actuators.gear", _beyond(read, 6), reason)
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
        ("gain", actuators.gains, (Gain.MUSCLE, Gain.DC_MOTOR)),
        ("bias", actuators.biases, (Bias.MUSCLE, Bias.DC_MOTOR)),
    ):
        yield _Rule(f"actuators.{name}", lengthless, "the transmission has no length")
        yield _Rule(f"actuators.{name}", _rows([law in others for law in laws]), reason)
    turns = [gain is Gain.ORIENTATION for gain in actuators.gains]
    yield _Rule("actuators.gain", np.outer(turns, [False, True, True]), reason)
    turns = [bias is Bias.ORIENTATION for bias in actuators.biases]
    yield _Rule("actuators.bias", np.outer(turns, [False, True, False]), reason)
    if actuators.muscles is not None:
        scaled = _rows(actuators.muscles.scaled)
        yield _Rule("actuators.muscles.force", scaled, "the peak force is scaled")
        yield _Rule("actuators.muscles.scale", ~scaled, "the peak force is given")


def _tendons(sys: System) -> Iterator[_Rule]:
    tendons = sys.tendons
    off = _rows([not limited for limited in tendons.limited])
    for name in ("range", "limit_margin", "limit_solref", "limit_solimp"):
        yield _Rule(f"tendons.{name}", off, "Tendons.limited is False")
    off = _rows([not friction for friction in tendons.has_friction])
    for name in ("frictionloss", "friction_solref", "friction_solimp"):
        yield _Rule(f"tendons.{name}", off, "Tendons.has_friction is False")
    yield _Rule("tendons.friction_solimp", np.arange(5)[None] > 1, _NO_VIOLATION)
    off = _rows([not heavy for heavy in tendons.has_armature])
    yield _Rule("tendons.armature", off, "Tendons.has_armature is False")
    reason = "Tendons.rests_at_reference is True"
    yield _Rule("tendons.spring_length", _rows(tendons.rests_at_reference), reason)
    off = _rows([not limited for limited in tendons.actuator_force_limited])
    reason = "Tendons.actuator_force_limited is False"
    yield _Rule("tendons.actuator_force_range", off, reason)


def _equalities(sys: System) -> Iterator[_Rule]:
    equalities = sys.equalities
    weld, coupling = EqualityKind.WELD, (EqualityKind.JOINT, EqualityKind.TENDON)
    kinds, at_sites = equalities.kinds, equalities.at_sites
    reason = "this kind of constraint has no such parameter"
    couples = _rows([kind in coupling for kind in kinds])
    yield _Rule("equalities.anchors", couples | _rows(at_sites), reason)
    welds = _rows([kind is weld for kind in kinds])
    yield _Rule("equalities.relative_quat", ~welds | _rows(at_sites), reason)
    yield _Rule("equalities.torque_scale", ~welds, reason)
    yield _Rule("equalities.coefficients", ~couples, reason)
    alone = [1 if second == -1 else 5 for _, second in equalities.objects]
    reason = "the joint or tendon has no partner"
    yield _Rule("equalities.coefficients", _beyond(alone, 5) & couples[:, None], reason)


def _sensors(sys: System) -> Iterator[_Rule]:
    for name in ("cutoff", "magnetic"):
        yield _Rule(f"sensors.{name}", True, "sensors do not influence the motion")


def _sites(sys: System) -> Iterator[_Rule]:
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
    actuators = sys.actuators
    for kind, joint, targets in zip(
        actuators.transmissions, actuators.joints, actuators.targets
    ):
        used |= set(targets) if kind in ends and joint == -1 else set()
    unused = _rows([site not in used for site in range(sys.nsite)])
    for name in ("pos", "quat"):
        yield _Rule(f"sites.{name}", unused, "nothing is attached to the site")
    reason = "the shape of a site does not change the motion"
    yield _Rule("sites.size", _rows([True] * sys.nsite), reason)


def _keyframes(sys: System) -> Iterator[_Rule]:
    for name in ("q", "qd", "act", "ctrl"):
        marks = _rows([True] * sys.nkey)
        yield _Rule(f"keyframes.{name}", marks, "keyframes do not change the motion")


PARTS = (
    _options,
    _links,
    _joints,
    _geoms,
    _pairs,
    _actuators,
    _tendons,
    _equalities,
    _sites,
    _sensors,
    _keyframes,
)


def _rows(marks: Sequence[bool]) -> np.ndarray:
    return np.asarray(marks, bool)


def _beyond(counts: Sequence[int], width: int) -> np.ndarray:
    """True for the entries of each row that come after the first `count`."""
    return np.arange(width) >= np.reshape(np.asarray(counts, int), (-1, 1))
