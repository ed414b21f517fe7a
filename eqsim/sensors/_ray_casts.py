"""The first shape that a ray hits, rays cast at a robot and its world, and heights of the
ground around a link.

Patterns are arrays of points or directions; `cast_rays` intersects any rays with any shapes;
`height_scan` casts vertical rays down. A vertical ray meets a height field where its surface is
interpolated, so `height_scan` needs no search there. Other rays traverse the cells of a field,
in a kernel on the CPU.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_count
from ..collision.primitives import Shape, unit
from ..kinematics.frames import attached_frames, carriers
from ..kinematics.link_motion import frames, kinematics, link_poses, Pose, take_poses
from ..model import AbstractDistanceField, check_state, GeomKind, System, tree
from ..model.arrays import concatenate, take
from ..model.kinds import require_known
from ..spatial import Mat3, Vec3
from ..spatial.vectors import stack, vec3
from ..terrain.surface import is_vertical, surface_of
from ._rays import Hit, Ray, ray_height_field, ray_mesh, ray_shape


# The first of several shapes that a ray hits.


_FAR = 1e30
_SIMPLE = tuple(k for k in GeomKind if k not in (GeomKind.MESH, GeomKind.HFIELD))


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


def first_hit(
    sys: System,
    shapes_of: Callable[[Sequence[int]], Shape],
    ray: Ray,
    geoms: Sequence[int],
) -> Hit:
    """Intersect one ray with shapes; -1 and zeros if it hits none.

    **Arguments:**

    - `shapes_of`: function that returns the shapes of some geoms.
    - `ray`: a ray, `(1, *batch)`.
    - `geoms`: shapes that the ray can hit.
    """
    zero = jnp.zeros_like(ray.point.x + ray.direction.x)
    hits = [Hit(zero - 1.0, Vec3(zero, zero, zero))]
    for geom in geoms:
        hits += _hits_with_data(sys, shapes_of, ray, geom)
    for kind in _SIMPLE:
        own = [g for g in geoms if sys.geoms.kinds[g] is kind]
        if own:
            shapes = shapes_of(own)
            like = shapes.pose.pos.x
            rays = Ray(repeat(ray.point, like), repeat(ray.direction, like))
            hits.append(ray_shape(kind, shapes, rays))
    found = concatenate(hits)
    order = jnp.where(found.dist >= 0.0, found.dist, _FAR)
    return select(first_smallest(order), found)


def _hits_with_data(
    sys: System, shapes_of: Callable[[Sequence[int]], Shape], ray: Ray, geom: int
) -> list[Hit]:
    """Intersect one ray with a mesh or a height field, if the shape is one."""
    kind = sys.geoms.kinds[geom]
    # Rays pass through distance fields.
    if kind in _SIMPLE or isinstance(kind, AbstractDistanceField):
        return []
    require_known(kind, "are not seen by rays")
    shape, data = shapes_of([geom]), sys.geoms.data[geom]
    if kind is GeomKind.MESH:
        return [ray_mesh(sys.meshes, data, shape, ray)]
    return [ray_height_field(sys.height_fields, data, shape, ray)]


def repeat(v: Vec3, like) -> Vec3:
    """Broadcast a vector with one row to the shape of an array."""
    return Vec3(*(x + jnp.zeros_like(like) for x in v))


# Patterns.


def grid_pattern(
    size: tuple[float, float], spacing: float
) -> Float[np.ndarray, "npoint 2"]:
    """Return the points of a rectangular grid about the origin, for `height_scan`.

    **Arguments:**

    - `size`: lengths along x and y, m. Both ends belong to the grid if a length is a
        multiple of the spacing.
    - `spacing`: distance of neighboring points, m.

    **Returns:** x and y of the points, m; x changes fastest.
    """
    _check_positive("spacing", spacing)
    axes = []
    for length in size:
        if not (math.isfinite(length) and length >= 0.0):
            raise ValueError(f"`size` must be two lengths in m, not {size}.")
        count = math.floor(length / spacing + 1e-6)
        axes.append((np.arange(count + 1) - count / 2) * spacing)
    x, y = np.meshgrid(*axes)
    return np.stack([x.ravel(), y.ravel()], axis=-1)


def ring_pattern(radii: Sequence[float], count: int) -> Float[np.ndarray, "npoint 2"]:
    """Return points on circles about the origin, for `height_scan`.

    **Arguments:**

    - `radii`: radius of each circle, m; 0 is one point.
    - `count`: number of points on each other circle, evenly spaced, the first one on
        the x axis.

    **Returns:** x and y of the points, circle by circle, m.
    """
    check_count("count", count)
    angle = 2.0 * np.pi * np.arange(count) / count
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    parts = [radius * (circle if radius else np.zeros((1, 2))) for radius in radii]
    return np.concatenate([np.zeros((0, 2)), *parts])


def pinhole_pattern(
    rows: int, columns: int, field_of_view: float = 60.0
) -> Float[np.ndarray, "nray 3"]:
    """Return the directions of the pixels of a depth camera, for `cast_rays`.

    The camera looks along x of its frame, with y to the left and z up. The first
    direction is that of the upper left pixel.

    **Arguments:**

    - `rows`, `columns`: numbers of pixels, which are squares.
    - `field_of_view`: horizontal angle of view, degrees.

    **Returns:** unit vectors, row by row.
    """
    check_count("rows", rows)
    check_count("columns", columns)
    if not 0.0 < field_of_view < 180.0:
        raise ValueError(
            f"`field_of_view` must be between 0 and 180 degrees, got {field_of_view}."
        )
    pixel = 2.0 * math.tan(math.radians(field_of_view) / 2) / columns
    left = ((columns - 1) / 2 - np.arange(columns)) * pixel
    up = ((rows - 1) / 2 - np.arange(rows)) * pixel
    y, z = np.meshgrid(left, up)
    directions = np.stack([np.ones_like(y), y, z], axis=-1).reshape(-1, 3)
    return directions / np.linalg.norm(directions, axis=-1, keepdims=True)


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"`{name}` must be positive (m), got {value}.")


# Rays.


class RayHits(NamedTuple):
    """First intersections of rays.

    - `distance`: distance along each ray, m; -1 if it hits nothing.
    - `normal`: unit normal of the surface in the world; zero if the ray hits nothing.
    """

    distance: Float[Array, " nray"]
    normal: Float[Array, "nray 3"]


def cast_rays(
    sys: System,
    q: Float[Array, " nq"],
    origins: Float[Array, "nray 3"] | np.ndarray,
    directions: Float[Array, "nray 3"] | np.ndarray,
    *,
    link: str | None = None,
    yaw_only: bool = False,
    geoms: Sequence[str] | None = None,
) -> RayHits:
    """Cast rays at shapes of the robot and of its world.

    Rays hit shapes as in MuJoCo's `mj_ray`: planes from above and within their size, all
    other shapes also from within. Differentiable with respect to coordinates, rays and
    shapes; where a ray passes an edge, its distance jumps, and the derivative does not
    include the jump.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `origins`, `directions`: rays; directions need not be unit vectors. One row in
        either of them is the same for all rays.
    - `link`: name of a link in whose frame the rays are given; by default the world.
    - `yaw_only`: true to turn the rays with the heading of the link only, the direction
        of its x axis in the horizontal plane.
    - `geoms`: names of the shapes that rays can hit; by default all that do not move.
        Rays pass through all others.

    **Returns:** distance and normal of the first hit of each ray.

    **Raises:** `ValueError` if a name is unknown or a shape is wrong.
    """
    check_state(sys, q)
    origins, directions = _same_rows(sys, q, origins, directions)
    index = _link_of(sys, link)
    if yaw_only and link is None:
        raise ValueError("`yaw_only` needs a `link`. Pass the name of one.")
    chosen = _geoms_of(sys, geoms)
    placed = _poses(sys, q, chosen, index)
    origins, directions = _in_world(placed, origins, directions, link, yaw_only)
    return _cast_all(sys, placed, origins, directions, chosen)


def _same_rows(sys: System, q: Any, origins: Any, directions: Any):
    dtype = q.dtype
    pair = jnp.asarray(origins, dtype), jnp.asarray(directions, dtype)
    count = max(x.shape[0] if x.ndim else 0 for x in pair)
    for name, x in zip(("origins", "directions"), pair, strict=True):
        if x.ndim != 2 or x.shape[1] != 3 or x.shape[0] not in (1, count):
            raise ValueError(
                f"`{name}` have the shape {x.shape}, expected ({count}, 3) or (1, 3). "
                "Use `jax.vmap` for rays in more axes."
            )
    return tuple(jnp.broadcast_to(x, (count, 3)) for x in pair)


def _link_of(sys: System, link: str | None) -> int:
    return -1 if link is None else sys.link(link).index


def _geoms_of(sys: System, names: Sequence[str] | None) -> tuple[int, ...]:
    """Return shapes by name; by default those that do not move."""
    if names is not None:
        return tuple(sys.geom(name).index for name in names)
    nodes = carriers(tree(sys), sys.geoms.links)
    return tuple(geom for geom, node in enumerate(nodes) if node < 0)


class _Placed(NamedTuple):
    """Poses of shapes, and of the frame of the rays: positions and rotation matrices."""

    pos: Float[Array, "ngeom 3"]
    rot: Float[Array, "ngeom 3 3"]
    origin: Float[Array, "3"]
    axes: Float[Array, "3 3"]


@batch_last
def _poses(sys: System, q, geoms: tuple[int, ...], link: int) -> _Placed:
    """Compute the poses of shapes and of one link; -1 is the world."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    links = [sys.geoms.links[geom] for geom in geoms]
    pos, quat = take((sys.geoms.pos, sys.geoms.quat), geoms)
    local = attached_frames(fixed, links, pos, quat)
    shapes = take_poses(kin.pose, carriers(nodes, links)) @ local
    own = take_poses(link_poses(nodes, fixed, kin), [link])
    matrices = lambda rot, n: jnp.stack(rot, axis=1).reshape(n, 3, 3, *rot.xx.shape[1:])
    origin, axes = stack(own.pos)[0], matrices(own.rot, 1)[0]
    return _Placed(stack(shapes.pos), matrices(shapes.rot, len(geoms)), origin, axes)


