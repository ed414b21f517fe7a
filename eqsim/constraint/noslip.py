r"""Friction without slip (MuJoCo's noslip solver), as a second convex problem.

MuJoCo's solver regularizes friction, so contacts and joints that should stick slip slowly. Its
noslip solver then changes the forces of friction, and holds all others, such that

$$\min_f \tfrac12 f^T A f + f^T b, \qquad A = J M^{-1} J^T,$$

over the forces $f$ of dry friction of joints and tendons, within $\pm$ `frictionloss`, and of
contacts, within the cones of the held normal forces: the problem without regularization. In
accelerations it is convex as well, and `newton` solves it to convergence, with costs in which
the regularization is $\epsilon$ times as large (`held_costs`). It starts at the solution of
the first problem, of which the held forces are functions, and decreases $\epsilon$ in stages.
Derivatives are implicit for both.

MuJoCo sweeps over the rows (Gauss-Seidel) at most `noslip_iterations` times, and agrees when
its sweeps converge. Where contacts share friction, as those of a box on a plane do, their
forces are not unique, but accelerations are.

Source: MuJoCo documentation, *Computation*, "Noslip solver".
"""

import dataclasses
from collections import OrderedDict
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..model import Tree
from .contact import CoupledContacts
from .contact_rows import with_world
from .held_costs import held
from .joint_rows import TendonInertia
from .listed_contacts import ListedContacts
from .newton import (
    Newton,
    node_motion,
    pieces_at,
    Problem,
    Solution,
    solved,
    with_derivative,
)
from .rows import AbstractRows, Rows


_NARROWINGS = 80
"""Slopes of a line search; forces change within short parts of a line."""
_STAGES = 24
"""Number of values of the slack: with fewer, Newton's method often needs many steps."""


def without_slip(
    tree: Tree, problem: Problem, solution: Solution, settings: Newton
) -> tuple[Problem, Solution]:
    """Return the second problem and its solution, given those of the first."""
    first = problem, solution.qdd
    still = lax.stop_gradient(first)

    def stage(now, factor):
        qdd, converged = now
        found = solved(tree, _second(tree, *still, factor), settings, qdd, _NARROWINGS)
        return (found.qdd, found.converged), None

    last = 1.0 / _slack(solution.qdd.dtype)
    factors = last ** (jnp.arange(1, _STAGES + 1, dtype=solution.qdd.dtype) / _STAGES)
    start = still[1], solution.converged
    (qdd, converged), _ = lax.scan(stage, start, factors)
    second = _second(tree, *first, factors[-1])
    pieces = pieces_at(tree, lax.stop_gradient(second), qdd)
    found = Solution(qdd, pieces, converged & solution.converged)
    return second, with_derivative(tree, second, found)


def _slack(dtype) -> float:
    r"""Return $\epsilon$ of the last stage: a compromise between slip and rounding."""
    return float(jnp.finfo(dtype).eps) ** 0.4


def _second(tree: Tree, problem: Problem, qdd, factor) -> Problem:
    """Return the second problem, given the first and its solution."""
    motion = node_motion(tree, problem.kin, qdd)
    change = lambda rows: _without_slip(rows, motion, qdd, factor)
    found = OrderedDict(
        (kind, own if kind is TendonInertia else tuple(map(change, own)))
        for kind, own in problem.rows.items()
    )
    return problem._replace(rows=found)


def _without_slip(rows: AbstractRows, motion: Any, qdd, factor) -> AbstractRows:
    if isinstance(rows, ListedContacts):
        factor = factor + 0.0 * rows.common.impratio
        return dataclasses.replace(
            rows,
            first=with_world(motion, qdd.shape[1:]),
            common=rows.common._replace(factor=factor),
        )
    x = rows.residuals(motion, qdd)
    if isinstance(rows, CoupledContacts):
        own = rows.rows._replace(cost=held(rows.rows.cost, x, factor))
        return dataclasses.replace(rows, rows=own)
    if not isinstance(rows, Rows):
        raise ValueError(
            f"`noslip_iterations` does not support rows of type {type(rows).__name__}. "
            "Return `Rows` from the constraint, or set it to 0."
        )
    return dataclasses.replace(rows, cost=held(rows.cost, x, factor))
