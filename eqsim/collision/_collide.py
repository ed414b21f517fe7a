"""Calls of colliders on pairs that are near. Long colliders are compiled once for all robots,
see `eqsim/_separate.py`."""

import dataclasses
import functools as ft
import hashlib
import pathlib

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from .._separate import separate
from ..model import Collider, collider_of, GeomKind
from ..spatial import Mat3, Vec3
from ._colliders import BUILT_IN
from ._cores import FEW
from ._list_plan import PairGroup
from ._near import apart, together
from ._points import complete, ContactPoints, Hulls, Shape


def collide(group: PairGroup, one: Shape, two: Shape, margin) -> ContactPoints:
    """Return all points of pairs, `(k, nslot, *batch)`."""
    collider = collider_of(*group.kinds)
    built_in = collider is BUILT_IN.get(group.kinds)
    if built_in and collider.one_by_one and margin.shape[0] == 1:
        return _apart(group, collider, one, two, margin)
    if not collider.one_by_one or margin.shape[0] == 1:
        return _collided(collider, one, two, margin)
    (first, first_hulls), (second, second_hulls) = map(apart, (one, two))

    def each(pair):
        one, two, margin = jtu.tree_map(lambda x: x[None], pair)
        one, two = together(one, first_hulls), together(two, second_hulls)
        found = _collided(collider, one, two, margin)
        return jtu.tree_map(lambda x: x[0], found)

    return jax.vmap(each)((first, second, margin))


# A collider is long: it is traced once for all its uses, and so is its derivative.
@ft.partial(jax.jit, static_argnums=0)
def _collided(collider: Collider, one: Shape, two: Shape, margin) -> ContactPoints:
    arguments = (one, two, margin) if collider.one_by_one else (one, two)
    slots = [complete(point) for point in collider.find(*arguments)]
    return jtu.tree_map(lambda *xs: jnp.stack(xs, axis=1), *slots)


@ft.lru_cache(maxsize=1)
def _version() -> str:
    """Return a digest of everything that the code of colliders depends on."""
    root, digest = pathlib.Path(__file__).parent.parent, hashlib.sha256()
    folders = [root / name for name in ("collision", "kinematics", "model", "spatial")]
    files = [*root.glob("*.py"), *(x for folder in folders for x in folder.glob("*.py"))]
    for file in sorted(files):
        digest.update(file.read_bytes())
    return f"jax {jax.__version__} {digest.hexdigest()}"


def _tables(hulls: Hulls | None) -> Hulls | None:
    """Return what all pairs share of the hulls of meshes, with static numbers rounded so
    that robots share code."""
    if hulls is None or hulls.polygons is None:
        return hulls
    own = hulls.polygons
    most = 1 << (max(own.most, _LEAST_CORNERS) - 1).bit_length()
    many = FEW + 1 if own.most_vertices > FEW else FEW
    own = dataclasses.replace(own, most=most, most_vertices=many)
    return Hulls(hulls.points, None, None, own)


_LEAST_CORNERS = 8
"""Corners of polygons that all colliders have room for."""


def _apart(
    group: PairGroup, collider: Collider, one: Shape, two: Shape, margin
) -> ContactPoints:
    """Call a collider that is compiled apart."""
    (first, one_hulls), (second, two_hulls) = map(apart, (one, two))
    own, tables = (first, second, margin), _tables(one_hulls or two_hulls)

    def find(own, tables):
        first, second, margin = own
        one, two = together(first, tables), together(second, tables)
        return jtu.tree_leaves(_collided(collider, one, two, margin))

    batch = jnp.broadcast_shapes(*(x.shape[1:] for x in jtu.tree_leaves(own)))
    assert collider.num_points is not None, "no height fields are listed"
    shape = 1, collider.num_points, *batch
    number = jax.ShapeDtypeStruct(shape, margin.dtype)
    points = ContactPoints(
        dist=number,
        pos=Vec3(*[number] * 3),
        frame=Mat3(*[number] * 9),
        valid=jax.ShapeDtypeStruct(shape, np.dtype(bool)),
    )
    results, treedef = jtu.tree_flatten(points)
    kinds = " ".join(kind.name for kind in group.kinds)
    name = f"{kinds} {_version()}"
    return jtu.tree_unflatten(treedef, separate(find, name, own, tables, results))
