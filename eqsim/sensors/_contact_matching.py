"""Contacts that a contact sensor can report, and their order: static structure."""

import functools as ft
from typing import NamedTuple

from ..collision import contact_plan, ContactPlan
from ..model import SensorObject, System
from ..model._sensors import Attachment
from ._subtrees import subtrees


class Match(NamedTuple):
    """Contact points that match a sensor, in MuJoCo's order of contacts.

    - `points`: their positions in the contact plan.
    - `flips`: -1 if the first object of the sensor is on the second shape, else 1.
    """

    points: tuple[int, ...]
    flips: tuple[float, ...]


def matches(sys: System, sensor: int) -> Match:
    """Return the contact points that a sensor may report."""
    sensors = sys.sensors
    objects = sensors.objects[sensor], sensors.references[sensor]
    plan = contact_plan(sys)
    return _matches(plan, sys.geoms.links, sys.links.parents, *objects)


@ft.lru_cache(maxsize=1024)
def _matches(
    plan: ContactPlan,
    geom_links: tuple[int, ...],
    parents: tuple[int, ...],
    one: Attachment,
    two: Attachment,
) -> Match:
    points, flips = [], []
    for point in _order(plan, geom_links):
        geoms = plan.pairs[plan.point_pairs[point]][:2]
        first, second = (
            [_is_part(geom, geom_links, parents, each) for geom in geoms]
            for each in (one, two)
        )
        flip = _direction(first, second, one[0], two[0])
        if any(first) and any(second) and flip:
            points.append(point)
            flips.append(flip)
    return Match(tuple(points), tuple(flips))


def _is_part(
    geom: int, geom_links: tuple[int, ...], parents: tuple[int, ...], whole: Attachment
) -> bool:
    kind, index = whole
    if kind is SensorObject.GEOM:
        return geom == index
    if kind is SensorObject.INERTIA:
        return geom_links[geom] == index
    if kind is SensorObject.LINK:
        return index < 0 or geom_links[geom] in subtrees(parents)[index]
    # No object, or a site, whose test depends on the state.
    return True


def _direction(
    first: list[bool], second: list[bool], one: SensorObject, two: SensorObject
) -> float:
    """Return 1 or -1, see `Match`; 0 if both objects are the same shape."""
    if one is not SensorObject.NONE and two is not SensorObject.NONE:
        if first[0] and second[1]:
            return 1.0
        return -1.0 if first[1] and second[0] else 0.0
    if one is not SensorObject.NONE:
        return 1.0 if first[0] else -1.0
    if two is not SensorObject.NONE:
        return 1.0 if second[1] else -1.0
    return 1.0


@ft.lru_cache(maxsize=256)
def _order(plan: ContactPlan, geom_links: tuple[int, ...]) -> tuple[int, ...]:
    """Return the contact points in MuJoCo's order: by bodies, explicit pairs first,
    then by shapes."""
    crowded = {link for link in geom_links if geom_links.count(link) > 1}

    def key(point: int):
        one, two, explicit = plan.pairs[plan.point_pairs[point]]
        bodies = sorted((geom_links[one], geom_links[two]))
        # If a body has several shapes, MuJoCo sorts the two shapes by kind.
        midphase = bool(crowded.intersection(bodies))
        geoms = (one, two) if midphase else tuple(sorted((one, two)))
        return bodies, explicit < 0, explicit, geoms, point

    return tuple(sorted(range(plan.size), key=key))
