"""Touch sensors, and sensors that report contacts.

Source: MuJoCo documentation, XML reference, `touch` and `contact`; `engine_sensor.c`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..collision import contact_plan, ContactPoints
from ..kinematics._sites import carriers
from ..model import (
    ContactData,
    ContactReduction,
    SensorKind,
    SensorObject,
    System,
    tree,
)
from ..model._gather import per_row, take, take_or_zero
from ..spatial import safe_sqrt, Vec3
from ._contact_matching import Match, matches
from ._ray import inside, Ray, ray_shape
from ._snapshot import ContactReport, Snapshot
from ._volumes import repeat, select, site_shape


def touches(sys: System, now: Snapshot, chosen: Sequence[int]):
    """Compute the sums of normal forces within the volumes of sites, `(n, 1,
    *batch)`."""
    return jnp.stack([_touch(sys, now, k) for k in chosen])


def _touch(sys: System, now: Snapshot, sensor: int):
    site = sys.sensors.objects[sensor][1]
    link = sys.sites.links[site]
    plan, report = contact_plan(sys), now.solution.contacts
    ends = [plan.pairs[pair][:2] for pair in plan.point_pairs]
    links = [tuple(sys.geoms.links[geom] for geom in end) for end in ends]
    own = [k for k, pair in enumerate(links) if link in pair]
    if not own or report is None:
        return jnp.zeros_like(now.q[:1])
    report = take(report, own)
    normal = Vec3(*report.points.frame[:3])
    push = normal | report.force
    sign = per_row([-1.0 if links[k][1] == link else 1.0 for k in own], push)
    shape = site_shape(sys, now, site)
    like = jnp.zeros_like(push)
    shape = jax.tree_util.tree_map(lambda x: x + like, shape)
    # The ray points from the contact into the other body.
    ray = Ray(repeat(report.points.pos, like), normal * sign)
    reached = ray_shape(sys.sites.kinds[site], shape, ray).dist >= 0.0
    counts = report.exists & reached & (push > 0.0)
    return jnp.sum(jnp.where(counts, push, 0.0), axis=0, keepdims=True)


class _Matched(NamedTuple):
    """Contacts that a sensor may report, in MuJoCo's order, `(n, *batch)`.

    - `matched`: true for contacts that exist and match.
    - `flip`: -1 if the objects of the sensor are exchanged, else 1.
    - `points`: distances, positions, frames.
    - `force`, `torque`: force and torque on the second shape, in the axes of the
        contact.
    - `velocity`, `spin`: velocity of the second shape relative to the first, in the axes
        of the contact.
    """

    matched: Any
    flip: Any
    points: ContactPoints
    force: Vec3
    torque: Vec3
    velocity: Vec3
    spin: Vec3


def contacts(sys: System, now: Snapshot, chosen: Sequence[int]):
    """Compute the values of contact sensors, one array `(size, *batch)` per sensor."""
    return [_contact(sys, now, k) for k in chosen]


def _contact(sys: System, now: Snapshot, sensor: int):
    sensors, report = sys.sensors, now.solution.contacts
    match = matches(sys, sensor)
    data, slots = sensors.contact_data[sensor], sensors.contact_slots[sensor]
    size = sum(each.size for each in data)
    if report is None or not match.points:
        return jnp.zeros_like(now.q[:1]) + jnp.zeros(
            (slots * size, *now.q.shape[1:]), now.q.dtype
        )
    found = _matched(sys, now, report, sensor, match)
    if sensors.contact_reductions[sensor] is ContactReduction.SUM:
        first = _sum(found, data)
        return jnp.concatenate([first, *(slots - 1) * [jnp.zeros_like(first)]])
    count = _count(found, found.matched)
    values = _values(found, count, data)
    rank = _ranks(found, sensors.contact_reductions[sensor])
    out = []
    for slot in range(slots):
        weights = jnp.where(found.matched & (rank == slot), 1.0, 0.0)
        out += select(weights, values)
    return jnp.concatenate(out)


def _matched(
    sys: System, now: Snapshot, report: ContactReport, sensor: int, match: Match
) -> _Matched:
    report = take(report, match.points)
    matched, points = report.exists, report.points
    kind, index = sys.sensors.objects[sensor]
    if kind is SensorObject.SITE:
        shape = site_shape(sys, now, index)
        matched = matched & inside(sys.sites.kinds[index], shape, points.pos)
    plan = contact_plan(sys)
    ends = [plan.pairs[plan.point_pairs[k]][:2] for k in match.points]
    rates = []
    for side in (0, 1):
        links = [sys.geoms.links[end[side]] for end in ends]
        own = now.speed.velocity, now.kin.origin
        motion, origin = take_or_zero(own, carriers(tree(sys), links))
        rates.append((motion.at(points.pos - origin), motion.ang))
    frame = points.frame
    return _Matched(
        matched=matched,
        flip=per_row(match.flips, points.dist),
        points=points,
        force=frame @ report.force,
        torque=frame @ report.torque,
        velocity=frame @ (rates[1][0] - rates[0][0]),
        spin=frame @ (rates[1][1] - rates[0][1]),
    )


def _count(found: _Matched, chosen):
    # The sum of Python numbers would have the default precision, not that of the robot.
    one = jnp.ones_like(found.points.dist)
    return jnp.sum(jnp.where(chosen, one, 0.0), axis=0, keepdims=True)


def _values(found: _Matched, count, data: Sequence[ContactData]) -> list:
    """Return the values of every contact: arrays `(n, *batch)`.

    Exchanging the objects rotates the frame about its third axis.
    """
    flip, frame = found.flip, found.points.frame
    turned = lambda v: (v.x, v.y, v.z * flip)
    values = {
        ContactData.FOUND: (count,),
        ContactData.FORCE: turned(found.force),
        ContactData.TORQUE: turned(found.torque),
        ContactData.DISTANCE: (found.points.dist,),
        ContactData.POSITION: found.points.pos,
        ContactData.NORMAL: Vec3(*frame[0:3]) * flip,
        ContactData.TANGENT: Vec3(*frame[3:6]) * flip,
        ContactData.VELOCITY: turned(found.velocity),
        ContactData.ANGULAR_VELOCITY: turned(found.spin),
    }
    like = jnp.zeros_like(found.points.dist)
    return [x + like for each in data for x in values[each]]


def _ranks(found: _Matched, reduction: ContactReduction):
    """Return the rank of each contact among those that match, in the order in which
    they are reported."""
    criterion = {
        ContactReduction.FIRST: jnp.zeros_like(found.points.dist),
        ContactReduction.CLOSEST: found.points.dist,
        ContactReduction.STRONGEST: -(found.force | found.force),
    }[reduction]
    criterion = jax.lax.stop_gradient(criterion)
    n = criterion.shape[0]
    index = jnp.arange(n).reshape(-1, *(1 for _ in criterion.shape[1:]))
    rows = []
    for k in range(n):
        own = criterion[k : k + 1]
        before = (criterion < own) | ((criterion == own) & (index < k))
        rows.append(_count(found, found.matched & before))
    return jnp.concatenate(rows)


def _sum(found: _Matched, data: Sequence[ContactData]):
    """Return the sum of all forces, and the torque about their center."""
    some = lambda v: Vec3(*(jnp.where(found.matched, x, 0.0) * found.flip for x in v))
    force, torque = some(found.force), some(found.torque)
    weight = safe_sqrt(force | force)
    total = jnp.maximum(jnp.sum(weight, axis=0, keepdims=True), 1e-15)
    place = lambda v: Vec3(*(jnp.sum(x, axis=0, keepdims=True) for x in v))
    center = place(found.points.pos * weight) * (1.0 / total)
    to_world = found.points.frame.T
    force, torque = to_world @ force, to_world @ torque
    arm = found.points.pos - center
    moment = place(torque + (arm ^ force))
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
