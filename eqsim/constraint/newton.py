r"""MuJoCo's convex problem, Newton's method, and the implicit derivative of the solution.

$\ddot q = \arg\min_a \tfrac12 (a - a_0)^T M (a - a_0) + s(J a - a_\mathrm{ref})$

In each step the costs of all rows are replaced by quadratic models, and the minimum is one
linear solve, $(M + J^T W J)\,a = \tau + J^T f_0$. Most costs are piecewise quadratic: with
full steps, Newton's method has then converged, to rounding, when no row changes to another
piece. Problems that full steps do not solve continue with a line search, which
always converges because the cost is convex.

The accelerations are a zero of $M a - \tau - J^T f(J a)$, so the implicit function theorem
gives their derivative: one more solve, with the matrix on the pieces of the solution, which are
fixed there. Forces on them are linear in $a$, except those of elliptic cones, whose models are
tangent to the forces at the solution.

The line search is the Illinois variant of regula falsi: Dowell and Jarratt, *A modified
regula falsi method for computing the root of an equation*, BIT 11, 1971.
"""

import functools as ft
import math
from collections import OrderedDict
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from .._errors import check_count
from .._primitive import symbolic_jvp
from ..dynamics.articulated import factor, project, solve
from ..dynamics.joint_space import joint_space_entries, linear_solver
from ..kinematics.link_motion import (
    add,
    ascend,
    descend,
    dof_axes,
    joint_motion,
    Kinematics,
)
from ..model import Tree
from ..model.arrays import take
from ..spatial import Force, Motion
from ..spatial.vectors import RigidInertia
from .rows import AbstractRows, AbstractSolverRows, join, Line, Terms, total


ByKind = OrderedDict[type, tuple[Any, ...]]
"""A value for each of the rows of each kind of constraint, as in `Problem.rows`."""


# The problem.


class Problem(NamedTuple):
    """One convex problem.

    - `kin`: poses and motion axes.
    - `inertia`: inertia of each node.
    - `force`: force on each node at zero joint acceleration, without constraints.
    - `tau`: joint forces without constraints, `(nv, *batch)`.
    - `armature`: armature, `(nv, *batch)`.
    - `rows`: rows by kind: the class of the constraint, or `TendonInertia`.
    """

    kin: Kinematics
    inertia: RigidInertia
    force: Force
    tau: Any
    armature: Any
    rows: OrderedDict[type, tuple[AbstractRows, ...]]

    @property
    def every_row(self) -> list[AbstractRows]:
        """The rows of all kinds."""
        return [each for own in self.rows.values() for each in own]


def residual(tree: Tree, problem: Problem, qdd, pieces: ByKind):
    r"""Compute $\tau + J^T f(J a) - M a$ on fixed pieces: zero at the solution."""
    motion = node_motion(tree, problem.kin, qdd)
    force = row_forces(problem, motion, qdd, pieces)
    tau = constraint_forces(tree, problem, force)
    return smooth_residual(tree, problem, motion, qdd) + tau


def row_forces(problem: Problem, motion: Motion, qdd, pieces: ByKind) -> ByKind:
    """Compute the forces of all rows on given pieces, `Residual` for each row."""
    force = lambda rows, piece: rows.forces(piece, rows.residuals(motion, qdd))
    return OrderedDict(
        (kind, tuple(map(force, own, pieces[kind])))
        for kind, own in problem.rows.items()
    )


def constraint_forces(tree: Tree, problem: Problem, forces: ByKind):
    """Compute the joint forces $J^T f$ of row forces, `(nv, *batch)`."""
    pairs = zip(problem.every_row, chain(*forces.values()), strict=True)
    terms = join([rows.transpose(force) for rows, force in pairs])
    on_nodes, tau = sum_terms(tree, terms, problem.tau)
    if on_nodes is None:
        return tau
    return tau + project(tree, problem.kin, ascend(tree, on_nodes))


def sum_terms(tree: Tree, terms: Terms, like):
    """Sum forces: on nodes (None: zero), and joint forces."""
    tau = total(terms.dofs, like.shape[0])
    return total(terms.nodes, tree.size), jnp.zeros_like(like) if tau is None else tau


def node_motion(tree: Tree, kin: Kinematics, qdd) -> Motion:
    """Compute the motion $J a$ of each node."""
    return descend(tree, joint_motion(tree, kin, qdd))


def smooth_residual(tree: Tree, problem: Problem, motion: Motion, qdd):
    r"""Compute $\tau - M a$, without constraints."""
    force = ascend(tree, problem.force - (problem.inertia @ motion))
    tau = problem.tau - problem.armature * qdd
    return tau + project(tree, problem.kin, force)


