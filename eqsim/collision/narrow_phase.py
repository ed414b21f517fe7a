"""The table of colliders, and their calls on pairs that are near."""

import dataclasses
import functools as ft
import hashlib
import pathlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from .._primitive import are_rows_together
from .._separate import separate
from ..model import Collider, GeomKind, register_collider
from ..model.kinds import AnyKind
from ..model.pairs import collider_of, register_field_collider
from ..spatial import Mat3, Vec3
from ._boxes import box_box, capsule_box
from ._convex import convex_points
from ._convex_shapes import FEW
from ._field_contacts import field_collider, TOUCHING
from ._manifold import capsule_cylinder_points, plane_mesh, polytope_points
from ._terrain import terrain_collider, terrain_points
from .points import (
    apart,
    complete,
    ContactPoints,
    half_extents,
    Reach,
    Shape,
    Shared,
    together,
)
from .primitives import (
    capsule_capsule,
    capsule_cylinder,
    plane_box,
    plane_capsule,
    plane_cylinder,
    plane_ellipsoid,
    plane_sphere,
    sphere_box,
    sphere_capsule,
    sphere_cylinder,
    sphere_sphere,
)


# The colliders: how each pair of shapes touches. A new pair is one line.


_K = GeomKind


def _convex(first: GeomKind, second: GeomKind) -> Collider:
    """Return the collider of a pair without its own formula."""
    return Collider(ft.partial(convex_points, (first, second)), 1, one_by_one=True)


def _one_by_one(
    find: Callable, num_points: int, nearest: Callable | None = None
) -> Collider:
    """Return the collider of a pair with a long formula that does not depend on the
    margin."""
    without_margin = lambda one, two, margin: find(one, two)
    return Collider(without_margin, num_points, one_by_one=True, nearest=nearest)


def _polytopes(first: GeomKind, second: GeomKind, num_points: int) -> Collider:
    """Return the collider of a pair that can touch along faces and edges."""
    kinds = first, second
    find, nearest = (ft.partial(f, kinds) for f in (polytope_points, convex_points))
    return Collider(find, num_points, one_by_one=True, nearest=nearest)


BUILT_IN: dict[tuple[AnyKind, AnyKind], Collider] = {
    (_K.PLANE, _K.SPHERE): Collider(plane_sphere, 1),
    (_K.PLANE, _K.CAPSULE): Collider(plane_capsule, 2),
    (_K.PLANE, _K.ELLIPSOID): Collider(plane_ellipsoid, 1),
    (_K.PLANE, _K.CYLINDER): Collider(plane_cylinder, 4),
    (_K.PLANE, _K.BOX): Collider(plane_box, 8),
    (_K.PLANE, _K.MESH): Collider(
        ft.partial(plane_mesh, (_K.PLANE, _K.MESH)), 4, one_by_one=True
    ),
    (_K.SPHERE, _K.SPHERE): Collider(sphere_sphere, 1),
    (_K.SPHERE, _K.CAPSULE): Collider(sphere_capsule, 1),
    (_K.SPHERE, _K.ELLIPSOID): _convex(_K.SPHERE, _K.ELLIPSOID),
    (_K.SPHERE, _K.CYLINDER): Collider(sphere_cylinder, 1),
    (_K.SPHERE, _K.BOX): Collider(sphere_box, 1),
    (_K.SPHERE, _K.MESH): _convex(_K.SPHERE, _K.MESH),
    (_K.CAPSULE, _K.CAPSULE): Collider(capsule_capsule, 2),
    (_K.CAPSULE, _K.ELLIPSOID): _convex(_K.CAPSULE, _K.ELLIPSOID),
    (_K.CAPSULE, _K.CYLINDER): Collider(
        capsule_cylinder_points,
        2,
        one_by_one=True,
        nearest=lambda one, two, margin: capsule_cylinder(one, two),
    ),
    (_K.CAPSULE, _K.BOX): _one_by_one(capsule_box, 2),
    (_K.CAPSULE, _K.MESH): _polytopes(_K.CAPSULE, _K.MESH, 2),
    (_K.ELLIPSOID, _K.ELLIPSOID): _convex(_K.ELLIPSOID, _K.ELLIPSOID),
    (_K.ELLIPSOID, _K.CYLINDER): _convex(_K.ELLIPSOID, _K.CYLINDER),
    (_K.ELLIPSOID, _K.BOX): _convex(_K.ELLIPSOID, _K.BOX),
    (_K.ELLIPSOID, _K.MESH): _convex(_K.ELLIPSOID, _K.MESH),
    (_K.CYLINDER, _K.CYLINDER): _polytopes(_K.CYLINDER, _K.CYLINDER, 4),
    (_K.CYLINDER, _K.BOX): _polytopes(_K.CYLINDER, _K.BOX, 4),
    (_K.CYLINDER, _K.MESH): _polytopes(_K.CYLINDER, _K.MESH, 4),
    (_K.BOX, _K.BOX): _one_by_one(
        box_box, 8, ft.partial(convex_points, (_K.BOX, _K.BOX))
    ),
    (_K.BOX, _K.MESH): _polytopes(_K.BOX, _K.MESH, 4),
    (_K.MESH, _K.MESH): _polytopes(_K.MESH, _K.MESH, 4),
}
_ON_TERRAIN = (_K.SPHERE, _K.CAPSULE, _K.ELLIPSOID, _K.CYLINDER, _K.BOX, _K.MESH)
BUILT_IN |= {(_K.HFIELD, kind): terrain_collider(kind) for kind in _ON_TERRAIN}
for kinds, collider in BUILT_IN.items():
    register_collider(*kinds, collider)
