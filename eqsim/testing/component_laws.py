"""Laws of colliders, constraints and actuator models, in double precision, and the check that
physics compiles to kernels.

A `ColliderKit` is a robot with one pair of shapes in one configuration, a `ConstraintKit` a
robot with one constraint in one state, an `ActuatorModelKit` a robot with one model.
`COLLIDER_LAWS`, `CONSTRAINT_LAWS` and `ACTUATOR_MODEL_LAWS` list the laws.
The docstring of a law is its requirement, and advice for the case that it fails.
"""

import functools as ft
import itertools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from .._batching import batch_last
from .._kernels import recorded_fallbacks
from ..collision import contact_plan, detect
from ..collision.detection import geom_frames
from ..constraint import AbstractConstraint, AbstractRows, RobotData
from ..constraint.listed_contacts import ListedContacts
from ..constraint.newton import node_motion, Problem
from ..constraint.rows import Terms, total
from ..dynamics.articulated import project
from ..dynamics.joint_space import symmetric_matrix
from ..kinematics import forward as link_poses, integrate
from ..kinematics.link_motion import ascend, frames, kinematics
from ..model import AbstractActuatorModel, JointKind, State, System, tree
from ..pipelines import Generalized
from ..pipelines.forward_dynamics import (
    derive,
    forward_dynamics,
    Prepared,
    Settings,
    StepInputs,
)
from ..spatial import Mat3, multiply, quaternion_matrix
from ..spatial.rotations import matrix_quaternion
from ..spatial.vectors import stack
from .comparisons import (
    check_gradients,
    in_precision,
    NotApplicable,
    require,
    require_equal,
    require_finite,
)


# --- Colliders ---


def check_kernels(fn: Callable, *args) -> None:
    """Check that all physics in a function compiles to kernels on the CPU.

    Physics that the kernel compiler does not support is compiled by XLA: with the same
    results up to rounding, but many times slower.

    **Arguments:**

    - `fn`: a function that `eqx.filter_jit` can compile. It is lowered, not run.
    - `args`: its arguments.

    **Raises:** `AssertionError` with the name of each function that XLA compiles, and
    the reason.
    """
    with recorded_fallbacks() as notes:
        # A new function object, because a function that has been lowered is not lowered
        # again.
        eqx.filter_jit(lambda *xs: fn(*xs)).lower(*args)
    lines = [f"`{name}`: {reason}" for name, reason in notes.items()]
    assert not lines, "XLA compiles instead of kernels: " + "; ".join(lines)


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
        poses = link_poses(*self.parts)
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


def _near(found, expected, what: str, tolerance: float = 1e-7) -> None:
    error = float(np.max(np.abs(np.asarray(found) - np.asarray(expected)), initial=0.0))
    require(error <= tolerance, f"{what}: they differ by {error:.2g}")


def orthonormal(kit: ColliderKit) -> None:
    """Frames of contacts are orthonormal.

    Normalize the normal, also for concentric shapes.
    """
    for own in kit.found[2]:
        _near(own @ own.T, np.eye(3), "the frame times its transpose, and one", 1e-10)


def rigid(kit: ColliderKit) -> None:
    """Contact points move with the shapes when both are moved and rotated.

    The function must not depend on directions and positions of the world.
    """
    sys, q = _displaced(*kit.parts)
    dist, pos, frame = existing_points(sys, q)
    rot = _matrix(_TURN / np.linalg.norm(_TURN))
    require(len(dist) == len(kit.found[0]), "the number of points changes")
    _near(dist, kit.found[0], "distances before and after")
    _near(pos, kit.found[1] @ rot.T + _MOVE, "positions before and after")
    _near(frame[:, 0], kit.found[2][:, 0] @ rot.T, "normals before and after")


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
    _near(rate, 1.0, "the rate of the distance, and one", 0.01)


def collider_gradients(kit: ColliderKit) -> None:
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


# --- Constraints ---