def solver(tree: Tree, problem: Problem, stiffness: Terms) -> Callable:
    r"""Factorize $M + J^T W J$.

    **Arguments:**

    - `stiffness`: $J^T W J$.

    **Returns:** a function of joint forces and node forces that computes the joint
    acceleration and the motion of each node.
    """
    kin, nv = problem.kin, problem.tau.shape[0]
    armature = add(problem.armature, total(stiffness.dofs, nv))
    on_nodes = total(stiffness.nodes, tree.size)
    if not stiffness.entries:
        factored = factor(tree, kin, problem.inertia, armature, on_nodes)
        return lambda tau, force: solve(tree, kin, factored, tau, force)
    inertia = add(problem.inertia.articulated(), on_nodes)
    mass = joint_space_entries(tree, dof_axes(tree, kin), inertia, armature)
    invert = linear_solver(nv, [mass, *stiffness.entries])

    def in_joint_space(tau, force):
        if force is not None:
            tau = tau + project(tree, kin, ascend(tree, force))
        qdd = invert(tau)
        return qdd, node_motion(tree, kin, qdd)

    return in_joint_space


# The solver.


SolverRows = tuple[AbstractSolverRows, ...]

_NARROWINGS = 12
"""Largest number of slopes of a line search, besides those at the ends. After as many, each
second one is in the middle."""


class Newton(eqx.Module):
    """Settings of the solver.

    **Arguments:**

    - `max_full_steps`: largest number of full Newton steps; most problems need 2 to 5.
        None: 5, or 1 if some cost is not piecewise quadratic (elliptic cones), where full
        steps may alternate between two points.
    - `max_searched_steps`: largest number of steps with a line search after these.
    - `tolerance`: change of a row's force, relative to the terms that it is the sum of, up
        to which a problem counts as solved. None: 64 times the rounding of the precision.
    """

    max_full_steps: int | None = eqx.field(static=True, default=None)
    max_searched_steps: int = eqx.field(static=True, default=40)
    tolerance: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        full, usual = self.max_full_steps, "the usual number"
        check_count("Newton.max_full_steps", full, or_none=usual)
        check_count("Newton.max_searched_steps", self.max_searched_steps, 0)
        if self.tolerance is not None and not self.tolerance > 0.0:
            raise ValueError(
                f"`Newton.tolerance` must be positive or None, got {self.tolerance}."
            )

    def full_steps(self, rows: SolverRows) -> int:
        """Return the largest number of full steps for given constraints."""
        if self.max_full_steps is not None:
            return self.max_full_steps
        return 5 if all(each.piecewise_quadratic for each in rows) else 1

    def rounding(self, dtype) -> float:
        """Return the tolerance in a given precision."""
        if self.tolerance is not None:
            return self.tolerance
        return 64 * float(jnp.finfo(dtype).eps)


class Solution(NamedTuple):
    """Solution of a convex problem.

    - `qdd`: joint accelerations.
    - `pieces`: pieces of the costs of all rows at the solution, by kind.
    - `converged`: true if the solver has converged.
    """

    qdd: Any
    pieces: ByKind
    converged: Any


def constrained(tree: Tree, problem: Problem, settings: Newton) -> Solution:
    """Solve the convex problem; see the top of the module."""
    solution = solved(tree, lax.stop_gradient(problem), settings)
    return with_derivative(tree, problem, solution)


def with_derivative(tree: Tree, problem: Problem, solution: Solution) -> Solution:
    """Return a solution with its derivative by the problem."""
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
    right = symbolic_jvp(at_solution, (problem,), (rate,))
    return qdd, implicit_solve(tree, problem, qdd, solution.pieces, right)


def implicit_solve(tree: Tree, problem: Problem, qdd, pieces: ByKind, right):
    r"""Compute $(M + J^T W J)^{-1}$ times `right` at the solution `qdd`, differentiable in
    any mode and order."""

    def times(v):
        # Forces on elliptic cones are not linear, so their slope depends on `qdd`.
        at = lambda a: -residual(tree, problem, a, pieces)
        return jax.jvp(at, (qdd,), (v,))[1]

    pairs = zip(problem.every_row, chain(*pieces.values()), strict=True)
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


