"""Sensors of a random robot: one of every possible kind."""

import dataclasses

import numpy as np

from ._system import System
from .kinds import JointKind
from .pairs import is_measured
from .sensor_kinds import (
    Attachment,
    ContactData,
    ContactReduction,
    Cutoff,
    RayData,
    SENSOR_FACTS,
    SensorKind,
    SensorObject,
    Sensors,
)


_K, _O = SensorKind, SensorObject
_NONE: Attachment = (_O.NONE, -1)

_AT_SITES = (_K.ACCELEROMETER, _K.VELOCIMETER, _K.GYRO, _K.MAGNETOMETER)
_AT_SITES += (_K.TOUCH, _K.RANGEFINDER)
_AT_LINKS = (_K.SUBTREE_CENTER, _K.SUBTREE_VELOCITY, _K.SUBTREE_ANGULAR_MOMENTUM)
_AT_JOINTS = (_K.JOINT_POSITION, _K.JOINT_VELOCITY, _K.JOINT_ACTUATOR_FORCE)
_AT_BALLS = (_K.BALL_QUATERNION, _K.BALL_VELOCITY)
_AT_LIMITS = (_K.JOINT_LIMIT_POSITION, _K.JOINT_LIMIT_VELOCITY, _K.JOINT_LIMIT_FORCE)
_AT_TENDONS = (_K.TENDON_POSITION, _K.TENDON_VELOCITY, _K.TENDON_ACTUATOR_FORCE)
_AT_TENDON_LIMITS = (
    _K.TENDON_LIMIT_POSITION,
    _K.TENDON_LIMIT_VELOCITY,
    _K.TENDON_LIMIT_FORCE,
)
_AT_ACTUATORS = (_K.ACTUATOR_POSITION, _K.ACTUATOR_VELOCITY, _K.ACTUATOR_FORCE)
_STILL = (_K.FRAME_ACCELERATION, _K.FRAME_ANGULAR_ACCELERATION)
_FRAMES = tuple(kind for kind in SensorKind if kind.value.startswith("frame"))
_DISTANCES = (_K.DISTANCE, _K.NORMAL, _K.FROM_TO)
_ALONE = (_K.POTENTIAL_ENERGY, _K.KINETIC_ENERGY, _K.CLOCK)


def add_sensors(
    rng: np.random.Generator, sys: System, most: int | None = None
) -> System:
    """Draw sensors for a robot with sites, up to a given number."""
    found = [(kind, own, _NONE) for kind, own in _attached(rng, sys)]
    found += [(kind, _frame(rng, sys), _reference(rng, sys, kind)) for kind in _FRAMES]
    if sys.nsite:
        found.append((_K.INSIDE_SITE, _frame(rng, sys), _site(rng, sys)))
    found += [(_K.CONTACT, *_contact_ends(rng, sys)) for _ in range(3)]
    pairs = _distance_pairs(sys)
    if pairs:
        found += [(kind, *pairs[rng.integers(len(pairs))]) for kind in _DISTANCES]
    found += [(kind, _NONE, _NONE) for kind in _ALONE]
    rng.shuffle(found)
    found = found[:most]
    return dataclasses.replace(sys, sensors=_sensors(rng, sys, found))


def _sensors(rng: np.random.Generator, sys: System, found: list) -> Sensors:
    kinds = tuple(kind for kind, _, _ in found)
    limited = rng.random(len(found)) < 0.3
    limited &= [SENSOR_FACTS[kind].cutoff is not Cutoff.NONE for kind in kinds]
    limited |= [kind in _DISTANCES for kind in kinds]
    is_contact = [kind is _K.CONTACT for kind in kinds]
    reductions = [
        tuple(ContactReduction)[rng.integers(4)] if mark else ContactReduction.FIRST
        for mark in is_contact
    ]
    data = [
        _contact_data(rng, reduction) if mark else ()
        for reduction, mark in zip(reductions, is_contact)
    ]
    rays = [_some(rng, tuple(RayData)) if k is _K.RANGEFINDER else () for k in kinds]
    return Sensors(
        names=tuple(f"sensor{k}" for k in range(len(found))),
        kinds=kinds,
        objects=tuple(one for _, one, _ in found),
        references=tuple(two for _, _, two in found),
        limited=tuple(bool(mark) for mark in limited),
        contact_data=tuple(data),
        contact_reductions=tuple(reductions),
        contact_slots=tuple(int(rng.integers(1, 4)) * mark for mark in is_contact),
        ray_data=tuple(rays),
        ray_geoms=tuple(g for g in range(sys.ngeom) if rng.random() < 0.8)
        if any(rays)
        else (),
        cutoff=rng.uniform(0.1, 2.0, len(found)) * limited,
        magnetic=rng.normal(size=3) if _K.MAGNETOMETER in kinds else None,
    )


