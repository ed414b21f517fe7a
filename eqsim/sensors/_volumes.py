"""Shapes of sites and geoms in the world, and selection of the smallest of many."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..collision._shapes import Shape
from ..kinematics._forward import take_poses
from ..kinematics._poses import carriers
from ..model import SensorObject, System, tree
from ..model._gather import take
from ..spatial import Vec3, vec3
from ._frames import object_poses
from ._inputs import SensorInputs


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


def repeat(v: Vec3, like) -> Vec3:
    """Broadcast a vector with one row to the shape of an array."""
    return Vec3(*(x + jnp.zeros_like(like) for x in v))


def first_smallest(values):
    """Return 1 at the first of the smallest values of each environment, else 0."""
    index = jnp.arange(values.shape[0], dtype=values.dtype)
    index = index.reshape(-1, *(1 for _ in values.shape[1:]))
    values = jax.lax.stop_gradient(values)
    smallest = values <= jnp.min(values, axis=0, keepdims=True)
    first = jnp.min(jnp.where(smallest, index, values.shape[0]), axis=0, keepdims=True)
    return jnp.where(index == first, 1.0, 0.0).astype(values.dtype)


def select(weights, tree_: Any) -> Any:
    """Return the sum of the rows of every array times weights, with leading axis 1."""
    one = lambda x: jnp.sum(jnp.where(weights > 0.0, x, 0.0), axis=0, keepdims=True)
    return jax.tree_util.tree_map(one, tree_)