class ConstraintKit:
    """A constraint that is the only one of a robot, in one state, in double
    precision."""

    def __init__(self, constraint: AbstractConstraint, sys: System, state: State):
        self.given = constraint, sys, state

    @ft.cached_property
    def parts(self) -> tuple[AbstractConstraint, System, State]:
        """Constraint, robot and state in double precision."""
        constraint, sys, state = in_precision(self.given, jnp.float64)
        return constraint, sys, state

    @ft.cached_property
    def pipeline(self) -> Generalized:
        """`Generalized` with this constraint alone."""
        return Generalized(constraints=(self.parts[0],))

    @ft.cached_property
    def solved(self) -> RobotData:
        """The convex problem of the state, and its solution; one batch axis."""
        constraint, sys, state = self.parts
        last = lambda x: jtu.tree_map(lambda y: y[..., None], x)
        sys, state, constraint = last((sys, state, constraint))
        settings = Settings((constraint,), self.pipeline.solver, None)
        ctrl = jnp.zeros((sys.nu, 1))
        inputs = StepInputs(state.q, state.qd, state.act, ctrl, None)
        return forward_dynamics(Prepared(sys, settings, derive(sys, settings)), inputs)

    @property
    def problem(self) -> Problem:
        """The convex problem."""
        return self.solved.problem

    def rows(self) -> tuple[AbstractRows, ...]:
        """The rows of the constraint.

        **Raises:** `NotApplicable` if the robot has none.
        """
        rows = self.problem.rows.get(type(self.parts[0]))
        if not rows:
            raise NotApplicable("the robot has no such constraint in this state")
        return rows

    def acceleration(self, seed: int):
        """Draw a joint acceleration, and return the motion of each node as well."""
        kin, nv = self.problem.kin, self.parts[1].nv
        qdd = 10.0 * jr.normal(jr.key(seed), (nv, 1))
        return node_motion(tree(self.parts[1]), kin, qdd), qdd

    def joint_forces(self, terms: Terms):
        """Convert forces on nodes, on degrees of freedom and dense ones to joint
        forces."""
        nodes, nv = tree(self.parts[1]), self.parts[1].nv
        tau = jnp.zeros((nv, 1))
        on_dofs, on_nodes = total(terms.dofs, nv), total(terms.nodes, nodes.size)
        tau = tau if on_dofs is None else tau + on_dofs
        if on_nodes is None:
            return tau
        return tau + project(nodes, self.problem.kin, ascend(nodes, on_nodes))

    def stiffness_times(self, terms: Terms, motion, v):
        """Multiply a stiffness by a joint acceleration."""
        nodes, nv = tree(self.parts[1]), self.parts[1].nv
        out, on_nodes = jnp.zeros((nv, 1)), total(terms.nodes, nodes.size)
        if terms.dofs:
            out = out + total(terms.dofs, nv) * v
        for values, places in terms.entries:
            matrix = symmetric_matrix(values, places, nv)
            out = out + jnp.sum(matrix * v[None], axis=1)
        if on_nodes is None:
            return out
        return out + project(nodes, self.problem.kin, ascend(nodes, on_nodes @ motion))


def _close(found, expected, what: str, tolerance: float = 1e-8) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    size = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    error = float(np.max(np.abs(found - expected), initial=0.0)) / size
    require(error <= tolerance, f"{what}: they differ by {error:.2g}, relatively")


def adjoint(kit: ConstraintKit) -> None:
    r"""Jacobian and transpose agree: $(J a) \cdot f = a \cdot (J^T f)$.

    Compare `residuals` with `transpose`: signs, scales and nodes must be the same. Listed
    contacts are left out, as their residuals are motions of nodes.
    """
    for rows in kit.rows():
        if isinstance(rows, ListedContacts):
            continue
        (motion, qdd), (still, zero) = kit.acceleration(0), kit.acceleration(1)
        x, rest = rows.residuals(motion, qdd), rows.residuals(still, zero)
        force = tuple(jr.normal(jr.key(k), y.shape) for k, y in enumerate(x))
        work = sum(jnp.sum((a - b) * f) for a, b, f in zip(x, rest, force))
        power = jnp.sum((qdd - zero) * kit.joint_forces(rows.transpose(force)))
        _close(power, work, "work of forces on joints and on residuals")


