"""Checks of the contact points of a pair of shapes."""

import functools as ft
from collections.abc import Iterator, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from .._batching import batch_last
from ..collision import contact_plan, detect, geom_frames
from ..kinematics import forward
from ..kinematics.link_motion import frames, kinematics
from ..model import collider_of, JointKind, System, tree
from ..spatial import Mat3, matrix_quaternion, multiply, quaternion_matrix
from ..spatial.vectors import stack
from ._check import bind, Check, Law, Report, run_checks
from ._gradients import check_gradients
from ._kernels import check_kernels
from ._pipeline_kit import double
from ._tools import in_precision, require, require_finite


_TURN = np.array([0.7, 0.1, -0.5, 0.5])
_MOVE = np.array([0.3, -0.2, 0.4])


@batch_last
def contact_points(sys: System, q):
    """Compute distance, position, frame and validity of all points, `(npoint, ...)`."""
    nodes, plan = tree(sys), contact_plan(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    found = detect(sys, plan, geom_frames(sys, fixed), kin)
    frame = jnp.stack([stack(row) for row in found.frame.rows], axis=1)
    return found.dist, stack(found.pos), frame, found.valid


class ColliderKit:
    """A robot with one pair of shapes, in one configuration."""

    def __init__(self, sys: System, q: Float[Array, " nq"]):
        self.given = sys, q

    @ft.cached_property
    def parts(self) -> tuple[System, Array]:
        """The robot and its coordinates in double precision."""
        sys, q = in_precision(self.given, jnp.float64)
        return sys, q

    @property
    def shapes(self) -> tuple[int, int]:
        """The shapes of the pair."""
        return contact_plan(self.parts[0]).pairs[0][:2]

    def carrier(self, geom: int) -> tuple[np.ndarray, np.ndarray]:
        """Return origin and axes of the frame in which the pose of a shape is given."""
        link = self.parts[0].geoms.links[geom]
        if link < 0:
            return np.zeros(3), np.eye(3)
        poses = forward(*self.parts)
        return np.asarray(poses.pos[link]), np.asarray(poses.rot[link])

    @ft.cached_property
    def found(self) -> tuple[np.ndarray, ...]:
        """The points in the given configuration."""
        found = existing_points(*self.parts)
        require(len(found[0]), "no point exists: give a configuration with contact")
        return found


def existing_points(sys: System, q) -> tuple[np.ndarray, ...]:
    """Return distances, positions and frames of the points that exist."""
    *values, valid = map(np.asarray, contact_points(sys, q))
    return tuple(x[valid] for x in values)


def _matrix(quat: np.ndarray) -> np.ndarray:
    return np.reshape(quaternion_matrix(tuple(quat)), (3, 3))


def _displaced(sys: System, q) -> tuple[System, Array]:
    """Return the same robot at a different position and orientation in the world."""
    turn = _TURN / np.linalg.norm(_TURN)
    place = lambda pos: pos @ _matrix(turn).T + _MOVE
    turned = lambda quat: np.stack(multiply(turn, quat.T), axis=-1)
    fixed = [geom for geom, link in enumerate(sys.geoms.links) if link < 0]
    roots = [link for link, parent in enumerate(sys.links.parents) if parent < 0]
    frames_of = lambda s: (s.geoms.pos, s.geoms.quat, s.links.pos, s.links.quat)
    numbers = [np.array(x) for x in frames_of(sys)]
    for (pos, quat), rows in zip((numbers[:2], numbers[2:]), (fixed, roots)):
        pos[rows], quat[rows] = place(pos[rows]), turned(quat[rows])
    q, start = np.array(q), 0
    for kind in sys.joints.kinds:
        if kind is JointKind.FREE:
            q[start : start + 3] = place(q[start : start + 3])
            q[start + 3 : start + 7] = turned(q[start + 3 : start + 7])
        start += kind.nq
    moved = eqx.tree_at(frames_of, sys, tuple(map(jnp.asarray, numbers)))
    return moved, jnp.asarray(q)


def _close(found, expected, what: str, tolerance: float = 1e-7) -> None:
    error = float(np.max(np.abs(np.asarray(found) - np.asarray(expected)), initial=0.0))
    require(error <= tolerance, f"{what}: they differ by {error:.2g}")


def orthonormal(kit: ColliderKit) -> None:
    """Frames of contacts are orthonormal.

    Normalize the normal, also for concentric shapes.
    """
    for own in kit.found[2]:
        _close(own @ own.T, np.eye(3), "the frame times its transpose, and one", 1e-10)


def rigid(kit: ColliderKit) -> None:
    """Contact points move with the shapes when both are moved and rotated.

    The function must not depend on directions and positions of the world.
    """
    sys, q = _displaced(*kit.parts)
    dist, pos, frame = existing_points(sys, q)
    rot = _matrix(_TURN / np.linalg.norm(_TURN))
    require(len(dist) == len(kit.found[0]), "the number of points changes")
    _close(dist, kit.found[0], "distances before and after")
    _close(pos, kit.found[1] @ rot.T + _MOVE, "positions before and after")
    _close(frame[:, 0], kit.found[2][:, 0] @ rot.T, "normals before and after")


def separates(kit: ColliderKit) -> None:
    """The smallest distance grows as the second shape moves along the normal.

    The normal points from the first shape to the second, and distances are negative in
    penetration. The rate of the distance is 1, within 1 %, because touching faces need
    not be parallel.
    """
    (sys, q), geom = kit.parts, kit.shapes[1]
    normal, step = kit.found[2][int(np.argmin(kit.found[0])), 0], 1e-6

    def smallest(shift):
        move = shift * kit.carrier(geom)[1].T @ normal
        moved = eqx.tree_at(
            lambda s: s.geoms.pos, sys, sys.geoms.pos.at[geom].add(move)
        )
        return np.min(existing_points(moved, q)[0])

    rate = (smallest(step) - smallest(-step)) / (2.0 * step)
    _close(rate, 1.0, "the rate of the distance, and one", 0.01)


def gradients(kit: ColliderKit) -> None:
    """Derivatives of distances, positions and frames equal finite differences, with
    respect to coordinates, poses and sizes of shapes, and vertices of meshes.

    Check norms, square roots, and `where` with a branch that is not finite.
    """
    sys, q = kit.parts

    def points(numbers, q):
        *values, valid = contact_points(eqx.tree_at(_of_shapes, sys, numbers), q)
        keep = lambda x: jnp.where(valid.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0)
        return tuple(map(keep, values))

    check_gradients(points, _of_shapes(sys), q, rtol=1e-4, atol=1e-5)


def _of_shapes(sys: System) -> tuple:
    geoms, meshes = sys.geoms, sys.meshes
    return geoms.pos, geoms.quat, geoms.size, meshes.vertices


def aligned(kit: ColliderKit) -> None:
    """Values and derivatives are finite where both shapes have the same frame.

    Directions that are not unique there may be arbitrary.
    """
    sys, q = kit.parts
    pos, quat = np.array(sys.geoms.pos), np.array(sys.geoms.quat)
    for geom in kit.shapes:
        origin, rot = kit.carrier(geom)
        pos[geom] = -origin @ rot
        quat[geom] = matrix_quaternion(Mat3(*np.ravel(rot.T)))
    where = lambda s: (s.geoms.pos, s.geoms.quat)
    sys = eqx.tree_at(where, sys, (jnp.asarray(pos), jnp.asarray(quat)))
    total = lambda parts: sum(jnp.sum(x) for x in contact_points(*parts)[:3])
    require_finite("values: ", contact_points(sys, q))
    require_finite("derivatives: ", eqx.filter_grad(total)((sys, q)))


def kernels(kit: ColliderKit) -> None:
    """The function compiles to a kernel.

    Index, reduce and reshape only leading axes; docs/kernels.md lists what compiles.
    """
    check_kernels(contact_points, *kit.parts)


def broadcasts(kit: ColliderKit) -> None:
    """Robots of a batch may share coordinates, and states may share a robot.

    Without a kernel, the last axis of an array has the size of the batch, or size one
    if the batch shares the array: broadcast conditions and values alike.
    """
    lift = lambda size, tree: jtu.tree_map(
        lambda x: jnp.broadcast_to(x[..., None], (*x.shape, size)), tree
    )
    sys, q = kit.parts
    fixed, static = eqx.partition(sys, eqx.is_array)
    points = lambda fixed, q: contact_points.__wrapped__(eqx.combine(fixed, static), q)
    for sizes in ((1, 5), (5, 1)):
        arrays = (lift(size, x) for size, x in zip(sizes, (fixed, q), strict=True))
        for x in jax.eval_shape(points, *arrays):
            found = x.shape[-1]
            require(found == 5, f"a result has a last axis of size {found}, not 5")


LAWS = (
    Law(double(broadcasts)),
    Law(double(orthonormal)),
    Law(double(rigid), ("orthonormal",)),
    Law(double(separates), ("orthonormal",)),
    Law(double(gradients), ("orthonormal",)),
    Law(double(aligned)),
    Law(double(kernels)),
)


def collider_checks(sys: System, q: Float[Array, " nq"]) -> Iterator[Check]:
    """Return the checks of the collider of a robot's pair of shapes.

    **Raises:** `ValueError` if the robot does not have exactly one pair.
    """
    pairs = contact_plan(sys).pairs
    if len(pairs) != 1:
        raise ValueError(
            f"The robot has {len(pairs)} pairs of shapes that can touch: give one with a "
            "single pair."
        )
    return bind(ColliderKit(sys, q), LAWS)


def check_collider(
    sys: System,
    q: Float[Array, " nq"],
    expected_failures: Mapping[str, str] = {},
) -> Report:
    """Check the contact points of a pair of shapes, and their derivatives.

    All checks use double precision. Check several configurations: shapes that are apart
    but within their margin, touching shapes, and deep penetration.

    **Arguments:**

    - `sys`: a robot with one pair of shapes that can touch.
    - `q`: coordinates in which they touch.
    - `expected_failures`: reasons by name of check.

    **Returns:** the outcome of each check.

    **Raises:** `ConformanceError`, which lists every failure with advice, if a check
    fails or passes unexpectedly; `ValueError` if the robot does not have exactly one
    pair, or a name is unknown.
    """
    checks = collider_checks(sys, q)
    geoms = sys.geoms.kinds
    one, two = contact_plan(sys).pairs[0][:2]
    return run_checks(collider_of(geoms[one], geoms[two]), checks, expected_failures)
