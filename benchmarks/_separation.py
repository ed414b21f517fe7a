"""Separation of two convex shapes along a direction, in extended precision."""

import mujoco
import numpy as np


_KIND = mujoco.mjtGeom
_ANGLES = 10.0 ** np.arange(-11, -4)
_DIRECTIONS = 16


def separation(
    model: mujoco.MjModel, data: mujoco.MjData, geoms: tuple[int, int], normal
) -> np.longdouble:
    r"""Compute $s(n) = \min_{b \in B} n \cdot b - \max_{a \in A} n \cdot a$.

    The distance of two convex shapes is the largest $s(n)$ over all unit vectors; if
    they intersect, it is minus the depth. A normal with a smaller $s$ is less exact.
    The error of $s$ is quadratic in that of the normal, so double precision is not
    sufficient.

    **Arguments:**

    - `geoms`: the shapes $A$ and $B$: spheres, capsules, ellipsoids, cylinders or boxes.
    - `normal`: direction from $A$ to $B$; need not have exactly unit length.
    """
    n = np.asarray(normal, np.longdouble)
    n = n / np.sqrt(n @ n)
    one, two = geoms
    return -_extent(model, data, two, -n) - _extent(model, data, one, n)


def largest_separation(model, data, geoms, normal) -> np.longdouble:
    """Compute the largest separation along a normal and along others near it."""
    n = np.asarray(normal, np.longdouble)
    side = np.eye(3, dtype=np.longdouble)[np.argmin(abs(n))]
    side = np.cross(n, side)
    side = side / np.sqrt(side @ side)
    other = np.cross(n, side)
    turns = 2.0 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    tilts = [np.cos(turn) * side + np.sin(turn) * other for turn in turns]
    near = [n + angle * tilt for angle in _ANGLES for tilt in tilts]
    return max(separation(model, data, geoms, each) for each in [n, *near])


def _extent(model, data, geom: int, n) -> np.longdouble:
    """Return the largest coordinate of a shape along a unit vector."""
    pos = data.geom_xpos[geom].astype(np.longdouble)
    rot = data.geom_xmat[geom].reshape(3, 3).astype(np.longdouble)
    size, kind = model.geom_size[geom].astype(np.longdouble), model.geom_type[geom]
    x, y, z = abs(rot.T @ n)
    wide = np.sqrt(x * x + y * y)
    extent = {
        int(_KIND.mjGEOM_SPHERE): size[0],
        int(_KIND.mjGEOM_CAPSULE): size[0] + size[1] * z,
        int(_KIND.mjGEOM_CYLINDER): size[0] * wide + size[1] * z,
        int(_KIND.mjGEOM_BOX): size @ np.array([x, y, z]),
        int(_KIND.mjGEOM_ELLIPSOID): np.sqrt(sum((size * [x, y, z]) ** 2)),
    }
    return n @ pos + extent[int(kind)]
