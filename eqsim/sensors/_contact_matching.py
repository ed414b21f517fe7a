"""Pairs whose contacts a contact sensor can report, and their order: static structure."""

import functools as ft
from typing import NamedTuple

from ..collision import contact_plan, ContactPlan
from ..model import SensorObject, System
from ..model._sensors import Attachment
from ._subtrees import subtrees


class Match(NamedTuple):
    """Pairs of shapes whose contacts match a sensor; entries of `contact_plan(sys).pairs`.

    - `flips`: sign of each pair: 1 if the first object of the sensor is on the first
        shape, -1 if it is on the second, 0 if the pair does not match.
    - `places`: place of each pair in MuJoCo's order of contacts.
    """

    flips: tuple[int, ...]
    places: tuple[int, ...]


def matches(sys: System, sensor: int) -> Match:
    """Return the pairs whose contacts a sensor may report."""
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
    flips = []
    for pair in plan.pairs:
        first, second = (
            [_is_part(geom, geom_links, parents, each) for geom in pair[:2]]
            for each in (one, two)
        )
        flip = _direction(first, second, one[0], two[0])
        flips.append(flip if any(first) and any(second) else 0)
    return Match(tuple(flips), _places(plan, geom_links))


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
) -> int:
    """Return the sign of a pair, see `Match`."""
    if one is not SensorObject.NONE and two is not SensorObject.NONE:
        if first[0] and second[1]:
            return 1
        return -1 if first[1] and second[0] else 0
    if one is not SensorObject.NONE:
        return 1 if first[0] else -1
    if two is not SensorObject.NONE:
        return 1 if second[1] else -1
    return 1


@ft.lru_cache(maxsize=256)
def _places(plan: ContactPlan, geom_links: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place of each pair in MuJoCo's order: by bodies, explicit pairs first,
    then by shapes."""
    crowded = {link for link in geom_links if geom_links.count(link) > 1}

    def key(pair: int):
        one, two, explicit = plan.pairs[pair]
        bodies = sorted((geom_links[one], geom_links[two]))
        # If a body has several shapes, MuJoCo sorts the two shapes by kind.
        midphase = bool(crowded.intersection(bodies))
        geoms = (one, two) if midphase else tuple(sorted((one, two)))
        return bodies, explicit < 0, explicit, geoms, pair

    order = sorted(range(len(plan.pairs)), key=key)
    places = {pair: place for place, pair in enumerate(order)}
    return tuple(places[pair] for pair in range(len(plan.pairs)))
