"""Sensors of distances: rangefinders, pairs of shapes, and points inside sites."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..collision.detection import nearest_points, with_hulls
from ..collision.primitives import Shape
from ..kinematics.frames import carriers
from ..kinematics.link_motion import take_poses
from ..model import RayData, SensorKind, SensorObject, System, tree
from ..model.arrays import concatenate, take
from ..model.pairs import is_measured
from ..model.sensor_kinds import Attachment
from ..spatial import Vec3
from ..spatial.vectors import vec3
from ._frame_sensors import object_poses
from ._ray_casts import first_hit, first_smallest, select
from ._rays import inside, Ray
from .sensor_inputs import SensorInputs


def site_shape(sys: System, now: SensorInputs, site: int) -> Shape:
    """Return the shape of a site, `(1, *batch)`."""
    pose = object_poses(sys, now, [(SensorObject.SITE, site)])
    return Shape(pose, vec3(take(sys.sites.size, [site])))


def geom_shapes(sys: System, now: SensorInputs, geoms: Sequence[int]) -> Shape:
    """Return shapes of geoms."""
    links = [sys.geoms.links[k] for k in geoms]
    local, size = take((now.data.geoms.pose, now.data.geoms.size), geoms)
    return Shape(
        take_poses(now.data.kin.pose, carriers(tree(sys), links)) @ local, size
    )


def _seen_shapes(sys: System, now: SensorInputs, geoms: Sequence[int]) -> Shape:
    """Return shapes as rays see them: planes have sizes, too."""
    size = vec3(take(sys.geoms.size, geoms))
    return geom_shapes(sys, now, geoms)._replace(size=size)


_FAR = 1e30


def rangefinders(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the values of rangefinders, one array `(size, *batch)` per sensor."""
    return [_rangefinder(sys, now, k) for k in chosen]


def _rangefinder(sys: System, now: SensorInputs, sensor: int):
    site = sys.sensors.objects[sensor]
    pose = object_poses(sys, now, [site])
    ray = Ray(pose.pos, pose.rot.columns[2])
    own = sys.sites.links[site[1]]
    geoms = [g for g in sys.sensors.ray_geoms if sys.geoms.links[g] != own]
    hit = first_hit(sys, ft.partial(_seen_shapes, sys, now), ray, geoms)
    some = hit.dist >= 0.0
    only = lambda v: Vec3(*(jnp.where(some, x, 0.0) for x in v))
    values = {
        RayData.DISTANCE: (hit.dist,),
        RayData.DIRECTION: only(ray.direction),
        RayData.ORIGIN: ray.point,
        RayData.POINT: only(ray.at(hit.dist)),
        RayData.NORMAL: hit.normal,
        RayData.DEPTH: (hit.dist,),
    }
    parts = [x for data in sys.sensors.ray_data[sensor] for x in values[data]]
    return jnp.concatenate([x + jnp.zeros_like(hit.dist) for x in parts])


RAY_SENSORS: dict[SensorKind, Callable] = {SensorKind.RANGEFINDER: rangefinders}


class _Segment(NamedTuple):
    """Shortest segment between two shapes.

    - `dist`: signed distance.
    - `pos`: middle of the segment.
    - `normal`: direction from the first to the second object.
    """

    dist: Any
    pos: Vec3
    normal: Vec3


def geoms_of(sys: System, attachment: Attachment) -> list[int]:
    """Return the shapes of an object of a distance sensor: a shape, or all of a link."""
    kind, index = attachment
    if kind is SensorObject.GEOM:
        return [index]
    return [g for g, link in enumerate(sys.geoms.links) if link == index]


def _segment(sys: System, now: SensorInputs, sensor: int) -> tuple[_Segment, Any]:
    """Return the shortest segment of a sensor, and true if it is below the cutoff."""
    first, second = (
        geoms_of(sys, each[sensor])
        for each in (sys.sensors.objects, sys.sensors.references)
    )
    kinds, groups = sys.geoms.kinds, {}
    for one in first:
        for two in second:
            turned = kinds[one].value > kinds[two].value
            pair = (two, one) if turned else (one, two)
            key = (kinds[pair[0]], kinds[pair[1]])
            if is_measured(sys, *pair):
                groups.setdefault((*key, turned), []).append(pair)
    segments = [_nothing(now)]
    for (one, two, turned), pairs in groups.items():
        lower, upper = (
            with_hulls(sys, side, geom_shapes(sys, now, side))
            for side in zip(*pairs, strict=True)
        )
        for point in nearest_points((one, two), lower, upper):
            dist = jnp.where(point.valid, point.dist, _FAR)
            normal = Vec3(*point.frame[:3])
            normal = -normal if turned else normal
            segments.append(_Segment(dist, point.pos, normal))
    found = concatenate([_broadcast(each) for each in segments])
    nearest = select(first_smallest(found.dist), found)
    cutoff = take(sys.sensors.cutoff, [sensor])
    return nearest, nearest.dist < cutoff


def _nothing(now: SensorInputs) -> _Segment:
    zero = jnp.zeros_like(now.data.q[:1])
    return _Segment(zero + _FAR, Vec3(zero, zero, zero), Vec3(zero, zero, zero))


def _broadcast(each: _Segment) -> _Segment:
    grow = lambda v: Vec3(*(x + jnp.zeros_like(each.dist) for x in v))
    return _Segment(each.dist, grow(each.pos), grow(each.normal))


def distances(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute the smallest distances, `(n, 1, *batch)`."""
    rows = []
    for k in chosen:
        segment, near = _segment(sys, now, k)
        rows.append(jnp.where(near, segment.dist, take(sys.sensors.cutoff, [k])))
    return jnp.stack(rows)


def normals(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute unit vectors along the shortest segments, `(n, 3, *batch)`."""
    rows = []
    for k in chosen:
        segment, near = _segment(sys, now, k)
        sign = jnp.where(near, jnp.sign(segment.dist), 0.0)
        rows.append(jnp.concatenate(segment.normal * sign))
    return jnp.stack(rows)


def segments(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute both ends of the shortest segments, `(n, 6, *batch)`."""
    rows = []
    for k in chosen:
        segment, near = _segment(sys, now, k)
        half = segment.normal * (0.5 * segment.dist)
        ends = [*(segment.pos - half), *(segment.pos + half)]
        rows.append(jnp.concatenate([jnp.where(near, x, 0.0) for x in ends]))
    return jnp.stack(rows)


def inside_sites(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Return 1 for objects inside sites, else 0: `(n, 1, *batch)`."""
    rows = []
    for k in chosen:
        site = sys.sensors.references[k][1]
        pose = object_poses(sys, now, [sys.sensors.objects[k]])
        shape = site_shape(sys, now, site)
        within = inside(sys.sites.kinds[site], shape, pose.pos)
        rows.append(jnp.where(within, jnp.ones_like(pose.pos.x), 0.0))
    return jnp.stack(rows)


DISTANCE_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.DISTANCE: distances,
    SensorKind.NORMAL: normals,
    SensorKind.FROM_TO: segments,
    SensorKind.INSIDE_SITE: inside_sites,
}
