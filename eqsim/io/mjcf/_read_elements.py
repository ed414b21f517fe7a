"""Reading of equality constraints, sites, tendons and sensors."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from ...model import (
    AbstractDistanceField,
    ContactData,
    ContactReduction,
    Equalities,
    EqualityKind,
    GeomKind,
    PathPoint,
    RayData,
    SensorKind,
    SensorObject,
    Sensors,
    Sites,
    Tendons,
    WrapKind,
)
from ...model.kinds import AnyKind
from ...model.pairs import measured_kinds
from ...model.sensor_kinds import Attachment
from ._read_bodies import Contacts
from ._table import as_tuple, read_fields
from .mujoco_names import element_names, engine, Flags, kind_names


def read_equalities(model: Any, flags: Flags) -> Equalities:
    """Convert the equality constraints of a `mujoco.MjModel`."""
    kept = np.flatnonzero(simulated_equalities(model) & flags.equality)
    types, data = model.eq_type[kept], model.eq_data[kept]
    weld, connect = (
        types == k.value for k in (EqualityKind.WELD, EqualityKind.CONNECT)
    )
    pulls, is_weld = weld | connect, weld[:, None]
    at_sites = kind_names("mjtObj", model.eq_objtype[kept]) == "site"
    objects = np.stack([model.eq_obj1id[kept], model.eq_obj2id[kept]], axis=1)
    # MuJoCo's body 0 is the world, which is link -1.
    objects = objects - (pulls & ~at_sites)[:, None].astype(int)
    one, two = data[:, :3], data[:, 3:6]
    anchors = [np.where(is_weld, two, one), np.where(is_weld, one, two)]
    names = element_names(model, "equality")
    return Equalities(
        names=tuple(names[k] for k in kept),
        kinds=tuple(EqualityKind(kind) for kind in types.tolist()),
        objects=tuple((first, second) for first, second in objects.tolist()),
        at_sites=as_tuple(at_sites),
        active=model.eq_active0[kept].astype(float),
        anchors=np.stack(anchors, axis=1) * pulls[:, None, None],
        relative_quat=np.where(is_weld, data[:, 6:10], [1.0, 0.0, 0.0, 0.0]),
        torque_scale=np.where(weld, data[:, 10], 1.0),
        coefficients=data[:, :5] * ~pulls[:, None],
        **read_fields("equality", model, flags, kept),
    )


def simulated_equalities(model: Any) -> np.ndarray:
    """Return true for simulated constraints; those of flexes are not simulated."""
    return model.eq_type <= EqualityKind.TENDON.value


_SITE_KINDS = {kind.value: kind for kind in GeomKind if kind is not GeomKind.MESH}


def read_sites(model: Any, flags: Flags) -> Sites:
    """Convert the sites of a `mujoco.MjModel`."""
    return Sites(
        names=element_names(model, "site"),
        # A mesh, whose shape is used only by touch sensors, becomes its box.
        kinds=tuple(_SITE_KINDS.get(kind, GeomKind.BOX) for kind in model.site_type),
        links=as_tuple(model.site_bodyid - 1),
        **read_fields("site", model, flags),
    )


def read_tendons(model: Any, flags: Flags, contacts: Contacts) -> Tendons:
    """Convert the tendons of a `mujoco.MjModel`."""
    fields = read_fields("tendon", model, flags)
    acts = {
        name: (fields[name] != 0) | np.any(fields[f"{name}_poly"] != 0, axis=-1)
        for name in ("stiffness", "damping")
    }
    damps, has_armature = passive_actuators(model, flags)
    automatic = _rests_at_reference(model)
    wraps = kind_names("mjtWrap", model.wrap_type)
    return Tendons(
        names=element_names(model, "tendon"),
        paths=_paths(model, contacts),
        has_spring=as_tuple(acts["stiffness"]),
        has_damping=as_tuple(acts["damping"] | damps),
        has_friction=as_tuple(fields["frictionloss"] > 0),
        has_armature=as_tuple((fields["armature"] != 0) | has_armature),
        rests_at_reference=as_tuple(automatic),
        coef=model.wrap_prm[wraps == "joint"],
        divisor=model.wrap_prm[wraps == "pulley"],
        spring_length=np.where(automatic[:, None], 0.0, model.tendon_lengthspring),
        **fields,
    )


def passive_actuators(model: Any, flags: Flags) -> tuple[np.ndarray, np.ndarray]:
    """Return true for tendons with damping, or armature, of actuators."""
    on_tendon = kind_names("mjtTrn", model.actuator_trntype) == "tendon"
    poly = np.any(model.actuator_dampingpoly != 0, axis=-1)
    damps = ((model.actuator_damping != 0) | poly) & flags.damper
    marks = []
    for has in (damps, model.actuator_armature != 0):
        mark = np.zeros(model.ntendon, bool)
        mark[model.actuator_trnid[on_tendon & has, 0]] = True
        marks.append(mark)
    return marks[0], marks[1]


def _rests_at_reference(model: Any) -> np.ndarray:
    """Return true for tendons whose spring is at rest at `qpos_spring`, which MuJoCo's
    compiler assumes if the file gives no length."""
    if not model.ntendon:
        return np.zeros(0, bool)
    mujoco = engine()
    data = mujoco.MjData(model)
    data.qpos[:] = model.qpos_spring
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_tendon(model, data)
    return np.all(model.tendon_lengthspring == data.ten_length[:, None], axis=-1)


def _paths(model: Any, contacts: Contacts) -> tuple[tuple[PathPoint, ...], ...]:
    wraps = kind_names("mjtWrap", model.wrap_type)

    def point(k: int) -> PathPoint:
        kind, index = wraps[k], int(model.wrap_objid[k])
        if kind == "pulley":
            return PathPoint(WrapKind.PULLEY)
        if kind in ("joint", "site"):
            return PathPoint(WrapKind(kind), index)
        side = round(model.wrap_prm[k])
        return PathPoint(WrapKind.GEOM, int(contacts.places[index]), side)

    ends = zip(model.tendon_adr.tolist(), model.tendon_num.tolist())
    return tuple(tuple(point(k) for k in range(a, a + n)) for a, n in ends)


# MuJoCo's names of types that differ from the elements of MJCF.
_OTHER_NAMES = {
    "jointactfrc": "jointactuatorfrc",
    "tendonactfrc": "tendonactuatorfrc",
    "geomdist": "distance",
    "geomnormal": "normal",
    "geomfromto": "fromto",
}
_Kinds = frozenset[tuple[AnyKind, AnyKind]]
_DISTANCES = (SensorKind.DISTANCE, SensorKind.NORMAL, SensorKind.FROM_TO)
# MuJoCo's names of the objects of sensors.
_OBJECTS = {"unknown", *(each.value for each in SensorObject)}


class _Sensor(NamedTuple):
    """A sensor of a `mujoco.MjModel`.

    **Arguments:**

    - `type_name`: MuJoCo's name of its type.
    - `kind`: its kind, None if it is not supported.
    - `waits`: true if it has a delay or an interval.
    - `ends`: names of the kinds, and indices, of its object and its reference.
    """

    type_name: str
    kind: SensorKind | None
    waits: bool
    ends: tuple[tuple[str, int], tuple[str, int]]


def read_sensors(model: Any, contacts: Contacts) -> Sensors:
    """Convert the supported sensors of a `mujoco.MjModel`."""
    reasons = problems(model, contacts)
    kept = [k for k, reason in enumerate(reasons) if reason is None]
    every, names = _sensors(model), element_names(model, "sensor")
    chosen = [every[k] for k in kept]
    kinds = [sensor.kind for sensor in chosen]
    cutoff = model.sensor_cutoff[kept]
    parameters = model.sensor_intprm[kept].tolist()
    seen = visible(model) & (model.geom_type != AbstractDistanceField.value)

    def of(kind: SensorKind) -> list[list[int]]:
        return [x if own is kind else [0, 0, 0] for x, own in zip(parameters, kinds)]

    contact, rays = of(SensorKind.CONTACT), of(SensorKind.RANGEFINDER)
    reductions = tuple(ContactReduction)
    return Sensors(
        names=tuple(names[k] for k in kept),
        kinds=tuple(kind for kind in kinds if kind is not None),
        objects=tuple(_attachment(contacts, *sensor.ends[0]) for sensor in chosen),
        references=tuple(_attachment(contacts, *sensor.ends[1]) for sensor in chosen),
        limited=as_tuple(cutoff > 0),
        contact_data=tuple(_members(ContactData, mask) for mask, *_ in contact),
        contact_reductions=tuple(reductions[number] for _, number, *_ in contact),
        contact_slots=tuple(slots for _, _, slots, *_ in contact),
        ray_data=tuple(_members(RayData, mask) for mask, *_ in rays),
        ray_geoms=as_tuple(np.flatnonzero(seen[contacts.kept]))
        if SensorKind.RANGEFINDER in kinds
        else (),
        cutoff=cutoff,
        magnetic=np.array(model.opt.magnetic)
        if SensorKind.MAGNETOMETER in kinds
        else None,
    )


def _members(kind: Any, mask: int) -> tuple:
    return tuple(each for bit, each in enumerate(kind) if mask & (1 << bit))


def _attachment(contacts: Contacts, kind: str, index: int) -> Attachment:
    if index < 0 or kind == "unknown":
        return SensorObject.NONE, -1
    if kind in ("body", "xbody"):
        index -= 1
    return SensorObject(kind), int(contacts.places[index]) if kind == "geom" else index


def problems(model: Any, contacts: Contacts) -> list[str | None]:
    """Return the reason why each sensor is not supported, or None."""
    measured = frozenset(measured_kinds())
    return [_problem(model, contacts, measured, each) for each in _sensors(model)]


def _problem(
    model: Any, contacts: Contacts, measured: _Kinds, sensor: _Sensor
) -> str | None:
    kind = sensor.kind
    if kind is None:
        return sensor.type_name
    if sensor.waits:
        return "delay or interval"
    for target, index in sensor.ends:
        if target not in _OBJECTS:
            return f"attached to a {target}"
        if target == "geom" and (index < 0 or contacts.places[index] < 0):
            return "attached to a shape that is left out"
    if kind in (SensorKind.FORCE, SensorKind.TORQUE):
        if model.site_bodyid[sensor.ends[0][1]] == 0:
            return "attached to the world, on which no parent acts"
    if kind is SensorKind.CONTACT and contacts.has_gaps:
        return "contact gaps"
    if kind in (SensorKind.TOUCH, SensorKind.INSIDE_SITE, SensorKind.CONTACT):
        # They use the shape of a site.
        target, index = sensor.ends[kind is SensorKind.INSIDE_SITE]
        if target == "site" and int(model.site_type[index]) not in _SITE_KINDS:
            return "site of unknown shape"
    if kind in _DISTANCES:
        return _distance_problem(model, contacts, measured, sensor)
    return None


def hidden_shapes(model: Any, contacts: Contacts) -> np.ndarray:
    """Return true for geoms that rays of rangefinders would hit in MuJoCo, but not here."""
    reasons = problems(model, contacts)
    sites = [
        sensor.ends[0][1]
        for sensor, reason in zip(_sensors(model), reasons)
        if sensor.kind is SensorKind.RANGEFINDER and reason is None
    ]
    # Rays do not see the shapes of their own body.
    bodies = np.unique(model.site_bodyid[sites])
    seen = np.full(model.ngeom, len(bodies) > 1)
    if len(bodies) == 1:
        seen = model.geom_bodyid != bodies[0]
    is_field = model.geom_type == AbstractDistanceField.value
    return visible(model) & ((contacts.places < 0) | is_field) & seen


def visible(model: Any) -> np.ndarray:
    """Return true for geoms that rays can hit: those that are not transparent."""
    alpha = model.geom_rgba[:, 3]
    if not model.nmat:
        return alpha > 0
    material = model.geom_matid
    return np.where(material >= 0, model.mat_rgba[material, 3], alpha) > 0


def _sensors(model: Any) -> list[_Sensor]:
    known = {kind.value: kind for kind in SensorKind}
    known |= {name: known[word] for name, word in _OTHER_NAMES.items()}
    waits = (model.sensor_delay > 0) | np.any(model.sensor_interval > 0, axis=1)
    objects = kind_names("mjtObj", model.sensor_objtype).tolist()
    references = kind_names("mjtObj", model.sensor_reftype).tolist()
    types = kind_names("mjtSensor", model.sensor_type).tolist()
    ends = zip(
        zip(objects, model.sensor_objid.tolist()),
        zip(references, model.sensor_refid.tolist()),
    )
    return [
        _Sensor(name, known.get(name), wait, pair)
        for name, wait, pair in zip(types, waits.tolist(), ends)
    ]


def _distance_problem(
    model: Any, contacts: Contacts, measured: _Kinds, sensor: _Sensor
) -> str | None:
    """Return the kinds of the first two shapes whose distance cannot be computed."""
    one, two = (_geoms_of(model, *end) for end in sensor.ends)
    kinds = {each.value: each for each in GeomKind}
    for a, b in itertools.product(one, two):
        pair = sorted((int(model.geom_type[a]), int(model.geom_type[b])))
        if pair == [GeomKind.PLANE.value] * 2:
            continue  # Two planes have no distance.
        meshes = [g for g in (a, b) if model.geom_type[g] == GeomKind.MESH.value]
        if not contacts.hulls.issuperset(model.geom_dataid[meshes].tolist()):
            return "distance of a mesh without a convex hull"
        if tuple(kinds.get(each) for each in pair) not in measured:
            return f"distance of {' and '.join(kind_names('mjtGeom', pair))}"
    return None


def _geoms_of(model: Any, kind: str, index: int) -> range:
    if kind == "geom":
        return range(index, index + 1)
    start = int(model.body_geomadr[index])
    return range(start, start + int(model.body_geomnum[index]))
