"""Rangefinders: the nearest shape along the z axis of a site.

Source: MuJoCo documentation, XML reference, `rangefinder`; `mj_ray`.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from ..model import GeomKind, RayData, SensorKind, System
from ..model._gather import concatenate
from ..model._shape_kinds import require_known
from ..spatial import Vec3
from ._frames import object_poses
from ._inputs import SensorInputs
from ._ray import Hit, Ray, ray_shape
from ._ray_fields import ray_height_field
from ._ray_meshes import ray_mesh
from ._volumes import first_smallest, geom_shapes, repeat, select


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
    hit = _first_hit(sys, now, ray, geoms)
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


def _first_hit(sys: System, now: SensorInputs, ray: Ray, geoms: Sequence[int]) -> Hit:
    """Intersect one ray with shapes; -1 and zeros if it hits none."""
    zero = jnp.zeros_like(ray.point.x)
    miss = Hit(zero - 1.0, Vec3(zero, zero, zero))
    hits = [miss]
    for geom in geoms:
        hits += _hits_with_data(sys, now, ray, geom)
    for kind in _SIMPLE:
        own = [g for g in geoms if sys.geoms.kinds[g] is kind]
        if own:
            shapes = geom_shapes(sys, now, own)
            like = shapes.pose.pos.x
            rays = Ray(repeat(ray.point, like), repeat(ray.direction, like))
            hits.append(ray_shape(kind, shapes, rays))
    found = concatenate(hits)
    order = jnp.where(found.dist >= 0.0, found.dist, _FAR)
    return select(first_smallest(order), found)


_SIMPLE = tuple(k for k in GeomKind if k not in (GeomKind.MESH, GeomKind.HFIELD))


def _hits_with_data(sys: System, now: SensorInputs, ray: Ray, geom: int) -> list[Hit]:
    """Intersect one ray with a mesh or a height field, if the shape is one."""
    kind = sys.geoms.kinds[geom]
    require_known(kind, "are not seen by rays")
    if kind in _SIMPLE:
        return []
    shape, data = geom_shapes(sys, now, [geom]), sys.geoms.data[geom]
    if kind is GeomKind.MESH:
        return [ray_mesh(sys.meshes, data, shape, ray)]
    return [ray_height_field(sys.height_fields, data, shape, ray)]


RAY_SENSORS: dict[SensorKind, Callable] = {SensorKind.RANGEFINDER: rangefinders}
