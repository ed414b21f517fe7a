r"""Newton's method on MuJoCo's convex problem, and its implicit derivative.

$\ddot q = \arg\min_a \tfrac12 (a - a_0)^T M (a - a_0) + s(J a - a_\mathrm{ref})$

In each step the costs of all rows are replaced by quadratic models, and the minimum is one
linear solve, $(M + J^T W J)\,a = \tau + J^T f_0$. Most costs are piecewise quadratic: with
full steps, Newton's method has then converged, to rounding, when no row changes to another
piece. Problems that full steps do not solve continue with a line search, which
always converges because the cost is convex.

The implicit function theorem gives the derivative at the solution: one more solve with the
same matrix.
"""

import functools as ft
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from .._each import pushed
from ..kinematics._recursion import add
from ..model import Tree
from ..spatial import Motion
from ._jacobians import join, Terms
from ._line_search import least_share
from ._problem import (
    node_motion,
    Problem,
    residual,
    smooth_residual,
    solver,
    sum_terms,
)
from ._rows import AbstractSolverRows, Line


SolverRows = tuple[AbstractSolverRows, ...]


class Newton(eqx.Module):
    """Settings of the solver.

    **Arguments:**

    - `max_full_steps`: largest number of full Newton steps; most problems need 2 to 5.
        None: 10, or 2 if some cost is not piecewise quadratic (elliptic cones), where full
        steps may alternate between two points.
    - `max_searched_steps`: largest number of steps with a line search after these.
    - `tolerance`: change of a row's force, relative to the terms that it is the sum of, up
        to which a problem counts as solved. None: 64 times the rounding of the precision.
    """

    max_full_steps: int | None = eqx.field(static=True, default=None)
    max_searched_steps: int = eqx.field(static=True, default=40)
    tolerance: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        full = self.max_full_steps
        if (full is not None and full < 1) or self.max_searched_steps < 0:
            raise ValueError(
                "`Newton` needs at least one full step and a non-negative number of "
                f"searched steps, got {full} and {self.max_searched_steps}."
            )
        if self.tolerance is not None and not self.tolerance > 0.0:
            raise ValueError(
                f"`Newton.tolerance` must be positive or None, got {self.tolerance}."
            )

    def full_steps(self, rows: SolverRows) -> int:
        """Return the largest number of full steps for given constraints."""
        if self.max_full_steps is not None:
            return self.max_full_steps
        return 10 if all(each.piecewise_quadratic for each in rows) else 2

    def rounding(self, dtype) -> float:
        """Return the tolerance in a given precision."""
        if self.tolerance is not None:
            return self.tolerance
        return 64 * float(jnp.finfo(dtype).eps)


class Solution(NamedTuple):
    """Solution of a convex problem.

    - `qdd`: joint accelerations.
    - `pieces`: for all rows, the pieces of their costs there.
    - `converged`: true if the solver has converged.
    """

    qdd: Any
    pieces: tuple[Any, ...]
    converged: Any


def constrained(tree: Tree, problem: Problem, settings: Newton) -> Solution:
    """Solve the convex problem; see the top of the module."""
    solution = _solution(tree, lax.stop_gradient(problem), settings)
    return solution._replace(qdd=_implicit(tree, problem, solution))


@ft.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _implicit(tree: Tree, problem: Problem, solution: Solution):
    """Return the accelerations of a solution, with their derivative by the problem."""
    return solution.qdd


@ft.partial(_implicit.defjvp, symbolic_zeros=True)
def _implicit_jvp(tree, primals, tangents):
    (problem, solution), (rate, _) = primals, tangents
    qdd = _implicit(tree, problem, solution)
    at_solution = lambda p: residual(tree, p, qdd, solution.pieces)
    right = pushed(at_solution, (problem,), (rate,))
    return qdd, implicit_solve(tree, problem, solution.pieces, right)


def implicit_solve(tree: Tree, problem: Problem, pieces: tuple[Any, ...], right):
    r"""Compute $(M + J^T W J)^{-1}$ times `right`, differentiable in any mode and
    order."""

    def times(v):
        at = lambda a: -residual(tree, problem, a, pieces)
        return jax.jvp(at, (jnp.zeros_like(v),), (v,))[1]

    pairs = zip(problem.rows, pieces, strict=True)
    terms = join([rows.stiffness(piece) for rows, piece in pairs])
    invert = solver(tree, problem, terms)
    inverse = lambda _, b: invert(b, None)[0]
    return lax.custom_linear_solve(times, right, inverse, symmetric=True)


class _Iterate(NamedTuple):
    """An iterate of Newton's method.

    - `qdd`: joint accelerations.
    - `models`: models of the costs of all rows there.
    - `unsolved`: true if the models have changed in every step so far.
    - `count`: number of steps.
    """

    qdd: Any
    models: tuple[Any, ...]
    unsolved: Any
    count: Any