def convex(kit: ConstraintKit) -> None:
    """The cost is convex: forces do not increase with the accelerations.

    The force must be the negative derivative of a convex cost; otherwise the solver
    need not converge.
    """
    for rows in kit.rows():
        ends = []
        for number in range(8):
            motion, qdd = kit.acceleration(number)
            x = rows.residuals(motion, qdd)
            force = kit.joint_forces(rows.transpose(rows.forces(rows.pieces(x), x)))
            ends.append((qdd, force))
        for (a, f), (b, g) in itertools.combinations(ends, 2):
            work = float(jnp.sum((a - b) * (f - g)))
            require(work <= 1e-6, f"force times acceleration grows by {work:.2g}")


def stiffness(kit: ConstraintKit) -> None:
    r"""`stiffness` is $-J^T (\partial f / \partial x) J$ on the pieces of a residual.

    Derivatives of solutions use `stiffness`; compare it with the derivative of
    `forces`.
    """
    for rows in kit.rows():
        motion, qdd = kit.acceleration(2)
        pieces = rows.pieces(rows.residuals(motion, qdd))
        nodes, kin = tree(kit.parts[1]), kit.problem.kin

        def joint_forces(a, rows=rows, pieces=pieces):
            x = rows.residuals(node_motion(nodes, kin, a), a)
            return kit.joint_forces(rows.transpose(rows.forces(pieces, x)))

        moved, v = kit.acceleration(3)
        _, expected = jax.jvp(joint_forces, (qdd,), (v,))
        found = -kit.stiffness_times(rows.stiffness(pieces), moved, v)
        _close(found, expected, "stiffness times a vector and the change of forces")


def converges(kit: ConstraintKit) -> None:
    """The solver converges with this constraint alone.

    Check that `model` and `stiffness` describe the same quadratic function, and that
    `update` reports a change until the model holds at the residual.
    """
    _, sys, state = kit.parts
    solved = kit.pipeline.solve(sys, state, jnp.zeros(sys.nu))
    require(bool(solved.converged), "`solve` reports that it has not converged")


def constraint_gradients(kit: ConstraintKit) -> None:
    """Derivatives of a step equal finite differences, with respect to the state and the
    parameters of the constraint and of the robot.

    Check norms, square roots, and `where` with a branch that is not finite.
    """
    constraint, sys, state = kit.parts

    def step(q, qd, constraint, mass):
        robot = eqx.tree_at(lambda s: s.links.mass, sys, mass)
        pipeline = Generalized(constraints=(constraint,))
        new = pipeline.step(robot, State(q, qd, state.act), jnp.zeros(sys.nu))
        return new.q, new.qd

    check_gradients(step, state.q, state.qd, constraint, sys.links.mass, rtol=1e-4)


# --- Actuator models ---


_BATCH = 3


class ActuatorModelKit:
    """A model of some actuators of a robot."""

    def __init__(self, model: AbstractActuatorModel, sys: System, names: Sequence[str]):
        self.given = model, sys
        self.names = names

    @ft.cached_property
    def robot(self) -> System:
        """The robot with the model, in double precision."""
        model, sys = in_precision(self.given, jnp.float64)
        return sys.with_actuator_model(self.names, model)

    def inputs(self, seed: int, size: float = 1.0) -> tuple[State, jax.Array]:
        """Draw a state and a control."""
        sys, keys = self.robot, jr.split(jr.key(seed), 4)
        move, qd, act, ctrl = (
            size * jr.normal(key, (count,))
            for key, count in zip(keys, (sys.nv, sys.nv, sys.na, sys.nu))
        )
        q = integrate(sys, sys.joints.ref, jnp.clip(move, -1.0, 1.0))
        return State(q, qd, act), ctrl


