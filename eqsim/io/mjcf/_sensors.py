"""Conversion of MuJoCo's sensors."""

from typing import Any

import numpy as np

from ...model import (
    ContactData,
    ContactReduction,
    GeomKind,
    RayData,
    SensorKind,
    SensorObject,
    Sensors,
)
from ...model._pairs import measured_kinds
from ...model._sensors import Attachment
from ._geoms import Contacts, kept_geoms
from ._mujoco import engine
from ._names import element_names


# MuJoCo's names of types that differ from the elements of MJCF.
_OTHER_NAMES = {
    "jointactfrc": "jointactuatorfrc",
    "tendonactfrc": "tendonactuatorfrc",
    "geomdist": "distance",
    "geomnormal": "normal",
    "geomfromto": "fromto",
}
_DISTANCES = (SensorKind.DISTANCE, SensorKind.NORMAL, SensorKind.FROM_TO)


def read_sensors(model: Any, contacts: Contacts) -> Sensors:
    """Convert the supported sensors of a `mujoco.MjModel`."""
    kept = [k for k in range(model.nsensor) if problem(model, contacts, k) is None]
    kinds = [_kind(model, k) for k in kept]
    names = element_names(model, "sensor")
    cutoff = model.sensor_cutoff[kept]
    params = model.sensor_intprm[kept]
    is_contact = [kind is SensorKind.CONTACT for kind in kinds]
    is_ray = [kind is SensorKind.RANGEFINDER for kind in kinds]
    reductions = tuple(ContactReduction)
    return Sensors(
        names=tuple(names[k] for k in kept),
        kinds=tuple(kind for kind in kinds if kind is not None),
        objects=tuple(_object(model, contacts, k) for k in kept),
        references=tuple(_reference(model, contacts, k) for k in kept),
        limited=tuple(bool(value > 0) for value in cutoff),
        contact_data=tuple(
            _fields(ContactData, row[0]) if mark else ()
            for row, mark in zip(params, is_contact)
        ),
        contact_reductions=tuple(
            reductions[int(row[1]) if mark else 0]
            for row, mark in zip(params, is_contact)
        ),
        contact_slots=tuple(
            int(row[2]) if mark else 0 for row, mark in zip(params, is_contact)
        ),
        ray_data=tuple(
            _fields(RayData, row[0]) if mark else ()
            for row, mark in zip(params, is_ray)
        ),
        ray_geoms=_ray_geoms(model, contacts) if any(is_ray) else (),
        cutoff=cutoff,
        magnetic=np.array(model.opt.magnetic)
        if SensorKind.MAGNETOMETER in kinds
        else None,
    )


def problem(model: Any, contacts: Contacts, sensor: int) -> str | None:
    """Return the reason why a sensor is not supported, or None."""
    kind = _kind(model, sensor)
    if kind is None:
        return _type_name(model, sensor)
    if model.sensor_delay[sensor] > 0 or np.any(model.sensor_interval[sensor] > 0):
        return "delay or interval"
    objects = _known_objects()
    for types in (model.sensor_objtype, model.sensor_reftype):
        if int(types[sensor]) not in objects:
            return f"attached to a {_object_name(int(types[sensor]))}"
    missing = _missing_geom(model, contacts, sensor)
    if missing is not None:
        return missing
    if kind in (SensorKind.FORCE, SensorKind.TORQUE) and _at_world(model, sensor):
        return "attached to the world, on which no parent acts"
    if kind is SensorKind.CONTACT and _has_gaps(model, contacts):
        return "contact gaps"
    if kind in (SensorKind.TOUCH, SensorKind.INSIDE_SITE, SensorKind.CONTACT):
        return _shape_problem(model, kind, sensor)
    return _distance_problem(model, contacts, sensor) if kind in _DISTANCES else None


def hidden_shapes(model: Any, contacts: Contacts) -> list[int]:
    """Return geoms that rays of rangefinders would hit, but that are not part of the
    system."""
    rays = [
        k
        for k in range(model.nsensor)
        if _kind(model, k) is SensorKind.RANGEFINDER
        and problem(model, contacts, k) is None
    ]
    kept = set(kept_geoms(model, contacts))
    bodies = {int(model.site_bodyid[model.sensor_objid[k]]) for k in rays}
    return [
        geom
        for geom in np.flatnonzero(visible(model)).tolist()
        if geom not in kept and bodies - {int(model.geom_bodyid[geom])}
    ]


def visible(model: Any) -> np.ndarray:
    """Return true for geoms that rays can hit: those that are not transparent."""
    alpha = model.geom_rgba[:, 3]
    if not model.nmat:
        return alpha > 0
    material = model.geom_matid
    return np.where(material >= 0, model.mat_rgba[material, 3], alpha) > 0


def _type_name(model: Any, sensor: int) -> str:
    kind = engine().mjtSensor(int(model.sensor_type[sensor]))
    return kind.name.removeprefix("mjSENS_").lower()


def _kind(model: Any, sensor: int) -> SensorKind | None:
    name = _type_name(model, sensor)
    name = _OTHER_NAMES.get(name, name)
    known = {kind.value: kind for kind in SensorKind}
    return known.get(name)


