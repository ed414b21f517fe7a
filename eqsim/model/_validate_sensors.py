"""Checks of sensors."""

from typing import Any

import numpy as np

from ._checks import reject
from ._kinds import JointKind
from ._sensor_kinds import SensorKind, SensorObject
from ._sensors import Sensors
from ._system import System


_FRAMES = (
    SensorObject.LINK,
    SensorObject.INERTIA,
    SensorObject.GEOM,
    SensorObject.SITE,
)
_PARTS = (*_FRAMES, SensorObject.NONE)
_ALONE = (SensorKind.POTENTIAL_ENERGY, SensorKind.KINETIC_ENERGY, SensorKind.CLOCK)
_DISTANCES = (SensorKind.DISTANCE, SensorKind.NORMAL, SensorKind.FROM_TO)
_BALLS = (SensorKind.BALL_QUATERNION, SensorKind.BALL_VELOCITY)
_SINGLE = (
    SensorKind.JOINT_POSITION,
    SensorKind.JOINT_VELOCITY,
    SensorKind.JOINT_ACTUATOR_FORCE,
)


def check_sensors(sys: System) -> None:
    """Raise `ValueError` if a sensor refers to a missing or unsuitable object, or has
    an invalid cutoff."""
    sensors = sys.sensors
    _check_lengths(sensors)
    _check_names(sensors)
    for index, kind in enumerate(sensors.kinds):
        for name, ends, allowed in (
            ("attached to", sensors.objects, _objects(kind)),
            ("measured against", sensors.references, _references(kind)),
        ):
            _check_end(sys, index, name, ends[index], allowed)
        _check_joint(sys, index)
    _check_rays(sys)
    if SensorKind.MAGNETOMETER in sensors.kinds and sensors.magnetic is None:
        raise ValueError(
            "There are magnetometers, but Sensors.magnetic is None. Give it the magnetic "
            "flux in the world."
        )
    limited = np.asarray(sensors.limited, bool)
    text = "Sensor {name!r} has cutoff {value}, which must be positive."
    reject(sensors.cutoff, lambda x: (x <= 0) & limited, sensors.names, text)


def _check_lengths(sensors: Sensors) -> None:
    fields = ("kinds", "objects", "references", "limited", "contact_data")
    fields += ("contact_reductions", "contact_slots", "ray_data")
    for field in fields:
        count = len(vars(sensors)[field])
        if count != len(sensors.names):
            raise ValueError(
                f"Sensors.{field} has {count} entries for {len(sensors.names)} sensors. "
                "Give one per sensor."
            )


def _check_names(sensors: Sensors) -> None:
    for index, name in enumerate(sensors.names):
        if name in sensors.names[:index]:
            raise ValueError(f"Two sensors have the name {name!r}. Rename one of them.")


def _objects(kind: SensorKind) -> tuple[SensorObject, ...]:
    if kind in _ALONE:
        return (SensorObject.NONE,)
    if kind is SensorKind.CONTACT:
        return _PARTS
    if kind in _DISTANCES:
        return SensorObject.GEOM, SensorObject.INERTIA
    if kind.value.startswith("frame") or kind is SensorKind.INSIDE_SITE:
        return _FRAMES
    if kind.value.startswith("subtree"):
        return (SensorObject.INERTIA,)
    for words, sort in (
        (("joint", "ball"), SensorObject.JOINT),
        (("tendon",), SensorObject.TENDON),
        (("actuator",), SensorObject.ACTUATOR),
    ):
        if kind.value.startswith(words):
            return (sort,)
    return (SensorObject.SITE,)


def _references(kind: SensorKind) -> tuple[SensorObject, ...]:
    if kind is SensorKind.INSIDE_SITE:
        return (SensorObject.SITE,)
    if kind in _DISTANCES:
        return SensorObject.GEOM, SensorObject.INERTIA
    if kind is SensorKind.CONTACT:
        return tuple(sort for sort in _PARTS if sort is not SensorObject.SITE)
    if kind.value.startswith("frame") and not kind.value.endswith("acc"):
        return _PARTS
    return (SensorObject.NONE,)


def _check_end(
    sys: System,
    index: int,
    name: str,
    end: tuple[SensorObject, Any],
    allowed: tuple[SensorObject, ...],
) -> None:
    sort, target = end
    who = f"Sensor {sys.sensors.names[index]!r} ({sys.sensors.kinds[index].value})"
    if sort not in allowed:
        words = ", ".join(each.value for each in allowed)
        raise ValueError(f"{who} is {name} {sort.value!r}. Accepted: {words}.")
    counts = {
        SensorObject.LINK: (-1, sys.nlink),
        SensorObject.INERTIA: (-1, sys.nlink),
        SensorObject.GEOM: (0, sys.ngeom),
        SensorObject.SITE: (0, sys.nsite),
        SensorObject.JOINT: (0, sys.njoint),
        SensorObject.TENDON: (0, sys.ntendon),
        SensorObject.ACTUATOR: (0, sys.nactuator),
    }
    low, count = counts.get(sort, (-1, 0))
    if not low <= target < count:
        raise ValueError(
            f"{who} is {name} {sort.value} {target}, which does not exist: this robot "
            f"has {count}, numbered from 0."
        )


def _check_joint(sys: System, index: int) -> None:
    kind, (_, joint) = sys.sensors.kinds[index], sys.sensors.objects[index]
    if kind not in (*_BALLS, *_SINGLE):
        return
    ball = sys.joints.kinds[joint] is JointKind.SPHERICAL
    fits = ball if kind in _BALLS else sys.joints.kinds[joint].nv == 1
    if not fits:
        need = "ball joint" if kind in _BALLS else "hinge or slide"
        raise ValueError(
            f"Sensor {sys.sensors.names[index]!r} ({kind.value}) is attached to joint "
            f"{sys.joints.names[joint]!r}, which is no {need}."
        )


def _check_rays(sys: System) -> None:
    wrong = [geom for geom in sys.sensors.ray_geoms if not 0 <= geom < sys.ngeom]
    if wrong:
        raise ValueError(
            f"Sensors.ray_geoms has shape {wrong[0]}, which does not exist: this robot "
            f"has {sys.ngeom}, numbered from 0."
        )
