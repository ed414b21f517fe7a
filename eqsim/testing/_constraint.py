"""Checks of constraints."""

import functools as ft
from collections.abc import Iterator, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from ..constraint import AbstractConstraint, AbstractRows, RobotData
from ..constraint.newton import node_motion, Problem
from ..constraint.rows import Terms, total
from ..dynamics.articulated import project
from ..dynamics.joint_space import symmetric_matrix
from ..kinematics.link_motion import ascend
from ..model import State, System, tree
from ..pipelines import Generalized
from ..pipelines.forward_dynamics import forward, prepare, Settings, StepInputs
from ._check import bind, Check, Law, NotApplicable, Report, run_checks
from ._gradients import check_gradients
from ._pipeline_kit import double
from ._tools import in_precision, require


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
        return forward(prepare(sys, settings), inputs)

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

    Compare `residuals` with `transpose`: signs, scales and nodes must be the same.
    """
    for rows in kit.rows():
        (motion, qdd), (still, zero) = kit.acceleration(0), kit.acceleration(1)
        x, rest = rows.residuals(motion, qdd), rows.residuals(still, zero)
        force = tuple(jr.normal(jr.key(k), y.shape) for k, y in enumerate(x))
        work = sum(jnp.sum((a - b) * f) for a, b, f in zip(x, rest, force))
        power = jnp.sum((qdd - zero) * kit.joint_forces(rows.transpose(force)))
        _close(power, work, "work of forces on joints and on residuals")


def convex(kit: ConstraintKit) -> None:
    """The cost is convex: forces do not increase with the residuals.

    The force must be the negative derivative of a convex cost; otherwise the solver
    need not converge.
    """
    for rows in kit.rows():
        ends = [rows.residuals(*kit.acceleration(k)) for k in range(8)]
        for one in ends:
            for two in ends:
                forces = [rows.forces(rows.pieces(x), x) for x in (one, two)]
                work = sum(
                    float(jnp.sum((a - b) * (f - g)))
                    for a, b, f, g in zip(one, two, *forces, strict=True)
                )
                require(work <= 1e-6, f"force times residual grows by {work:.2g}")


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


def gradients(kit: ConstraintKit) -> None:
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


LAWS = (
    Law(double(adjoint)),
    Law(double(convex)),
    Law(double(stiffness), ("adjoint",)),
    Law(double(converges), ("convex",)),
    Law(double(gradients), ("converges", "stiffness")),
)


def constraint_checks(
    constraint: AbstractConstraint, sys: System, state: State
) -> Iterator[Check]:
    """Return the checks of a constraint on a robot, in a state in which it is active.

    **Raises:** `TypeError` if it is not a constraint.
    """
    if not isinstance(constraint, AbstractConstraint):
        raise TypeError(f"Expected an `AbstractConstraint`, got {constraint!r}.")
    return bind(ConstraintKit(constraint, sys, state), LAWS)


def check_constraint(
    constraint: AbstractConstraint,
    sys: System,
    state: State,
    expected_failures: Mapping[str, str] = {},
) -> Report:
    """Check that a constraint fulfills the assumptions of the solver, and is
    differentiable.

    All checks use double precision, with this constraint as the only one.

    **Arguments:**

    - `constraint`: constraint to check.
    - `sys`, `state`: robot with this constraint, in a state in which it is active.
    - `expected_failures`: reasons by name of check, in addition to those of the class
        attribute `__eqsim_expected_failures__`.

    **Returns:** the outcome of each check.

    **Raises:** `ConformanceError`, which lists every failure with advice, if a check
    fails or passes unexpectedly; `ValueError` if a name is unknown.
    """
    checks = constraint_checks(constraint, sys, state)
    return run_checks(constraint, checks, expected_failures)
