"""The colliders: how each pair of shapes touches. A new pair is one line."""

from ..model import Collider, GeomKind, register_collider
from ._box_box import box_box
from ._capsule_box import capsule_box
from ._plane_pairs import plane_ellipsoid
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
from ._sphere_pairs import sphere_box, sphere_cylinder


_K = GeomKind
_BUILT_IN = {
    (_K.PLANE, _K.SPHERE): Collider(plane_sphere, 1),
    (_K.PLANE, _K.CAPSULE): Collider(plane_capsule, 2),
    (_K.PLANE, _K.ELLIPSOID): Collider(plane_ellipsoid, 1),
    (_K.PLANE, _K.CYLINDER): Collider(plane_cylinder, 4),
    (_K.PLANE, _K.BOX): Collider(plane_box, 8),
    (_K.SPHERE, _K.SPHERE): Collider(sphere_sphere, 1),
    (_K.SPHERE, _K.CAPSULE): Collider(sphere_capsule, 1),
    (_K.SPHERE, _K.CYLINDER): Collider(sphere_cylinder, 1),
    (_K.SPHERE, _K.BOX): Collider(sphere_box, 1),
    (_K.CAPSULE, _K.CAPSULE): Collider(capsule_capsule, 2),
    (_K.CAPSULE, _K.CYLINDER): Collider(capsule_cylinder, 1, one_by_one=True),
    (_K.CAPSULE, _K.BOX): Collider(capsule_box, 2, one_by_one=True),
    (_K.BOX, _K.BOX): Collider(box_box, 8, one_by_one=True, measures=False),
}
for kinds, collider in _BUILT_IN.items():
    register_collider(*kinds, collider)
