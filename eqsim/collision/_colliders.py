"""The colliders: how each pair of shapes touches. A new pair is one line."""

import functools as ft

from ..model import Collider, GeomKind, register_collider
from ._convex import convex_points
from ._shapes import (
    capsule_capsule,
    capsule_cylinder,
    plane_box,
    plane_capsule,
    plane_cylinder,
    plane_sphere,
    sphere_capsule,
    sphere_sphere,
)


_K = GeomKind


def _convex(first: GeomKind, second: GeomKind) -> Collider:
    find = ft.partial(convex_points, (first, second))
    return Collider(find, 1, one_by_one=True)


_BUILT_IN = {
    (_K.PLANE, _K.SPHERE): Collider(plane_sphere, 1),
    (_K.PLANE, _K.CAPSULE): Collider(plane_capsule, 2),
    (_K.PLANE, _K.CYLINDER): Collider(plane_cylinder, 4),
    (_K.PLANE, _K.BOX): Collider(plane_box, 8),
    (_K.SPHERE, _K.SPHERE): Collider(sphere_sphere, 1),
    (_K.SPHERE, _K.CAPSULE): Collider(sphere_capsule, 1),
    (_K.CAPSULE, _K.CAPSULE): Collider(capsule_capsule, 1),
    (_K.CAPSULE, _K.CYLINDER): Collider(
        lambda one, two, margin: capsule_cylinder(one, two), 1, one_by_one=True
    ),
    **{
        (one, _K.ELLIPSOID): _convex(one, _K.ELLIPSOID)
        for one in (_K.SPHERE, _K.CAPSULE, _K.ELLIPSOID)
    },
    **{
        (_K.ELLIPSOID, two): _convex(_K.ELLIPSOID, two) for two in (_K.CYLINDER, _K.BOX)
    },
}
for kinds, collider in _BUILT_IN.items():
    register_collider(*kinds, collider)