def _object_name(kind: int) -> str:
    return engine().mjtObj(kind).name.removeprefix("mjOBJ_").lower()


def _known_objects() -> dict[int, SensorObject]:
    objects = engine().mjtObj
    return {
        int(objects.mjOBJ_UNKNOWN): SensorObject.NONE,
        int(objects.mjOBJ_BODY): SensorObject.INERTIA,
        int(objects.mjOBJ_XBODY): SensorObject.LINK,
        int(objects.mjOBJ_GEOM): SensorObject.GEOM,
        int(objects.mjOBJ_SITE): SensorObject.SITE,
        int(objects.mjOBJ_JOINT): SensorObject.JOINT,
        int(objects.mjOBJ_TENDON): SensorObject.TENDON,
        int(objects.mjOBJ_ACTUATOR): SensorObject.ACTUATOR,
    }


def _object(model: Any, contacts: Contacts, sensor: int) -> Attachment:
    kind, index = model.sensor_objtype[sensor], model.sensor_objid[sensor]
    return _attachment(model, contacts, int(kind), int(index))


def _reference(model: Any, contacts: Contacts, sensor: int) -> Attachment:
    kind, index = model.sensor_reftype[sensor], model.sensor_refid[sensor]
    return _attachment(model, contacts, int(kind), int(index))


def _attachment(model: Any, contacts: Contacts, kind: int, index: int) -> Attachment:
    found = _known_objects()[kind]
    if index < 0 or found is SensorObject.NONE:
        return SensorObject.NONE, -1
    if found in (SensorObject.INERTIA, SensorObject.LINK):
        return found, index - 1
    if found is SensorObject.GEOM:
        return found, kept_geoms(model, contacts).index(index)
    return found, index


def _fields(kind: Any, mask: Any) -> tuple:
    return tuple(each for bit, each in enumerate(kind) if int(mask) & (1 << bit))


def _ray_geoms(model: Any, contacts: Contacts) -> tuple[int, ...]:
    seen = visible(model)
    kept = kept_geoms(model, contacts)
    return tuple(index for index, geom in enumerate(kept) if seen[geom])


def _ends(model: Any, sensor: int) -> list[tuple[int, int]]:
    """Return types and indices of the object and the reference of a sensor."""
    types = model.sensor_objtype[sensor], model.sensor_reftype[sensor]
    indices = model.sensor_objid[sensor], model.sensor_refid[sensor]
    return [(int(kind), int(index)) for kind, index in zip(types, indices)]


def _at_world(model: Any, sensor: int) -> bool:
    return int(model.site_bodyid[model.sensor_objid[sensor]]) == 0


def _missing_geom(model: Any, contacts: Contacts, sensor: int) -> str | None:
    kept = set(kept_geoms(model, contacts))
    geom = int(engine().mjtObj.mjOBJ_GEOM)
    for kind, index in _ends(model, sensor):
        if kind == geom and index not in kept:
            return "attached to a shape that is left out"
    return None


def _has_gaps(model: Any, contacts: Contacts) -> bool:
    touching = list(contacts.geoms)
    return bool(np.any(model.geom_gap[touching]) or np.any(model.pair_gap))


def _shape_problem(model: Any, kind: SensorKind, sensor: int) -> str | None:
    """Test if a sensor uses the shape of a site that is a mesh."""
    site = int(engine().mjtObj.mjOBJ_SITE)
    ends = _ends(model, sensor)
    chosen = ends[1:] if kind is SensorKind.INSIDE_SITE else ends[:1]
    known = {each.value for each in GeomKind if each is not GeomKind.MESH}
    for target, index in chosen:
        if target == site and int(model.site_type[index]) not in known:
            return "site of unknown shape"
    return None


def _distance_problem(model: Any, contacts: Contacts, sensor: int) -> str | None:
    """Return the kinds of the first two shapes whose distance cannot be computed."""
    one, two = (_geoms_of(model, *end) for end in _ends(model, sensor))
    kinds = {each.value: each for each in GeomKind}
    for a in one:
        for b in two:
            pair = sorted((int(model.geom_type[a]), int(model.geom_type[b])))
            if pair == [0, 0]:
                continue  # Two planes have no distance.
            both = tuple(kinds.get(each) for each in pair)
            solid = [model.geom_dataid[g] for g in (a, b) if _is_mesh(model, g)]
            if not contacts.hulls.issuperset(solid):
                return "distance of a mesh without a convex hull"
            if both not in measured_kinds():
                shapes = engine().mjtGeom
                words = [shapes(each).name[7:].lower() for each in pair]
                return f"distance of {words[0]} and {words[1]}"
    return None


def _is_mesh(model: Any, geom: int) -> bool:
    return int(model.geom_type[geom]) == GeomKind.MESH.value


def _geoms_of(model: Any, kind: int, index: int) -> list[int]:
    if kind == int(engine().mjtObj.mjOBJ_GEOM):
        return [index]
    start = int(model.body_geomadr[index])
    return list(range(start, start + int(model.body_geomnum[index])))
