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

from .._calls import are_rows_together
from .._separate import separate
from ..model import Collider, collider_of
from ..model._shape_kinds import AnyKind
from ..spatial import Mat3, Vec3
from ._colliders import BUILT_IN
from ._convex import convex_points
from ._cores import FEW
from ._manifold import polytope_points
from ._near import apart, together
from ._points import complete, ContactPoints, Hulls, Shape


Kinds = tuple[AnyKind, AnyKind]


def collide(kinds: Kinds, one: Shape, two: Shape, margin) -> ContactPoints:
    """Return all points of pairs of shapes of two kinds, `(k, nslot, *batch)`."""
    if is_long(collider_of(*kinds)) and shares_code(kinds, margin):
        return _apart(kinds, one, two, margin)
    return collide_in_place(kinds, one, two, margin)


def collide_in_place(kinds: Kinds, one: Shape, two: Shape, margin) -> ContactPoints:
    """Return what `collide` returns, as part of the program that calls it."""
    collider = collider_of(*kinds)
    if not collider.one_by_one or margin.shape[0] == 1:
        return _collided(collider, are_rows_together(), one, two, margin)
    (first, first_hulls), (second, second_hulls) = map(apart, (one, two))

    def each(pair):
        one, two, margin = jtu.tree_map(lambda x: x[None], pair)
        one, two = together(one, first_hulls), together(two, second_hulls)
        found = _collided(collider, are_rows_together(), one, two, margin)
        return jtu.tree_map(lambda x: x[0], found)

    return jax.vmap(each)((first, second, margin))


# A collider is long: it is traced once for all its uses on a kind of device, and so is its
# derivative.
@ft.partial(jax.jit, static_argnums=(0, 1))
def _collided(
    collider: Collider, together: bool, one: Shape, two: Shape, margin
) -> ContactPoints:
    del together
    arguments = (one, two, margin) if collider.one_by_one else (one, two)
    slots = [complete(point) for point in collider.find(*arguments)]
    return jtu.tree_map(lambda *xs: jnp.stack(xs, axis=1), *slots)


# Colliders that are compiled apart.


def is_long(collider: Collider) -> bool:
    """Return whether a collider searches for the nearest points. The code of others is not
    worth a call, which moves all points through memory."""
    find = collider.find
    return isinstance(find, ft.partial) and find.func in (
        convex_points,
        polytope_points,
    )


def shares_code(kinds: Kinds, margin) -> bool:
    """Return whether functions of a pair of shapes can be compiled apart: the version of
    the code of a collider must be known, and pairs are visited one by one, in kernels."""
    built_in = collider_of(*kinds) is BUILT_IN.get(kinds)
    return built_in and margin.shape[0] == 1 and not are_rows_together()


@ft.lru_cache(maxsize=1)
def code_version() -> str:
    """Return a digest of everything that the code of colliders and contacts depends on."""
    root, digest = pathlib.Path(__file__).parent.parent, hashlib.sha256()
    names = "collision", "constraint", "kinematics", "model", "spatial"
    files = [*root.glob("*.py"), *(x for n in names for x in (root / n).glob("*.py"))]
    for file in sorted(files):
        digest.update(file.read_bytes())
    return f"jax {jax.__version__} {digest.hexdigest()}"


_LEAST_CORNERS = 4
"""Corners of polygons that all colliders have room for."""


def shared_hulls(one: Shape, two: Shape) -> Hulls | None:
    """Return what all pairs share of the hulls of meshes, with static numbers rounded so
    that robots share code."""
    hulls = one.hulls or two.hulls
    if hulls is None or hulls.polygons is None or are_rows_together():
        return hulls
    own = hulls.polygons
    most = 1 << (max(own.most, _LEAST_CORNERS) - 1).bit_length()
    many = FEW + 1 if own.most_vertices > FEW else FEW
    own = dataclasses.replace(own, most=most, most_vertices=many, most_around=0)
    return Hulls(hulls.points, None, None, own)


def _apart(kinds: Kinds, one: Shape, two: Shape, margin) -> ContactPoints:
    def find(state, sizes, rest, tables):
        poses, (numbers, margin) = iter(state), rest
        one, two = (
            together(Shape(next(poses), size, hulls), tables)
            for size, hulls in zip(sizes, numbers, strict=True)
        )
        return jtu.tree_leaves(collide_in_place(kinds, one, two, margin))

    tables, both = shared_hulls(one, two), (apart(one)[0], apart(two)[0])
    state, sizes, numbers = ([shape[k] for shape in both] for k in range(3))
    own = state, sizes, (numbers, margin)
    shapes = [x.shape[1:] for x in jtu.tree_leaves(own)]
    count = collider_of(*kinds).num_points
    assert count is not None, "no height fields are listed"
    shape = 1, count, *jnp.broadcast_shapes(*shapes)
    number = jax.ShapeDtypeStruct(shape, margin.dtype)
    flag = jax.ShapeDtypeStruct(shape, np.dtype(bool))
    points = ContactPoints(number, Vec3(*[number] * 3), Mat3(*[number] * 9), flag)
    results, treedef = jtu.tree_flatten(points)
    name = f"{' '.join(kind.name for kind in kinds)} {code_version()}"
    return jtu.tree_unflatten(treedef, separate(find, name, own, tables, results))
