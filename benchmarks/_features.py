"""MJCF features of a robot."""

import itertools
from collections.abc import Iterator

import numpy as np

import eqsim
from eqsim.model import (
    Activation,
    Bias,
    candidate_pairs,
    EqualityKind,
    Gain,
    GeomKind,
    Integrator,
    Transmission,
    WrapKind,
)


_CONTACTS = (*(f"condim {n}" for n in (1, 3, 4, 6)), "impratio", "solreffriction")
_FAMILIES = {
    "joint": "jointpos jointvel jointactuatorfrc ballquat ballangvel",
    "limit": "jointlimitpos jointlimitvel jointlimitfrc tendonlimitpos tendonlimitvel "
    "tendonlimitfrc",
    "tendon": "tendonpos tendonvel tendonactuatorfrc",
    "actuator": "actuatorpos actuatorvel actuatorfrc",
    "pose of frame": "framepos framequat framexaxis frameyaxis framezaxis insidesite",
    "velocity": "framelinvel frameangvel velocimeter gyro",
    "acceleration": "framelinacc frameangacc accelerometer",
    "magnetometer": "magnetometer",
    "force, torque": "force torque",
    "touch, contact": "touch contact",
    "rangefinder": "rangefinder",
    "distance": "distance normal fromto",
    "subtree": "subtreecom subtreelinvel subtreeangmom",
    "energy, clock": "e_potential e_kinetic clock",
}
FAMILIES = {
    kind: family for family, kinds in _FAMILIES.items() for kind in kinds.split()
}
"""Row of the table for each kind of sensor."""


EXCLUSIVE = (
    tuple(f"integrator: {kind.value}" for kind in Integrator),
    *(
        (f"integrator: {kind.value}", "integrator: Euler, explicit damping")
        for kind in Integrator
        if kind is not Integrator.EULER
    ),
    ("medium: ellipsoids", "medium: inertia boxes"),
    *(
        (f"contact: pyramidal, {one}", f"contact: elliptic, {two}")
        for one, two in itertools.product(_CONTACTS, _CONTACTS)
    ),
)
"""Groups of features that exclude each other; Euler with explicit damping counts as
Euler."""


def features(sys: eqsim.System) -> tuple[str, ...]:
    """Return the features of a robot, sorted by kind."""
    parts = (_bodies, _joints, _contacts, _equalities, _tendons, _actuators)
    parts += (_sensors, _options)
    return tuple(dict.fromkeys(name for part in parts for name in part(sys)))


def _bodies(sys: eqsim.System) -> Iterator[str]:
    links = sys.links
    if np.any(np.asarray(links.gravity_compensation) != 0):
        yield "body: gravcomp"
    if any(links.mocap):
        yield "body: mocap"
    if set(range(sys.nlink)) - set(sys.joints.links):
        yield "body: without joints"


def _joints(sys: eqsim.System) -> Iterator[str]:
    joints = sys.joints
    for kind in joints.kinds:
        yield f"joint: {kind.value}"
    for kind, marked in zip(joints.kinds, joints.limited):
        if marked:
            yield "limit: ball" if kind.nv > 1 else "limit: hinge or slide"
    if any(joints.has_friction):
        yield "frictionloss: joint"
    stiff = np.asarray(joints.stiffness) != 0
    for kind, on in zip(joints.kinds, stiff):
        if on:
            yield "spring: ball or free" if kind.nv > 1 else "spring: hinge or slide"
    if joints.stiffness_poly is not None:
        yield "joint: stiffness polynomial"
    if joints.damping_poly is not None:
        yield "joint: damping polynomial"
    if any(joints.force_limited):
        yield "joint: actuatorfrcrange"
    if any(joints.actuator_gravity):
        yield "joint: actuatorgravcomp"


def _contacts(sys: eqsim.System) -> Iterator[str]:
    found, cone = candidate_pairs(sys), sys.cone.value
    for one, two, explicit in found:
        yield f"contact: {cone}, condim {_condim(sys, one, two, explicit)}"
    named = [explicit for *_, explicit in found if explicit >= 0]
    if named:
        yield "contact: pair"
    if np.any(np.asarray(sys.pairs.solref_friction)[named]) and cone == "elliptic":
        yield "contact: elliptic, solreffriction"
    if not found:
        return
    if float(sys.impratio) != 1.0:
        yield f"contact: {cone}, impratio"


