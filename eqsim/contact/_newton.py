r"""Newton's method on MuJoCo's convex problem, and its implicit derivative.

$\ddot q = \arg\min_a \tfrac12 (a - a_0)^T M (a - a_0) + s(J a - a_\mathrm{ref})$

The cost is piecewise quadratic. For a known active set the minimum is one linear solve,
$(M + J^T W J)\,a = \tau + J^T f_0$; Newton's method with full steps alternates between
solving and updating the active set, and has converged, to rounding, when the set no
longer changes. Problems that full steps do not solve continue with an exact line
search, which always converges because the cost is convex.

At the solution the active set is constant to first order, and the implicit function
theorem gives the derivative: one more solve with the same matrix.
"""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..dynamics._articulated import factor, project, solve
from ..dynamics._dense import dense_factor, dense_solve, joint_space_matrix
from ..kinematics._axes import dof_axes
from ..kinematics._forward import joint_motion, Kinematics
from ..kinematics._recursion import ascend, descend
from ..model import concatenate, put
from ..spatial import Force, Motion, RigidInertia
from ._active import (
    active_set,
    changes,
    constraint_forces,
    dof_stiffness,
    forces,
    generalized,
    node_stiffness,
    offsets,
    residuals,
    stiffnesses,
    Values,
)
from ._moving import Coupling, full_matrix, newton_coupling, weighted_coupling
from ._rows import no_points, Rows
from ._structure import Structure


_FULL_STEPS = 10
_SEARCHED_STEPS = 40
_BISECTIONS = 40


class Problem(NamedTuple):
    """One convex problem.

    - `kin`: poses and motion axes.
    - `inertia`: inertia of each node.
    - `force`: force on each node at zero joint acceleration, without constraints.
    - `tau`: joint forces without constraints, `(nv, *batch)`.
    - `armature`: armature, `(nv, *batch)`.
    - `rows`: constraints.
    """

    kin: Kinematics
    inertia: RigidInertia
    force: Force
    tau: Any
    armature: Any
    rows: Rows


class Solution(NamedTuple):
    """Joint accelerations, and the active set there."""

    qdd: Any
    active: Values


def residual(structure: Structure, problem: Problem, qdd, active: Values):
    r"""Compute $\tau + J^T f(J a) - M a$ for a fixed active set: zero at the solution."""
    motion = node_motion(structure, problem.kin, qdd)
    x = residuals(structure, problem.rows, motion, qdd)
    force = forces(problem.rows, active, x)
    constrained = constraint_forces(structure, problem.kin, problem.rows, force)
    return _smooth_residual(structure, problem, motion, qdd) + constrained


def node_motion(structure: Structure, kin: Kinematics, qdd) -> Motion:
    """Compute the motion $J a$ of each node."""
    tree = structure.tree
    return descend(tree, joint_motion(tree, kin, qdd))


def _smooth_residual(structure: Structure, problem: Problem, motion: Motion, qdd):
    r"""Compute $\tau - M a$, without constraints."""
    tree = structure.tree
    force = ascend(tree, problem.force - (problem.inertia @ motion))
    tau = problem.tau - problem.armature * qdd
    return tau + project(tree, problem.kin, force)


def solver(
    structure: Structure, problem: Problem, w: Values, coupling=None
) -> Callable:
    """Factorize $M + J^T W J$.

    **Arguments:**

    - `w`: weights of the rows that are stiff.
    - `coupling`: contribution of contacts between moving links, a lower triangle.

    **Returns:** a function of joint forces and node forces that computes the joint
    acceleration and the motion of each node.
    """
    tree, kin = structure.tree, problem.kin
    armature = problem.armature + dof_stiffness(structure, w)
    stiffness = node_stiffness(structure, problem.rows, w)
    if coupling is None and not structure.balls.joints:
        factored = factor(tree, kin, problem.inertia, armature, stiffness)
        return lambda tau, force: solve(tree, kin, factored, tau, force)
    inertia = problem.inertia.articulated() + stiffness
    matrix = joint_space_matrix(tree, dof_axes(tree, kin), inertia, armature)
    if coupling is not None:
        matrix = matrix + full_matrix(coupling, structure.nv)
    if structure.balls.joints:
        jac = _ball_jacobian(structure, problem.rows)
        weighted = jac * w.ball[:, None]
        matrix = matrix + jnp.sum(jac[:, :, None] * weighted[:, None], axis=0)
    factors = dense_factor(matrix)

    def dense(tau, force):
        if force is not None:
            tau = tau + project(tree, kin, ascend(tree, force))
        qdd = dense_solve(factors, tau)
        return qdd, node_motion(structure, kin, qdd)

    return dense