def _step(sys: System, state: State, ctrl) -> State:
    return Generalized().step(sys, state, ctrl)


def actuator_attaches(kit: ActuatorModelKit) -> None:
    """`System.with_actuator_model` accepts the model.

    It must return a state of the shape that `num_states` declares, and a scalar.
    """
    require(kit.robot.actuator_models, "the robot has no model")


def actuator_finite(kit: ActuatorModelKit) -> None:
    """Values and derivatives are finite at rest, and for large inputs.

    Beware of square roots at zero, of divisions, and of exponentials that overflow.
    """
    moves = eqx.filter_jit(_step)
    slopes = eqx.filter_jit(eqx.filter_grad(_total))
    for size in (0.0, 1e3):
        state, ctrl = kit.inputs(0, size)
        require_finite("the next state", moves(kit.robot, state, ctrl))
        require_finite("its derivative", slopes((kit.robot, state, ctrl)))


def _total(args):
    return sum(jnp.sum(x) for x in jtu.tree_leaves(_step(*args)))


def actuator_gradients(kit: ActuatorModelKit) -> None:
    """The derivatives of a step by the parameters and the state of the model, by the
    state of the robot and by controls are right: forward mode = reverse mode = finite
    differences.
    """
    state, ctrl = kit.inputs(1)

    def step(model, move, qd, act, ctrl):
        sys = eqx.tree_at(lambda s: s.actuator_models[-1].model, kit.robot, model)
        new = _step(sys, State(integrate(sys, state.q, move), qd, act), ctrl)
        return new.qd, new.act

    model, still = kit.robot.actuator_models[-1].model, jnp.zeros(kit.robot.nv)
    check_gradients(step, model, still, state.qd, state.act, ctrl, rtol=1e-4)


def actuator_batches(kit: ActuatorModelKit) -> None:
    """A batch gives the results of its members."""
    draws = [kit.inputs(seed) for seed in range(_BATCH)]
    stacked = jtu.tree_map(lambda *x: jnp.stack(x), *draws)
    many = eqx.filter_jit(eqx.filter_vmap(_step, in_axes=(None, 0, 0)))
    found = many(kit.robot, *stacked)
    one = eqx.filter_jit(_step)
    for k, (state, ctrl) in enumerate(draws):
        member = jtu.tree_map(lambda x: x[k], found)
        require_equal("a member", member, one(kit.robot, state, ctrl), 1e-9)


def actuator_kernels(kit: ActuatorModelKit) -> None:
    """The CPU kernels include the model.

    Otherwise a step is compiled by XLA, many times slower. Write the model with element-wise
    operations, sums and products of small matrices.
    """
    state, ctrl = kit.inputs(0)
    many = jtu.tree_map(lambda x: jnp.stack([x] * _BATCH), (state, ctrl))
    step = eqx.filter_vmap(_step, in_axes=(None, 0, 0))
    check_kernels(step, kit.robot, *many)


# A law with the names of those that must hold for it to be meaningful, causes first.
COLLIDER_LAWS = {
    broadcasts: (),
    orthonormal: (),
    rigid: ("orthonormal",),
    separates: ("orthonormal",),
    collider_gradients: ("orthonormal",),
    aligned: (),
    kernels: (),
}
CONSTRAINT_LAWS = {
    adjoint: (),
    convex: (),
    stiffness: ("adjoint",),
    converges: ("convex",),
    constraint_gradients: ("converges", "stiffness"),
}
ACTUATOR_MODEL_LAWS = {
    actuator_attaches: (),
    actuator_finite: ("actuator_attaches",),
    actuator_gradients: ("actuator_finite",),
    actuator_batches: ("actuator_finite",),
    actuator_kernels: ("actuator_attaches",),
}