def _in_world(placed: _Placed, origins, directions, link: str | None, yaw_only: bool):
    """Return rays in world axes."""
    if link is None:
        return origins, directions
    axes = yaw_matrix(placed.axes) if yaw_only else placed.axes
    return placed.origin[None] + origins @ axes.T, directions @ axes.T


def yaw_matrix(rot: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """Return the rotation about the vertical axis that turns x to the heading of a
    frame: the direction of its x axis in the horizontal plane.

    The heading of a vertical x axis is not defined; the result is then finite.
    """
    x, y = rot[0, 0], rot[1, 0]
    square = x * x + y * y
    some = square > float(jnp.finfo(rot.dtype).tiny)
    scale = 1.0 / jnp.sqrt(jnp.where(some, square, 1.0))
    cos, sin = jnp.where(some, x * scale, 1.0), jnp.where(some, y * scale, 0.0)
    zero, one = jnp.zeros_like(cos), jnp.ones_like(cos)
    return jnp.stack([cos, -sin, zero, sin, cos, zero, zero, zero, one]).reshape(3, 3)


def _cast_all(
    sys: System, placed: _Placed, origins, directions, geoms: tuple[int, ...]
) -> RayHits:
    one = lambda origin, direction: _cast(
        sys, placed.pos, placed.rot, origin, direction, geoms
    )
    return RayHits(*jax.vmap(one)(origins, directions))


@batch_last
def _cast(sys: System, pos, rot, origin, direction, geoms: tuple[int, ...]):
    """Intersect one ray with shapes: distance and normal."""

    def shapes_of(chosen: Sequence[int]) -> Shape:
        at = [geoms.index(geom) for geom in chosen]
        place = Mat3(*(take(rot[:, i, j], at) for i in range(3) for j in range(3)))
        pose = Pose(place, vec3(take(pos, at)))
        return Shape(pose, vec3(take(sys.geoms.size, chosen)))

    vector = lambda x: Vec3(*(x[k : k + 1] for k in range(3)))
    ray = Ray(vector(origin), unit(vector(direction)))
    hit = first_hit(sys, shapes_of, ray, geoms)
    return hit.dist[0], jnp.concatenate(hit.normal)


# Heights of the ground.


def height_scan(
    sys: System,
    q: Float[Array, " nq"],
    link: str,
    pattern: Float[Array, "npoint 2"] | np.ndarray,
    *,
    geoms: Sequence[str] | None = None,
    above: float = 20.0,
    missing: float = -math.inf,
) -> Float[Array, " npoint"]:
    """Measure the height of the ground around a link, relative to its origin.

    The points of the pattern move and turn with the heading of the link, as usual for
    the perception of walking robots: roll and pitch do not matter. At each point, the
    ground is the highest surface below `above`. Differentiable with respect to
    coordinates, pattern, heights and shapes.

    !!! example

        ```python
        pattern = grid_pattern((1.6, 1.0), 0.1)
        scan = jnp.clip(height_scan(sys, q, "base", pattern), -1.0, 1.0)
        ```

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `link`: name of the link.
    - `pattern`: points relative to the link, x ahead and y to the left, m; see
        `grid_pattern`.
    - `geoms`: names of the shapes of the ground; by default all that do not move.
    - `above`: height above the link from which shapes are seen, m. The surface of
        height fields is seen from everywhere.
    - `missing`: value where there is no ground.

    **Returns:** z of the ground minus z of the link, m; NaN if the z axis of a height
    field is not vertical.

    **Raises:** `ValueError` if a name is unknown or a shape is wrong.
    """
    check_state(sys, q)
    points = jnp.asarray(pattern, q.dtype)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(
            f"`pattern` has the shape {points.shape}, expected (n, 2): x and y of points. "
            "`cast_rays` takes rays."
        )
    _check_positive("above", above)
    chosen = _geoms_of(sys, geoms)
    placed = _poses(sys, q, chosen, _link_of(sys, link))
    turn = yaw_matrix(placed.axes)
    # Component by component: XLA computes products of such small matrices separately.
    at = tuple(
        placed.origin[k] + turn[k, 0] * points[:, 0] + turn[k, 1] * points[:, 1]
        for k in (0, 1)
    )
    is_field = [sys.geoms.kinds[geom] is GeomKind.HFIELD for geom in chosen]
    found = [
        _field_heights(sys, placed, row, geom, at)
        for row, (geom, field) in enumerate(zip(chosen, is_field))
        if field
    ]
    others = tuple(geom for geom, field in zip(chosen, is_field) if not field)
    if others:
        rows = np.flatnonzero(~np.array(is_field))
        shapes = placed._replace(pos=placed.pos[rows], rot=placed.rot[rows])
        found.append(_heights_from(sys, shapes, others, at, above))
    if not found:
        return jnp.full(points.shape[:1], missing, q.dtype)
    ground = found[0]
    for other in found[1:]:
        # The higher one, with the derivative of one where they touch; NaN if one is.
        ground = jnp.where((other > ground) | jnp.isnan(other), other, ground)
    none = jnp.isneginf(ground)
    return jnp.where(none, missing, jnp.where(none, 0.0, ground) - placed.origin[2])


def _field_heights(sys: System, placed: _Placed, row: int, geom: int, at: tuple):
    """Return z of a height field at points of the world; -infinity beyond its sides."""
    pos, rot = placed.pos[row], placed.rot[row]
    away = at[0] - pos[0], at[1] - pos[1]
    x, y = (rot[0, k] * away[0] + rot[1, k] * away[1] for k in (0, 1))
    surface = surface_of(sys, sys.geoms.data[geom])
    height = pos[2] + surface.height(x, y)
    height = jnp.where(surface.within(x, y), height, -jnp.inf)
    return jnp.where(is_vertical(rot[2, 2]), height, jnp.nan)


def _heights_from(sys: System, placed: _Placed, geoms: tuple[int, ...], at, above):
    """Return z of shapes below points at some height above the link; -infinity where
    there are none."""
    top = placed.origin[2] + above
    origins = jnp.stack([*at, jnp.broadcast_to(top, at[0].shape)], axis=1)
    down = jnp.broadcast_to(jnp.array([0.0, 0.0, -1.0], top.dtype), origins.shape)
    hits = _cast_all(sys, placed, origins, down, geoms)
    hit = hits.distance >= 0.0
    return jnp.where(hit, top - jnp.where(hit, hits.distance, 0.0), -jnp.inf)