def _attached(rng: np.random.Generator, sys: System) -> list:
    """Draw an object for every kind of sensor that is attached to one object."""
    joints, tendons = sys.joints, sys.tendons
    single = [j for j, kind in enumerate(joints.kinds) if kind.nv == 1]
    balls = [j for j, kind in enumerate(joints.kinds) if kind is JointKind.SPHERICAL]
    limits = [j for j, mark in enumerate(joints.limited) if mark]
    moving = [site for site, link in enumerate(sys.sites.links) if link >= 0]
    groups = (
        (_AT_SITES, _O.SITE, range(sys.nsite)),
        ((_K.FORCE, _K.TORQUE), _O.SITE, moving),
        (_AT_LINKS, _O.INERTIA, range(-1, sys.nlink)),
        (_AT_JOINTS, _O.JOINT, single),
        (_AT_BALLS, _O.JOINT, balls),
        (_AT_LIMITS, _O.JOINT, limits),
        (_AT_TENDONS, _O.TENDON, range(sys.ntendon)),
        (_AT_TENDON_LIMITS, _O.TENDON, np.flatnonzero(tendons.limited).tolist()),
        (_AT_ACTUATORS, _O.ACTUATOR, range(sys.nactuator)),
    )
    return [
        (kind, (sort, int(rng.choice(list(index)))))
        for kinds, sort, index in groups
        for kind in kinds
        if len(index)
    ]


def _site(rng: np.random.Generator, sys: System) -> Attachment:
    return _O.SITE, int(rng.integers(sys.nsite))


def _frame(rng: np.random.Generator, sys: System) -> Attachment:
    options = [(_O.LINK, k) for k in range(-1, sys.nlink)]
    options += [(_O.INERTIA, k) for k in range(sys.nlink)]
    options += [(_O.GEOM, k) for k in range(sys.ngeom)]
    options += [(_O.SITE, k) for k in range(sys.nsite)]
    return options[rng.integers(len(options))]


def _reference(rng: np.random.Generator, sys: System, kind: SensorKind) -> Attachment:
    return _NONE if kind in _STILL or rng.random() < 0.3 else _frame(rng, sys)


def _contact_ends(
    rng: np.random.Generator, sys: System
) -> tuple[Attachment, Attachment]:
    options = [_NONE]
    options += [(_O.LINK, k) for k in range(-1, sys.nlink)]
    options += [(_O.INERTIA, k) for k in range(-1, sys.nlink)]
    options += [(_O.GEOM, k) for k in range(sys.ngeom)]
    first = [*options, *((_O.SITE, k) for k in range(sys.nsite))]
    return first[rng.integers(len(first))], options[rng.integers(len(options))]


def _distance_pairs(sys: System) -> list[tuple[Attachment, Attachment]]:
    return [
        ((_O.GEOM, a), (_O.GEOM, b))
        for a in range(sys.ngeom)
        for b in range(sys.ngeom)
        if a != b and is_measured(sys, a, b)
    ]


def _some(rng: np.random.Generator, options: tuple) -> tuple:
    chosen = tuple(x for x in options if rng.random() < 0.5)
    return chosen or options[:1]


def _contact_data(rng: np.random.Generator, reduction: ContactReduction) -> tuple:
    options = tuple(ContactData)
    if reduction is ContactReduction.SUM:
        options = options[: options.index(ContactData.VELOCITY)]
    return _some(rng, options)