def solved(
    tree: Tree,
    problem: Problem,
    settings: Newton,
    start: Any = None,
    narrowings: int = _NARROWINGS,
) -> Solution:
    """Solve the convex problem, without derivatives.

    **Arguments:**

    - `start`: accelerations at which the solver starts; None: zero.
    - `narrowings`: largest number of slopes of a line search, besides those at the ends.
    """
    if not problem.every_row:
        invert = solver(tree, problem, Terms())
        qdd = invert(problem.tau, problem.force)[0]
        none = OrderedDict((kind, ()) for kind in problem.rows)
        return Solution(qdd, none, jnp.ones(qdd.shape[1:], bool))
    rows = tuple(each.for_solver() for each in problem.every_row)
    last = settings.full_steps(rows) + settings.max_searched_steps
    going = lambda now: jnp.any(now.unsolved) & (now.count < last)
    step = ft.partial(_step, tree, problem, rows, settings, narrowings)
    begin = _first_iterate(problem, rows)
    if start is not None:
        begin = _moved(tree, problem, rows, settings, begin, start)
    now = lax.while_loop(going, step, begin)
    finite = jnp.all(jnp.isfinite(now.qdd), axis=0)
    pieces = pieces_at(tree, problem, now.qdd)
    return Solution(now.qdd, pieces, ~now.unsolved & finite)


def pieces_at(tree: Tree, problem: Problem, qdd) -> ByKind:
    """Return the pieces of the costs of all rows at accelerations."""
    motion = node_motion(tree, problem.kin, qdd)
    piece = lambda each: each.pieces(each.residuals(motion, qdd))
    return OrderedDict(
        (kind, tuple(map(piece, own))) for kind, own in problem.rows.items()
    )


def _first_iterate(problem: Problem, rows: SolverRows) -> _Iterate:
    """Start at zero acceleration."""
    qdd = jnp.zeros_like(problem.tau)
    models = tuple(each.first_model(problem.tau) for each in rows)
    return _Iterate(qdd, models, jnp.ones(qdd.shape[1:], bool), 0)


def _moved(
    tree: Tree, problem: Problem, rows: SolverRows, settings: Newton, now, qdd
) -> _Iterate:
    """Return an iterate at other accelerations."""
    motion = node_motion(tree, problem.kin, qdd)
    tolerance = settings.rounding(qdd.dtype)
    pairs = zip(rows, now.models, strict=True)
    models = tuple(
        each.next_model(old, now.qdd, qdd, motion, tolerance)[0] for each, old in pairs
    )
    return now._replace(qdd=qdd, models=models)


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
    tree: Tree,
    problem: Problem,
    rows: SolverRows,
    settings: Newton,
    narrowings: int,
    now: _Iterate,
) -> _Iterate:
    """Go to the minimum of the models; after `max_full_steps`, to the least cost on the
    way there."""
    end, motion = _minimum(tree, problem, rows, now)
    tolerance = settings.rounding(end.dtype)
    no = jnp.zeros(end.shape[1:], bool)
    there = _Point(end, motion, no, ~no)
    search = lambda: _searched(tree, problem, rows, now, end, tolerance, narrowings)
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
    narrowings: int,
) -> _Point:
    """Find the least cost between an iterate and the minimum of its models."""
    search = _search(tree, problem, rows, now, end)
    line = search.line
    largest = lambda x: jnp.max(jnp.abs(x), axis=0)
    # Costs along a shorter step differ by rounding, and so does what is left after it.
    moves = largest(line.dqdd) > math.sqrt(tolerance) * (1.0 + largest(end))
    share = jnp.where(moves, _line_search(rows, search, narrowings), 1.0)
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
    - `on_line`: data of all rows on the line.
    - `first`: slope at its start, $-\Delta a^T (M + J^T W J) \Delta a$ with the models
        there.
    - `mass`: $\Delta a^T M \Delta a$.
    - `work`: work of the rows at the start.
    """

    line: Line
    on_line: tuple[Any, ...]
    first: Any
    mass: Any
    work: Any


def _search(
    tree: Tree, problem: Problem, rows: SolverRows, now: _Iterate, end
) -> _Search:
    """Prepare the search between an iterate and the minimum of its models."""
    change = end - now.qdd
    motion, dmotion = (node_motion(tree, problem.kin, a) for a in (now.qdd, change))
    line = Line(now.qdd, motion, change, dmotion)
    on_line = tuple(each.on_line(line) for each in rows)
    models = zip(rows, now.models, strict=True)
    stiffness = join([each.newton_terms(model)[1] for each, model in models])
    mass = _curvature(tree, problem, Terms(), line)
    first = -_curvature(tree, problem, stiffness, line)
    work = _work(rows, on_line, jnp.zeros_like(mass))
    return _Search(line, on_line, first, mass, work)


def _curvature(tree: Tree, problem: Problem, stiffness: Terms, line: Line):
    r"""Compute $\Delta a^T (M + J^T W J) \Delta a$."""
    nv = line.dqdd.shape[0]
    inertia = add(problem.inertia.articulated(), total(stiffness.nodes, tree.size))
    armature = add(problem.armature, total(stiffness.dofs, nv))
    result = jnp.sum(line.dmotion.dot(inertia @ line.dmotion), axis=0)
    result = result + jnp.sum(armature * line.dqdd**2, axis=0)
    for values, places in stiffness.entries:
        rows, columns = np.divmod(np.array(places, int), nv)
        twice = np.where(rows == columns, 1.0, 2.0).astype(values.dtype)
        products = take(line.dqdd, rows) * take(line.dqdd, columns)
        twice = twice.reshape(-1, *(1 for _ in products.shape[1:]))
        result = result + jnp.sum(twice * values * products, axis=0)
    return result


def _work(rows: SolverRows, on_line: tuple[Any, ...], share):
    """Sum the work of all rows per share of a line."""
    pairs = zip(rows, on_line, strict=True)
    found = [each.work(own, share) for each, own in pairs]
    return sum(found[1:], found[0])


def _slope(rows: SolverRows, search: _Search, share):
    """Compute the slope of the cost on a line: that at its start, and its change since.

    Computed directly, large forces would cancel, and near the minimum only their rounding
    would remain.
    """
    change = _work(rows, search.on_line, share) - search.work
    return search.first + share * search.mass - change


def _line_search(rows: SolverRows, search: _Search, narrowings: int):
    """Compute where the cost is least on a line, as a share of its length."""
    one = jnp.ones_like(search.first)
    return least_share(ft.partial(_slope, rows, search), one, narrowings)


# Line search.


_ENOUGH = 0.1
"""Share of the first slope that ends a search: Newton's method needs no exact one."""
_SHRINK = 0.1
"""Factor of the slope at an end that stays, instead of 1/2: behind a stiff contact, slopes
are so large that with halves a step would be far too short."""