def _ball_jacobian(structure: Structure, rows: Rows):
    """Return the Jacobian of the limits of spherical joints, `(nball, nv, *batch)`."""
    dofs, nv = structure.balls.dofs, structure.nv
    index = [k * nv + dof + axis for axis in range(3) for k, dof in enumerate(dofs)]
    entries = put(concatenate(rows.ball.axis), index, len(dofs) * nv)
    return entries.reshape(len(dofs), nv, *entries.shape[1:])


def constrained(structure: Structure, problem: Problem) -> Solution:
    """Solve the convex problem; see the top of the module."""
    solution = _solution(structure, lax.stop_gradient(problem))
    return solution._replace(qdd=_implicit(structure, problem, solution))


@ft.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _implicit(structure: Structure, problem: Problem, solution: Solution):
    """Return the accelerations of a solution, with their derivative by the problem."""
    return solution.qdd


@_implicit.defjvp
def _implicit_jvp(structure, primals, tangents):
    (problem, solution), (rate, _) = primals, tangents
    qdd = _implicit(structure, problem, solution)
    at_solution = lambda p: residual(structure, p, qdd, solution.active)
    _, right = jax.jvp(at_solution, (problem,), (rate,))
    return qdd, implicit_solve(structure, problem, solution.active, right)


def implicit_solve(structure: Structure, problem: Problem, active: Values, right):
    r"""Compute $(M + J^T W J)^{-1}$ times `right`, differentiable in any mode and
    order."""

    def times(v):
        at = lambda a: -residual(structure, problem, a, active)
        return jax.jvp(at, (jnp.zeros_like(v),), (v,))[1]

    w, coupling = stiffnesses(problem.rows, active), None
    if structure.moving:
        axes = dof_axes(structure.tree, problem.kin)
        coupling = weighted_coupling(structure, axes, problem.rows.moving, w.moving)
    invert = solver(structure, problem, w, coupling)
    inverse = lambda _, b: invert(b, None)[0]
    return lax.custom_linear_solve(times, right, inverse, symmetric=True)


class _Iterate(NamedTuple):
    """An iterate of Newton's method.

    - `qdd`: joint accelerations.
    - `active`: active set there, without contacts between moving links.
    - `coupling`: contribution of these, None if there are none.
    - `unsolved`: whether the active set has changed in every step so far.
    - `count`: number of steps.
    """

    qdd: Any
    active: Values
    coupling: Coupling | None
    unsolved: Any
    count: Any


def _solution(structure: Structure, problem: Problem) -> Solution:
    if not structure.has_rows:
        active = active_set(problem.rows, offsets(problem.rows))
        invert = solver(structure, problem, stiffnesses(problem.rows, active))
        return Solution(invert(problem.tau, problem.force)[0], active)
    full, searched = _steps(structure, problem)
    last = _FULL_STEPS + _SEARCHED_STEPS
    now = _first_iterate(structure, problem)
    now = lax.while_loop(_is_unsolved(_FULL_STEPS), full, now)
    now = lax.while_loop(_is_unsolved(last), searched, now)
    motion = node_motion(structure, problem.kin, now.qdd)
    x = residuals(structure, problem.rows, motion, now.qdd)
    return Solution(now.qdd, active_set(problem.rows, x))


def _is_unsolved(last: int) -> Callable:
    return lambda now: jnp.any(now.unsolved) & (now.count < last)


def _first_iterate(structure: Structure, problem: Problem) -> _Iterate:
    """Start at zero acceleration."""
    rows = _without_moving(structure, problem)[1].rows
    qdd = jnp.zeros_like(problem.tau)
    coupling = _coupling(structure, problem, qdd, qdd)
    unsolved = jnp.ones(qdd.shape[1:], bool)
    return _Iterate(qdd, active_set(rows, offsets(rows)), coupling, unsolved, 0)


def _without_moving(structure: Structure, problem: Problem):
    """Return the problem without contacts between moving links."""
    rows = problem.rows._replace(moving=no_points(problem.tau))
    return dataclasses.replace(structure, moving=()), problem._replace(rows=rows)


