"""The colliders: how each pair of shapes touches. A new pair is one line."""

from ..model import Collider, GeomKind, register_collider
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
_BUILT_IN = {
    (_K.PLANE, _K.SPHERE): Collider(plane_sphere, 1),
    (_K.PLANE, _K.CAPSULE): Collider(plane_capsule, 2),
    (_K.PLANE, _K.CYLINDER): Collider(plane_cylinder, 4),
    (_K.PLANE, _K.BOX): Collider(plane_box, 8),
    (_K.SPHERE, _K.SPHERE): Collider(sphere_sphere, 1),
    (_K.SPHERE, _K.CAPSULE): Collider(sphere_capsule, 1),
    (_K.CAPSULE, _K.CAPSULE): Collider(capsule_capsule, 1),
    (_K.CAPSULE, _K.CYLINDER): Collider(capsule_cylinder, 1, one_by_one=True),
}
for kinds, collider in _BUILT_IN.items():
    register_collider(*kinds, collider)