class _Bracket(NamedTuple):
    """Two shares of a line between which the slope changes its sign.

    - `slopes`: slopes at both ends, times `_SHRINK` where the other end has moved twice in
        turn.
    - `below`: slope at the lower end.
    - `side`: 1 where the upper end moved last, -1 where the lower one did, 0 at first.
    - `best`: share at which the search ends, where it has ended; else the lower end.
    - `open`: true where it has not ended.
    """

    low: Any
    high: Any
    slopes: tuple[Any, Any]
    below: Any
    side: Any
    best: Any
    open: Any


def least_share(slope: Callable, one, narrowings: int = _NARROWINGS):
    """Compute where a convex function is least between 0 and 1, approximately.

    The function is not larger there than at 0, unless it rises at all shares that were
    tried: then the last estimate is returned.

    **Arguments:**

    - `slope`: derivative of the function, negative at 0.
    - `one`: an array of ones of the shape of a share.
    - `narrowings`: largest number of slopes, besides those at the ends.
    """
    ends = slope(0.0 * one), slope(one)
    enough = _ENOUGH * jnp.abs(ends[0])

    def narrow(carry):
        count, now = carry
        share = _crossing(now)
        if narrowings > _NARROWINGS:
            halve = (count > _NARROWINGS) & (count % 2 == 0)
            share = jnp.where(halve, 0.5 * (now.low + now.high), share)
        value = slope(share)
        rising = value > 0.0
        # It has fallen by more, up to the lower end, than it can have risen since.
        falls = value * (share - now.low) <= -now.below * now.low
        found = (jnp.abs(value) <= enough) & (~rising | falls)
        first = jnp.where(rising, now.slopes[0], value)
        last = jnp.where(rising, value, now.slopes[1])
        first = jnp.where(rising & (now.side > 0.0), _SHRINK * first, first)
        last = jnp.where(~rising & (now.side < 0.0), _SHRINK * last, last)
        new = _Bracket(
            low=jnp.where(rising, now.low, share),
            high=jnp.where(rising, share, now.high),
            slopes=(first, last),
            below=jnp.where(rising, now.below, value),
            side=jnp.where(rising, one, -one),
            best=jnp.where(rising & ~found, now.best, share),
            open=~found,
        )
        return count + 1, jtu.tree_map(ft.partial(jnp.where, now.open), new, now)

    zero = 0.0 * one
    going = lambda carry: jnp.any(carry[1].open) & (carry[0] < narrowings)
    start = _Bracket(zero, one, ends, ends[0], zero, zero, ends[1] > 0.0)
    _, end = lax.while_loop(going, narrow, (0, start))
    found = jnp.where(end.best > 0.0, end.best, _crossing(end))
    return jnp.where(ends[1] <= 0.0, 1.0, found)


def _crossing(now: _Bracket):
    """Return where a straight line between the slopes is zero; the middle if that is not
    inside."""
    below, above = now.slopes
    rise = above - below
    share = now.low - below * (now.high - now.low) / jnp.where(rise > 0.0, rise, 1.0)
    inside = (share > now.low) & (share < now.high)
    return jnp.where(inside, share, 0.5 * (now.low + now.high))
