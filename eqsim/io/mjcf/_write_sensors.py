"""Writing of sensors as MJCF elements."""

import xml.etree.ElementTree as ET
from typing import Any

from ...model import SensorKind, SensorObject, System
from ._xml import add_element


_FRAMES = tuple(kind for kind in SensorKind if kind.value.startswith("frame"))
_DISTANCES = (SensorKind.DISTANCE, SensorKind.NORMAL, SensorKind.FROM_TO)


def write_sensors(root: ET.Element, sys: System) -> None:
    """Write all sensors."""
    if not sys.nsensor:
        return
    part, sensors = ET.SubElement(root, "sensor"), sys.sensors
    for index, kind in enumerate(sensors.kinds):
        attributes: dict[str, Any] = {"name": sensors.names[index]}
        if sensors.limited[index]:
            attributes["cutoff"] = sensors.cutoff[index]
        attributes |= _attachment(sys, kind, index)
        if kind is SensorKind.CONTACT:
            attributes["data"] = " ".join(x.value for x in sensors.contact_data[index])
            attributes["reduce"] = sensors.contact_reductions[index].value
            attributes["num"] = sensors.contact_slots[index]
        if kind is SensorKind.RANGEFINDER:
            attributes["data"] = " ".join(x.value for x in sensors.ray_data[index])
        add_element(part, kind.value, attributes)


def magnetic_field(sys: System) -> dict[str, Any]:
    """Return the option for magnetometers, if there are any."""
    magnetic = sys.sensors.magnetic
    return {} if magnetic is None else {"magnetic": magnetic}


def is_invisible(sys: System, geom: int) -> bool:
    """Test if rays pass through a shape."""
    rays = SensorKind.RANGEFINDER in sys.sensors.kinds
    return rays and geom not in sys.sensors.ray_geoms


def _name(sys: System, kind: SensorObject, index: int) -> str:
    names = {
        SensorObject.GEOM: sys.geoms.names,
        SensorObject.SITE: sys.sites.names,
        SensorObject.JOINT: sys.joints.names,
        SensorObject.TENDON: sys.tendons.names,
        SensorObject.ACTUATOR: sys.actuators.names,
    }
    return names.get(kind, (*sys.links.names, "world"))[index]


def _attachment(sys: System, kind: SensorKind, index: int) -> dict[str, str]:
    ends = sys.sensors.objects[index], sys.sensors.references[index]
    (one, first), (two, second) = ends
    if kind in _FRAMES:
        out = {"objtype": one.value, "objname": _name(sys, one, first)}
        if two is not SensorObject.NONE:
            out |= {"reftype": two.value, "refname": _name(sys, two, second)}
        return out
    if kind is SensorKind.INSIDE_SITE:
        out = {"objtype": one.value, "objname": _name(sys, one, first)}
        return out | {"site": _name(sys, two, second)}
    if kind is SensorKind.CONTACT or kind in _DISTANCES:
        return _numbered(sys, *ends)
    if one is SensorObject.NONE:
        return {}
    return {one.value: _name(sys, one, first)}


def _numbered(sys: System, *ends: tuple[SensorObject, int]) -> dict[str, str]:
    """Return the attributes of the two objects of a sensor, numbered if they are of the
    same kind."""
    out = {}
    for number, (kind, index) in enumerate(ends, start=1):
        words = {
            SensorObject.SITE: "site",
            SensorObject.GEOM: f"geom{number}",
            SensorObject.INERTIA: f"body{number}",
            SensorObject.LINK: f"subtree{number}",
        }
        if kind is not SensorObject.NONE:
            out[words[kind]] = _name(sys, kind, index)
    return out