def _coupling(structure: Structure, problem: Problem, before, qdd) -> Coupling | None:
    """Return the contribution of contacts between moving links, if there can be any."""
    if not structure.moving:
        return None
    axes = dof_axes(structure.tree, problem.kin)
    return newton_coupling(structure, axes, problem.rows.moving, before, qdd)


def _steps(structure: Structure, problem: Problem) -> tuple[Callable, Callable]:
    """Return a full step of Newton's method, and one with a line search."""
    outer, rest = _without_moving(structure, problem)

    def full(now: _Iterate) -> _Iterate:
        qdd, motion = _minimum(outer, rest, now)
        x = residuals(outer, rest.rows, motion, qdd)
        return accept(now, qdd, x, False)

    def searched(now: _Iterate) -> _Iterate:
        end, _ = _minimum(outer, rest, now)
        line = _line(structure, problem, now.qdd, end)
        share = _line_search(problem.rows, line)
        qdd = now.qdd + share[None] * line.dqdd
        x = jtu.tree_map(lambda a, b: a + share[None] * b, line.x, line.dx)
        x = x._replace(moving=tuple(y[:0] for y in x.moving))
        return accept(now, qdd, x, share < 1.0)

    def accept(now: _Iterate, qdd, x: Values, partial) -> _Iterate:
        active, changed = _updated(rest.rows, now.active, x)
        coupling = _coupling(structure, problem, now.qdd, qdd)
        if coupling is not None:
            changed = changed | coupling.changed
        # Of a batch of problems, those that are solved stay as they are.
        qdd = jnp.where(now.unsolved, qdd, now.qdd)
        unsolved = now.unsolved & (changed | partial)
        return _Iterate(qdd, active, coupling, unsolved, now.count + 1)

    return full, searched


def _minimum(structure: Structure, problem: Problem, now: _Iterate):
    """Compute the minimum for a fixed active set, and the motion of each node there."""
    w = stiffnesses(problem.rows, now.active)
    force = forces(problem.rows, now.active, offsets(problem.rows))
    on_nodes, on_joints = generalized(structure, problem.rows, force)
    force, tau, matrix = problem.force + on_nodes, problem.tau + on_joints, None
    if now.coupling is not None:
        tau, matrix = tau + now.coupling.tau, now.coupling.matrix
    return solver(structure, problem, w, matrix)(tau, force)


def _updated(rows: Rows, old: Values, x: Values):
    """Return the active set at `x`, and whether it has changed beyond rounding."""
    scale = jtu.tree_map(jnp.abs, offsets(rows))
    new = active_set(rows, x)
    real = jtu.tree_map(changes, new, old, x, scale)
    active = jtu.tree_map(jnp.where, real, new, old)
    changed = [jnp.any(each, axis=0) for each in jtu.tree_leaves(real)]
    return active, ft.reduce(jnp.logical_or, changed)


class _Line(NamedTuple):
    r"""A line from one acceleration to another: values at the start, and changes up to
    the end.

    - `dqdd`: acceleration.
    - `left`, `dleft`: $\tau - M a$, without constraints.
    - `x`, `dx`: residuals of all rows.
    """

    dqdd: Any
    left: Any
    dleft: Any
    x: Values
    dx: Values


def _line(structure: Structure, problem: Problem, start, end) -> _Line:
    def at(qdd):
        motion = node_motion(structure, problem.kin, qdd)
        x = residuals(structure, problem.rows, motion, qdd)
        return x, _smooth_residual(structure, problem, motion, qdd)

    (x, left), (x_end, left_end) = at(start), at(end)
    dx = jtu.tree_map(jnp.subtract, x_end, x)
    return _Line(end - start, left, left_end - left, x, dx)


def _line_search(rows: Rows, line: _Line):
    """Compute where the cost is least on a line, as a share of its length."""

    def slope(share):
        x = jtu.tree_map(lambda a, b: a + share[None] * b, line.x, line.dx)
        force = forces(rows, active_set(rows, x), x)
        pairs = zip(jtu.tree_leaves(line.dx), jtu.tree_leaves(force), strict=True)
        work = sum(jnp.sum(a * b, axis=0) for a, b in pairs)
        return -jnp.sum(line.dqdd * (line.left + share[None] * line.dleft), 0) - work

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0.0
        return jnp.where(rising, low, middle), jnp.where(rising, middle, high)

    one = jnp.ones_like(line.dqdd[0])
    low, high = lax.fori_loop(0, _BISECTIONS, bisect, (0.0 * one, one))
    return jnp.where(slope(one) <= 0.0, 1.0, 0.5 * (low + high))
