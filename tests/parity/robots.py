"""Random robots in which every feature occurs, alone and with others.

`random_case` draws a robot with its states, `variation` scales its parameters, so that the
same compiled program simulates it, and `features` names the features that it has.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import eqsim
from eqsim.io import write_mjcf
from eqsim.model import (
    Activation,
    Bias,
    candidate_pairs,
    Cone,
    EqualityKind,
    Gain,
    GeomKind,
    Integrator,
    JointKind,
    Transmission,
    validate,
    WrapKind,
)
from eqsim.testing import random_system

from .reference import converge
from .states import drawn_states, States


LINKS = 4
GROUPS = (
    "contacts",
    "limits",
    "friction",
    "actuators",
    "laws",
    "transmissions",
    "tendons",
    "equalities",
    "medium",
    "sensors",
    "elliptic",
    "integrator",
)
"""Groups of features of random robots. Each group is also drawn alone; `actuators` is
drawn with `laws` and `transmissions`, and `contacts` with `elliptic`."""

_NEEDS = {"laws": ("actuators",), "transmissions": ("actuators",)}
_NEEDS |= {"elliptic": ("contacts",)}
_INTEGRATORS = (Integrator.RK4, Integrator.IMPLICIT, Integrator.IMPLICIT_FAST)
_CONDIMS = ((1, 3), (3,), (4,), (6,), (1, 3, 4, 6))


class Case(NamedTuple):
    """A random robot in eqsim and MuJoCo, with states.

    - `alone`: the group that was drawn alone, or None.
    """

    sys: eqsim.System
    model: mujoco.MjModel
    states: States
    alone: str | None


def random_case(
    seed: int, count: int, precision: str = "double", links: int = LINKS
) -> Case:
    """Draw a robot: every third seed with one of `GROUPS`, the others with several.

    **Arguments:**

    - `seed`: the same seed gives the same robot and states.
    - `count`: number of states.
    - `links`: largest number of links.
    """
    rng = np.random.default_rng([seed, 22])
    alone = GROUPS[(seed // 3) % len(GROUPS)] if seed % 3 == 0 else None
    share = rng.uniform(0.25, 0.65)
    chosen = {group for group in GROUPS if rng.random() < share}
    chosen = {alone} if alone else chosen
    chosen |= {need for group in chosen for need in _NEEDS.get(group, ())}
    return _case(_system(rng, seed, chosen, links), count, seed, precision, alone)


def random_cases(
    seed: int, count: int, precision: str, links: int, variations: int
) -> list[Case]:
    """Return the robot of `random_case`, and robots of its structure with other
    parameters and other states."""
    first = random_case(seed, count, precision, links)
    rng, cases = np.random.default_rng([seed, 23]), [first]
    for k in range(1, variations + 1):
        sys, start = variation(first.sys, rng), [seed, k]
        cases.append(_case(sys, count, start, precision, first.alone))
    return cases


def _case(sys: eqsim.System, count: int, seed, precision: str, alone: str | None):
    model = converge(mujoco.MjModel.from_xml_string(write_mjcf(sys)))
    return Case(sys, model, drawn_states(model, count, seed, precision), alone)


def _system(rng: np.random.Generator, seed: int, chosen: set[str], links: int):
    nlink = 1 + seed % links
    kinds: Any = tuple(JointKind)
    if rng.random() < 0.3:
        kinds = tuple(kinds[k] for k in rng.choice(4, 2, replace=False))
    integrator = _INTEGRATORS[rng.integers(3)]
    return random_system(
        seed,
        nlink,
        kinds,
        num_roots=int(rng.integers(1, min(2, nlink) + 1)),
        with_geoms="contacts" in chosen or "medium" in chosen,
        with_actuators="actuators" in chosen,
        with_limits="limits" in chosen,
        with_friction="friction" in chosen,
        with_fluid="medium" in chosen,
        with_laws="laws" in chosen,
        with_equalities="equalities" in chosen,
        with_sites="equalities" in chosen and bool(rng.random() < 0.5),
        with_tendons="tendons" in chosen,
        with_tendon_armature=bool(rng.random() < 0.4),
        with_transmissions="transmissions" in chosen,
        with_sensors="sensors" in chosen,
        most_sensors=10,
        integrator=integrator if "integrator" in chosen else Integrator.EULER,
        cone=Cone.ELLIPTIC if "elliptic" in chosen else Cone.PYRAMIDAL,
        condims=_CONDIMS[rng.integers(len(_CONDIMS))],
    )


# Each array is multiplied by one factor, so that the degrees of freedom of a joint keep
# equal parameters, bounds keep their order, and inertias satisfy the triangle
# inequality.
_WHERE: tuple[Callable[[eqsim.System], Any], ...] = (
    lambda s: (s.links.mass, s.links.inertia),
    lambda s: s.links.com,
    lambda s: s.joints.stiffness,
    lambda s: s.joints.damping,
    lambda s: s.joints.armature,
    lambda s: s.joints.frictionloss,
    lambda s: s.joints.range,
    lambda s: s.joints.limit_solref,
    lambda s: s.joints.force_range,
    lambda s: s.geoms.pos,
    lambda s: s.geoms.size,
    lambda s: s.geoms.friction,
    lambda s: s.geoms.margin,
    lambda s: s.geoms.solref,
    lambda s: s.geoms.solmix,
    lambda s: s.pairs.friction,
    lambda s: s.pairs.solref,
    lambda s: s.sites.pos,
    lambda s: s.sites.size,
    lambda s: s.equalities.solref,
    lambda s: s.equalities.torque_scale,
    lambda s: s.tendons.stiffness,
    lambda s: s.tendons.damping,
    lambda s: s.tendons.frictionloss,
    lambda s: s.tendons.range,
    lambda s: s.tendons.coef,
    lambda s: s.actuators.gear,
    lambda s: s.actuators.ctrl_range,
    lambda s: s.actuators.force_range,
    lambda s: s.actuators.time_constant,
    lambda s: (s.actuators.gain, s.actuators.bias),
    lambda s: s.sensors.cutoff,
    lambda s: (s.gravity, s.wind),
    lambda s: (s.density, s.viscosity),
    lambda s: s.impratio,
    lambda s: s.dt,
)
LOW, HIGH = 0.8, 1.25
"""Bounds of the factors."""


def variation(sys: eqsim.System, rng: np.random.Generator) -> eqsim.System:
    """Return a valid robot of the same structure, with every parameter of `_WHERE`
    scaled."""
    for where in _WHERE:
        factor = rng.uniform(LOW, HIGH)
        # Some robots lack the part.
        if jax.tree.leaves(where(sys)):
            scaled = jax.tree.map(
                lambda x: x * jnp.asarray(factor, x.dtype), where(sys)
            )
            sys = eqx.tree_at(where, sys, scaled)
    return validate(sys)


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
