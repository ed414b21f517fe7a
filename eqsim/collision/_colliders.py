"""The colliders: how each pair of shapes touches. A new pair is one line."""

import functools as ft
from collections.abc import Callable

from ..model import Collider, GeomKind, register_collider
from ..model._shape_kinds import AnyKind
from ._box_box import box_box
from ._capsule_box import capsule_box
from ._convex import convex_points
from ._manifold import capsule_cylinder_points, polytope_points
from ._plane_mesh import plane_mesh
from ._shapes import (
    capsule_capsule,
    capsule_cylinder,
    plane_box,
    plane_capsule,
    plane_cylinder,
    plane_ellipsoid,
    plane_sphere,
    sphere_capsule,
    sphere_sphere,
)
from ._sphere_pairs import sphere_box, sphere_cylinder
from ._terrain import terrain_collider


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