def _condim(sys: eqsim.System, one: int, two: int, explicit: int) -> int:
    if explicit >= 0:
        return sys.pairs.condim[explicit]
    geoms = sys.geoms
    ranks = geoms.priority[one], geoms.priority[two]
    if ranks[0] != ranks[1]:
        return geoms.condim[one if ranks[0] > ranks[1] else two]
    return max(geoms.condim[one], geoms.condim[two])


def _equalities(sys: eqsim.System) -> Iterator[str]:
    for kind, (_, two), at_sites in zip(
        sys.equalities.kinds, sys.equalities.objects, sys.equalities.at_sites
    ):
        name = kind.name.lower()
        if kind in (EqualityKind.CONNECT, EqualityKind.WELD):
            yield f"equality: {name}, {'sites' if at_sites else 'bodies'}"
        else:
            yield f"equality: {name}{', one' if two < 0 else ''}"


def _tendons(sys: eqsim.System) -> Iterator[str]:
    tendons = sys.tendons
    for path in tendons.paths:
        kinds = {point.kind for point in path}
        yield "tendon: fixed" if WrapKind.JOINT in kinds else "tendon: spatial"
        if WrapKind.PULLEY in kinds:
            yield "tendon: pulley"
        for point in path:
            if point.kind is WrapKind.GEOM:
                ball = sys.geoms.kinds[point.target] is GeomKind.SPHERE
                yield f"tendon: wraps {'sphere' if ball else 'cylinder'}"
                if point.side_site >= 0:
                    yield "tendon: side site"
    marks = {
        "stiffness": tendons.has_spring,
        "stiffness polynomial": np.any(np.asarray(tendons.stiffness_poly), axis=-1),
        "damping": tendons.has_damping,
        "damping polynomial": np.any(np.asarray(tendons.damping_poly), axis=-1),
        "armature": tendons.has_armature,
        "limit": tendons.limited,
        "frictionloss": tendons.has_friction,
        "actuatorfrcrange": tendons.actuator_force_limited,
    }
    yield from (f"tendon: {name}" for name, marked in marks.items() if any(marked))


def _actuators(sys: eqsim.System) -> Iterator[str]:
    actuators = sys.actuators
    kinds = zip(actuators.transmissions, actuators.targets)
    for kind, (_, second) in kinds:
        referenced = kind is Transmission.SITE and second >= 0
        yield f"transmission: {'refsite' if referenced else kind.value}"
    laws = zip(actuators.gains, actuators.biases, actuators.activation)
    for gain, bias, activation in laws:
        if gain is not Gain.AFFINE:
            yield f"gain: {gain.value}"
        if bias is not Bias.AFFINE:
            yield f"bias: {bias.value}"
        if activation is not Activation.NONE:
            yield f"dyntype: {activation.value}"
    passive = (actuators.damping, actuators.damping_poly, actuators.armature)
    marks = {
        "affine gain": np.any(np.asarray(actuators.gain)[:, 1:], axis=-1),
        "affine bias": np.any(np.asarray(actuators.bias), axis=-1),
        "ctrlrange": actuators.ctrl_limited,
        "forcerange": actuators.force_limited,
        "actlimited": actuators.act_limited,
        "actearly": actuators.act_early,
        "several inputs": [len(row) > 1 for row in actuators.inputs],
        "damping or armature": [values is not None for values in passive],
        "switched off": [not on for on in actuators.enabled],
    }
    yield from (f"actuator: {name}" for name, marked in marks.items() if any(marked))


def _sensors(sys: eqsim.System) -> Iterator[str]:
    for kind in sys.sensors.kinds:
        yield f"sensor: {FAMILIES[kind.value]}"
    if any(sys.sensors.limited):
        yield "sensor: cutoff"


def _options(sys: eqsim.System) -> Iterator[str]:
    yield f"integrator: {sys.integrator.value}"
    if sys.integrator is Integrator.EULER and not sys.implicit_damping:
        yield "integrator: Euler, explicit damping"
    if sys.has_fluid:
        ellipsoids = any(sys.geoms.fluid)
        yield "medium: ellipsoids" if ellipsoids else "medium: inertia boxes"
