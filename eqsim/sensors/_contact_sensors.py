"""Touch sensors, and sensors that report contacts."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._lists import read_rows_of, table_rows
from ..collision import contact_plan
from ..collision.plan import ContactPlan
from ..constraint.contact import ContactReport
from ..kinematics.frames import carriers
from ..model import (
    ContactData,
    ContactReduction,
    SensorKind,
    SensorObject,
    System,
    tree,
)
from ..model.arrays import concatenate
from ..model.sensor_kinds import Attachment
from ..spatial import Mat3, safe_sqrt, Vec3
from ._distances import site_shape
from ._ray_casts import repeat, select
from ._rays import inside, Ray, ray_shape
from ._subtrees import subtrees
from .sensor_inputs import SensorInputs


# Pairs whose contacts a contact sensor can report, and their order: static structure.


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


# Touch sensors, and sensors that report contacts.
#
# Source: MuJoCo documentation, XML reference, `touch` and `contact`; `engine_sensor.c`.


def touches(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the sums of normal forces within the volumes of sites, `(n, 1,
    *batch)`."""
    return jnp.stack([_touch(sys, now, k) for k in chosen])


def _touch(sys: System, now: SensorInputs, sensor: int):
    site = sys.sensors.objects[sensor][1]
    link, report = sys.sites.links[site], now.forces.contacts
    ends = [pair[:2] for pair in contact_plan(sys).pairs]
    links = [tuple(sys.geoms.links[geom] for geom in end) for end in ends]
    if report is None or not any(link in pair for pair in links):
        return jnp.zeros_like(now.data.q[:1])
    # 1 if the link is the first of the pair, -1 if it is the second.
    sides = [(pair[0] == link) - (pair[1] == link) for pair in links]
    pair, own = jnp.maximum(report.pair, 0), report.values
    sign = table_rows(sides, pair).astype(own.dist.dtype)
    push = own.normal.dot(own.force)
    like = jnp.zeros_like(push)
    shape = site_shape(sys, now, site)
    shape = jax.tree_util.tree_map(lambda x: x + like, shape)
    # The ray points from the contact into the other body.
    ray = Ray(repeat(own.pos, like), own.normal * sign)
    reached = ray_shape(sys.sites.kinds[site], shape, ray).dist >= 0.0
    counts = report.exists & (sign != 0.0) & reached & (push > 0.0)
    return jnp.sum(jnp.where(counts, push, 0.0), axis=0, keepdims=True)


class _Matched(NamedTuple):
    """Contacts that a sensor may report, `(n, *batch)`.

    - `matched`: true for contacts that exist and match.
    - `order`: place in MuJoCo's order.
    - `flip`: -1 if the objects of the sensor are exchanged, else 1.
    - `dist`, `pos`, `frame`: distances, positions, frames.
    - `force`, `torque`: force and torque on the second shape, in the axes of the
        contact.
    - `velocity`, `spin`: velocity of the second shape relative to the first, in the axes
        of the contact.
    """

    matched: Any
    order: Any
    flip: Any
    dist: Any
    pos: Vec3
    frame: Mat3
    force: Vec3
    torque: Vec3
    velocity: Vec3
    spin: Vec3


