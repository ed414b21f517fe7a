"""Separation of two convex shapes along a direction, in extended precision."""

import mujoco
import numpy as np


_KIND = mujoco.mjtGeom
_ANGLES = 10.0 ** np.arange(-11, -4)
_DIRECTIONS = 16
_GRID, _SEEDS, _TURNS = 4000, 5, 100


def separation(
    model: mujoco.MjModel, data: mujoco.MjData, geoms: tuple[int, int], normal
) -> np.longdouble:
    r"""Compute $s(n) = \min_{b \in B} n \cdot b - \max_{a \in A} n \cdot a$.

    The distance of two convex shapes is the largest $s(n)$ over all unit vectors; if
    they intersect, it is minus the depth. A normal with a smaller $s$ is less exact.
    The error of $s$ is quadratic in that of the normal, so double precision is not
    sufficient.

    **Arguments:**

    - `geoms`: the shapes $A$ and $B$: any but planes and height fields.
    - `normal`: direction from $A$ to $B$, `(3,)`, or `(3, n)` for several; need not have
        exactly unit length.
    """
    n = np.asarray(normal, np.longdouble)
    n = n / np.sqrt(np.sum(n * n, axis=0))
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
    if kind == _KIND.mjGEOM_MESH:
        return pos @ n + np.max(_vertices(model, geom) @ (rot.T @ n), axis=0)
    x, y, z = abs(rot.T @ n)
    wide = np.sqrt(x * x + y * y)
    extent = {
        int(_KIND.mjGEOM_SPHERE): size[0],
        int(_KIND.mjGEOM_CAPSULE): size[0] + size[1] * z,
        int(_KIND.mjGEOM_CYLINDER): size[0] * wide + size[1] * z,
        int(_KIND.mjGEOM_BOX): size[0] * x + size[1] * y + size[2] * z,
        int(_KIND.mjGEOM_ELLIPSOID): np.sqrt(
            (size[0] * x) ** 2 + (size[1] * y) ** 2 + (size[2] * z) ** 2
        ),
    }
    return pos @ n + extent[int(kind)]


def _vertices(model, geom: int) -> np.ndarray:
    mesh = model.geom_dataid[geom]
    start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    return model.mesh_vert[start : start + count].astype(np.longdouble)


def true_distance(model, data, normals) -> float:
    """Compute the distance of the first two shapes from their support functions alone.

    The largest separation is sought among directions of a grid on the sphere and the
    given ones. The best are then refined, in cones that become narrower.

    **Arguments:**

    - `normals`: directions to begin with, `(n, 3)`.
    """
    fixed = _on_sphere(_GRID)
    best = _separations(model, data, fixed)
    seeds = [*fixed[np.argsort(best)[-_SEEDS:]], *normals, *-np.asarray(normals)]
    return float(max(_refined(model, data, seed) for seed in seeds))


def _on_sphere(count: int) -> np.ndarray:
    """Return directions that are evenly distributed (Fibonacci)."""
    k = np.arange(count) + 0.5
    angle, z = np.pi * (1.0 + np.sqrt(5.0)) * k, 1.0 - 2.0 * k / count
    across = np.sqrt(1.0 - z * z)
    return np.stack([across * np.cos(angle), across * np.sin(angle), z], axis=1)


def _separations(model, data, directions: np.ndarray) -> np.ndarray:
    return separation(model, data, (0, 1), directions.T)


def _refined(model, data, normal) -> np.longdouble:
    """Search for the largest separation near a direction."""
    n, angle = np.asarray(normal, np.longdouble), 0.05
    n = n / np.sqrt(n @ n)
    best = separation(model, data, (0, 1), n)
    turns = 2.0 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    for _ in range(_TURNS):
        side = np.cross(n, np.eye(3, dtype=np.longdouble)[np.argmin(abs(n))])
        side = side / np.sqrt(side @ side)
        tilts = np.outer(np.cos(turns), side) + np.outer(
            np.sin(turns), np.cross(n, side)
        )
        near = n + angle * tilts
        found = _separations(model, data, near)
        k = int(np.argmax(found))
        if found[k] > best:
            best, n = found[k], near[k] / np.sqrt(near[k] @ near[k])
        else:
            angle *= 0.6
    return best