for kind in TOUCHING:
    register_field_collider(kind, field_collider)


# Calls of colliders on pairs that are near. Long colliders are compiled once for all robots,
# see `eqsim/_separate.py`.


Kinds = tuple[AnyKind, AnyKind]


def collide(
    kinds: Kinds, num_points: int, one: Shape, two: Shape, margin
) -> ContactPoints:
    """Return all points of pairs of shapes of two kinds, `(k, num_points, *batch)`.

    **Arguments:**

    - `num_points`: number of points of each pair.
    - `two`: the second shapes; the size of a mesh on a height field is half that of the
        box about it, see `list_frames`.
    """
    if is_long(collider_of(*kinds)) and shares_code(kinds, margin):
        return _apart(kinds, num_points, one, two, margin)
    return collide_in_place(kinds, num_points, one, two, margin)


def collide_in_place(
    kinds: Kinds, num_points: int, one: Shape, two: Shape, margin
) -> ContactPoints:
    """Return what `collide` returns, as part of the program that calls it."""
    collider = collider_of(*kinds)
    collided = ft.partial(_collided, collider, kinds, num_points, are_rows_together())
    if not collider.one_by_one or margin.shape[0] == 1:
        return collided(one, two, margin)
    (first, first_shared), (second, second_shared) = map(apart, (one, two))

    def each(pair):
        one, two, margin = jtu.tree_map(lambda x: x[None], pair)
        one, two = together(one, first_shared), together(two, second_shared)
        return jtu.tree_map(lambda x: x[0], collided(one, two, margin))

    return jax.vmap(each)((first, second, margin))


# A collider is long: it is traced once for all its uses on a kind of device, and so is its
# derivative.
@ft.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _collided(
    collider: Collider,
    kinds: Kinds,
    num_points: int,
    together: bool,
    one: Shape,
    two: Shape,
    margin,
) -> ContactPoints:
    del together
    if collider.num_points is None:
        reach = Reach(one.size, half_extents(kinds[1], two.size), margin)
        slots = collider.find(one, two, reach, num_points)
    else:
        arguments = (one, two, margin) if collider.one_by_one else (one, two)
        slots = [complete(point) for point in collider.find(*arguments)]
    return jtu.tree_map(lambda *xs: jnp.stack(xs, axis=1), *slots)


# Colliders that are compiled apart.


def is_long(collider: Collider) -> bool:
    """Return whether a collider searches for the nearest points. The code of others is not
    worth a call, which moves all points through memory."""
    find, long = collider.find, (convex_points, polytope_points, terrain_points)
    return isinstance(find, ft.partial) and find.func in long


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


def shared_tables(one: Shape, two: Shape) -> Shared:
    """Return what all pairs share of hulls and grids, with static numbers rounded so that
    robots share code."""
    found = [apart(shape)[1] for shape in (one, two)]
    first, second = (shared._replace(polygons=None) for shared in found)
    either = lambda x, y: y if x is None else x
    shared = Shared(*map(either, first, second))
    own = either(*(each.polygons for each in found))
    if own is None or are_rows_together():
        return shared._replace(polygons=own)
    most = 1 << (max(own.most, _LEAST_CORNERS) - 1).bit_length()
    many = FEW + 1 if own.most_vertices > FEW else FEW
    own = dataclasses.replace(own, most=most, most_vertices=many, most_around=0)
    return shared._replace(polygons=own)


def _apart(
    kinds: Kinds, num_points: int, one: Shape, two: Shape, margin
) -> ContactPoints:
    def find(state, sizes, rest, tables):
        numbers, margin = rest
        shapes = zip(state, sizes, *zip(*numbers, strict=True), strict=True)
        one, two = (together(Shape(*each), tables) for each in shapes)
        return jtu.tree_leaves(collide_in_place(kinds, num_points, one, two, margin))

    tables, both = shared_tables(one, two), (apart(one)[0], apart(two)[0])
    state, sizes, *numbers = zip(*both, strict=True)
    own = state, sizes, (tuple(zip(*numbers, strict=True)), margin)
    shapes = [x.shape[1:] for x in jtu.tree_leaves(own)]
    shape = 1, num_points, *jnp.broadcast_shapes(*shapes)
    number = jax.ShapeDtypeStruct(shape, margin.dtype)
    flag = jax.ShapeDtypeStruct(shape, np.dtype(bool))
    crowded = flag if collider_of(*kinds).num_points is None else None
    points = ContactPoints(
        number, Vec3(*[number] * 3), Mat3(*[number] * 9), flag, crowded
    )
    results, treedef = jtu.tree_flatten(points)
    name = f"{' '.join(kind.name for kind in kinds)} {code_version()}"
    return jtu.tree_unflatten(treedef, separate(find, name, own, tables, results))