def contacts(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the values of contact sensors, one array `(size, *batch)` per sensor."""
    return [_contact(sys, now, k) for k in chosen]


def _contact(sys: System, now: SensorInputs, sensor: int):
    sensors, report = sys.sensors, now.forces.contacts
    match = matches(sys, sensor)
    data, slots = sensors.contact_data[sensor], sensors.contact_slots[sensor]
    size = sum(each.size for each in data)
    if report is None or not any(match.flips):
        return jnp.zeros_like(now.data.q[:1]) + jnp.zeros(
            (slots * size, *now.data.q.shape[1:]), now.data.q.dtype
        )
    found = _matched(sys, now, report, sensor, match)
    if sensors.contact_reductions[sensor] is ContactReduction.SUM:
        first = _sum(found, data)
        return jnp.concatenate([first, *(slots - 1) * [jnp.zeros_like(first)]])
    values = _values(found, _count(found, found.matched), data)
    criterion = _criterion(found, sensors.contact_reductions[sensor])
    left, out = found.matched, []
    for _ in range(slots):
        chosen = _first(found, criterion, left)
        left = left & ~chosen
        out += select(jnp.where(chosen, 1.0, 0.0), values)
    return jnp.concatenate(out)


def _matched(
    sys: System, now: SensorInputs, report: ContactReport, sensor: int, match: Match
) -> _Matched:
    own, pair = report.values, jnp.maximum(report.pair, 0)
    flip = table_rows(match.flips, pair)
    matched = report.exists & (flip != 0)
    kind, index = sys.sensors.objects[sensor]
    if kind is SensorObject.SITE:
        shape = site_shape(sys, now, index)
        matched = matched & inside(sys.sites.kinds[index], shape, own.pos)
    frame = Mat3(*own.normal, *own.tangent, *own.normal.cross(own.tangent))
    first, second = (_end_motion(sys, now, own.pos, pair, side) for side in (0, 1))
    slots = max(contact_plan(sys).num_points)
    return _Matched(
        matched=matched,
        order=table_rows(match.places, pair) * slots + report.slot,
        flip=flip.astype(own.dist.dtype),
        dist=own.dist,
        pos=own.pos,
        frame=frame,
        force=frame @ own.force,
        torque=frame @ own.torque,
        velocity=frame @ (second[0] - first[0]),
        spin=frame @ (second[1] - first[1]),
    )


def _end_motion(sys: System, now: SensorInputs, pos: Vec3, pair, side: int):
    """Return velocity at a position and angular velocity of one link of each pair."""
    geoms = [pair[side] for pair in contact_plan(sys).pairs]
    nodes = carriers(tree(sys), [sys.geoms.links[geom] for geom in geoms])
    own = now.data.velocities.velocity, now.data.kin.origin
    world = jax.tree_util.tree_map(lambda x: jnp.zeros_like(x[:1]), own)
    rows = concatenate([own, world])
    last = tree(sys).size
    node = table_rows([node if node >= 0 else last for node in nodes], pair)
    motion, origin = read_rows_of(rows, node)
    return motion.at(pos - origin), motion.ang


def _count(found: _Matched, chosen):
    # The sum of Python numbers would have the default precision, not that of the robot.
    one = jnp.ones_like(found.dist)
    return jnp.sum(jnp.where(chosen, one, 0.0), axis=0, keepdims=True)


def _values(found: _Matched, count, data: Sequence[ContactData]) -> list:
    """Return the values of every contact: arrays `(n, *batch)`.

    Exchanging the objects rotates the frame about its third axis.
    """
    flip, frame = found.flip, found.frame
    turned = lambda v: (v.x, v.y, v.z * flip)
    values = {
        ContactData.FOUND: (count,),
        ContactData.FORCE: turned(found.force),
        ContactData.TORQUE: turned(found.torque),
        ContactData.DISTANCE: (found.dist,),
        ContactData.POSITION: found.pos,
        ContactData.NORMAL: Vec3(*frame[0:3]) * flip,
        ContactData.TANGENT: Vec3(*frame[3:6]) * flip,
        ContactData.VELOCITY: turned(found.velocity),
        ContactData.ANGULAR_VELOCITY: turned(found.spin),
    }
    like = jnp.zeros_like(found.dist)
    return [x + like for each in data for x in values[each]]


def _criterion(found: _Matched, reduction: ContactReduction):
    """Return the values by whose order contacts are reported, first the smallest."""
    values = {
        ContactReduction.FIRST: jnp.zeros_like(found.dist),
        ContactReduction.CLOSEST: found.dist,
        ContactReduction.STRONGEST: -found.force.dot(found.force),
    }[reduction]
    return jax.lax.stop_gradient(values)


def _first(found: _Matched, criterion, left):
    """Return which of the contacts that are left is the first one."""
    least = lambda x: jnp.min(x, axis=0, keepdims=True)
    best = left & (criterion <= least(jnp.where(left, criterion, jnp.inf)))
    last = jnp.iinfo(jnp.int32).max
    return best & (found.order == least(jnp.where(best, found.order, last)))


def _sum(found: _Matched, data: Sequence[ContactData]):
    """Return the sum of all forces, and the torque about their center."""
    some = lambda v: Vec3(*(jnp.where(found.matched, x, 0.0) * found.flip for x in v))
    force, torque = some(found.force), some(found.torque)
    weight = safe_sqrt(force.dot(force))
    total = jnp.maximum(jnp.sum(weight, axis=0, keepdims=True), 1e-15)
    place = lambda v: Vec3(*(jnp.sum(x, axis=0, keepdims=True) for x in v))
    center = place(found.pos * weight) * (1.0 / total)
    to_world = found.frame.T
    force, torque = to_world @ force, to_world @ torque
    arm = found.pos - center
    moment = place(torque + arm.cross(force))
    zero = jnp.zeros_like(total)
    one = zero + 1.0
    values = {
        ContactData.FOUND: (_count(found, found.matched),),
        ContactData.FORCE: place(force),
        ContactData.TORQUE: moment,
        ContactData.DISTANCE: (zero,),
        ContactData.POSITION: center,
        ContactData.NORMAL: (one, zero, zero),
        ContactData.TANGENT: (zero, one, zero),
    }
    some = _count(found, found.matched) > 0.0
    rows = [x + zero for each in data for x in values[each]]
    return jnp.concatenate([jnp.where(some, x, 0.0) for x in rows])


CONTACT_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.TOUCH: touches,
    SensorKind.CONTACT: contacts,
}