def _solution(tree: Tree, problem: Problem, settings: Newton) -> Solution:
    if not problem.rows:
        invert = solver(tree, problem, Terms())
        qdd = invert(problem.tau, problem.force)[0]
        return Solution(qdd, (), jnp.ones(qdd.shape[1:], bool))
    rows = tuple(each.for_solver() for each in problem.rows)
    last = settings.full_steps(rows) + settings.max_searched_steps
    going = lambda now: jnp.any(now.unsolved) & (now.count < last)
    step = ft.partial(_step, tree, problem, rows, settings)
    now = lax.while_loop(going, step, _first_iterate(problem, rows))
    motion = node_motion(tree, problem.kin, now.qdd)
    pieces = tuple(
        each.pieces(each.residuals(motion, now.qdd)) for each in problem.rows
    )
    finite = jnp.all(jnp.isfinite(now.qdd), axis=0)
    return Solution(now.qdd, pieces, ~now.unsolved & finite)


def _first_iterate(problem: Problem, rows: SolverRows) -> _Iterate:
    """Start at zero acceleration."""
    qdd = jnp.zeros_like(problem.tau)
    models = tuple(each.first_model(problem.tau) for each in rows)
    return _Iterate(qdd, models, jnp.ones(qdd.shape[1:], bool), 0)


class _Point(NamedTuple):
    """End of a step.

    - `qdd`, `motion`: joint accelerations, and motion of the nodes.
    - `partial`: true if it is short of the minimum of the models.
    - `moves`: true if it is longer than rounding.
    """

    qdd: Any
    motion: Motion
    partial: Any
    moves: Any


def _step(
    tree: Tree, problem: Problem, rows: SolverRows, settings: Newton, now: _Iterate
) -> _Iterate:
    """Go to the minimum of the models; after `max_full_steps`, to the least cost on the
    way there."""
    end, motion = _minimum(tree, problem, rows, now)
    tolerance = settings.rounding(end.dtype)
    no = jnp.zeros(end.shape[1:], bool)
    there = _Point(end, motion, no, ~no)
    search = lambda: _searched(tree, problem, rows, now, end, tolerance)
    short = now.count >= settings.full_steps(rows)
    new = (
        lax.cond(short, search, lambda: there) if settings.max_searched_steps else there
    )
    models, changed = [], new.partial
    for each, old in zip(rows, now.models, strict=True):
        model, moved = each.next_model(old, now.qdd, new.qdd, new.motion, tolerance)
        models.append(model)
        changed = moved | changed
    # Of a batch of problems, those that are solved stay as they are.
    qdd = jnp.where(now.unsolved, new.qdd, now.qdd)
    unsolved = now.unsolved & changed & new.moves
    return _Iterate(qdd, tuple(models), unsolved, now.count + 1)


def _searched(
    tree: Tree,
    problem: Problem,
    rows: SolverRows,
    now: _Iterate,
    end,
    tolerance: float,
) -> _Point:
    """Find the least cost between an iterate and the minimum of its models."""
    search = _search(tree, problem, rows, now.qdd, end)
    line = search.line
    largest = lambda x: jnp.max(jnp.abs(x), axis=0)
    # Costs along a shorter step differ by rounding, and so does what is left after it.
    moves = largest(line.dqdd) > math.sqrt(tolerance) * (1.0 + largest(end))
    share = jnp.where(moves, _line_search(rows, search), 1.0)
    along = lambda a, b: a + share[None] * b
    motion = jtu.tree_map(along, line.motion, line.dmotion)
    return _Point(along(now.qdd, line.dqdd), motion, share < 1.0, moves)


def _minimum(tree: Tree, problem: Problem, rows: SolverRows, now: _Iterate):
    """Compute the minimum of the quadratic models, and the motion of each node there."""
    pairs = zip(rows, now.models, strict=True)
    forces, stiffness = zip(*(each.newton_terms(model) for each, model in pairs))
    on_nodes, tau = sum_terms(tree, join(forces), problem.tau)
    invert = solver(tree, problem, join(stiffness))
    return invert(problem.tau + tau, add(problem.force, on_nodes))


class _Search(NamedTuple):
    r"""A line of accelerations, and what its slope depends on.

    - `line`: the line.
    - `left`, `dleft`: $\tau - M a$ at the start, without constraints, and its change.
    - `on_line`: data of all rows on the line.
    """

    line: Line
    left: Any
    dleft: Any
    on_line: tuple[Any, ...]


def _search(tree: Tree, problem: Problem, rows: SolverRows, start, end) -> _Search:
    def at(qdd):
        motion = node_motion(tree, problem.kin, qdd)
        return motion, smooth_residual(tree, problem, motion, qdd)

    first, last = at(start), at(end)
    dmotion, dleft = jtu.tree_map(jnp.subtract, last, first)
    line = Line(start, first[0], end - start, dmotion)
    on_line = tuple(each.on_line(line) for each in rows)
    return _Search(line, first[1], dleft, on_line)


def _slope(rows: SolverRows, search: _Search, share):
    """Compute the slope of the cost on a line."""
    work = search.line.dqdd * (search.left + share[None] * search.dleft)
    total = jnp.sum(work, axis=0)
    for each, on_line in zip(rows, search.on_line, strict=True):
        total = total + each.work(on_line, share)
    return -total


def _line_search(rows: SolverRows, search: _Search):
    """Compute where the cost is least on a line, as a share of its length."""
    one = jnp.ones_like(search.left[0])
    return least_share(ft.partial(_slope, rows, search), one)
