r"""Rows of the convex problem: a Jacobian, offsets and a cost.

Forces, reports and derivatives see constraints through `AbstractRows` alone, the solver
through `AbstractSolverRows`: in each Newton step a kind of rows replaces its cost by a
quadratic *model*, which contributes $J^T W J$ to the matrix and a constant force to the
right hand side.
"""

import abc
import functools as ft
import operator
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from ..spatial import Motion
from ._costs import AbstractCost, Residual
from ._jacobians import AbstractJacobian, Terms


class Line(NamedTuple):
    """A line of accelerations.

    - `qdd`, `motion`: joint accelerations at the start, and motion of the nodes.
    - `dqdd`, `dmotion`: their changes up to the end.
    """

    qdd: Any
    motion: Motion
    dqdd: Any
    dmotion: Motion


class AbstractRows(eqx.Module):
    """Constraints that are treated alike, at one state of the robot."""

    @abc.abstractmethod
    def residuals(self, motion: Motion, qdd) -> Residual:
        r"""Compute $x = J a - a_\mathrm{ref}$, given the motion $J a$ of each node."""

    @abc.abstractmethod
    def pieces(self, x: Residual) -> Any:
        """Return the pieces of the cost at residuals."""

    @abc.abstractmethod
    def forces(self, pieces: Any, x: Residual) -> Residual:
        """Compute row forces on given pieces of the cost."""

    @abc.abstractmethod
    def transpose(self, force: Residual) -> Terms:
        """Compute $J^T f$."""

    @abc.abstractmethod
    def stiffness(self, pieces: Any) -> Terms:
        r"""Compute $J^T W J$ with $W = -\partial f / \partial x$."""

    @abc.abstractmethod
    def for_solver(self) -> "AbstractSolverRows":
        """Return what Newton's method needs of these rows. It has no derivatives."""


class AbstractSolverRows(eqx.Module):
    """Constraints as Newton's method sees them: quadratic models, and work on lines."""

    @property
    @abc.abstractmethod
    def piecewise_quadratic(self) -> bool:
        """True if the cost is quadratic on each of its pieces."""

    @abc.abstractmethod
    def first_model(self, like) -> Any:
        """Return the model at zero acceleration; `like` has shape `(nv, *batch)`."""

    @abc.abstractmethod
    def next_model(
        self, old: Any, before, qdd, motion: Motion, tolerance: float
    ) -> tuple[Any, Any]:
        """Return the model at `qdd`, and whether it differs from the old one, made at
        `before`, beyond rounding: shape `(*batch)`."""

    @abc.abstractmethod
    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        """Return what a model contributes: forces at zero acceleration, and stiffness."""

    @abc.abstractmethod
    def on_line(self, line: Line) -> Any:
        """Return what `work` needs of a line."""

    @abc.abstractmethod
    def work(self, on_line: Any, share) -> Any:
        r"""Compute $f \cdot \Delta x$, the fall of the cost per share of a line, at a share
        of it: shape `(*batch)`."""


class Rows(AbstractRows, AbstractSolverRows):
    """Rows made of a Jacobian and a cost.

    - `jacobian`: $J$.
    - `cost`: cost of the residuals.
    - `offset`: $-a_\\mathrm{ref}$, for each dimension `(n, *batch)`.
    """

    jacobian: AbstractJacobian
    cost: AbstractCost
    offset: Residual

    def residuals(self, motion: Motion, qdd) -> Residual:
        rates = self.jacobian.times(motion, qdd)
        return tuple(a + b for a, b in zip(rates, self.offset, strict=True))

    def pieces(self, x: Residual) -> Any:
        return self.cost.piece(x)

    def forces(self, pieces: Any, x: Residual) -> Residual:
        return self.cost.force(pieces, x)

    def transpose(self, force: Residual) -> Terms:
        return self.jacobian.transpose(force)

    def stiffness(self, pieces: Any) -> Terms:
        return self.jacobian.weigh(self.cost.stiffness(pieces))

    def for_solver(self) -> AbstractSolverRows:
        return self

    @property
    def piecewise_quadratic(self) -> bool:
        return self.cost.piecewise_quadratic

    def first_model(self, like) -> Any:
        return self.cost.piece(self.offset)

    def next_model(self, old: Any, before, qdd, motion: Motion, tolerance: float):
        x = self.residuals(motion, qdd)
        new, changed = self.cost.update(old, x, self.offset, tolerance)
        return new, jnp.any(changed, axis=0)

    def on_line(self, line: Line) -> Any:
        x = self.residuals(line.motion, line.qdd)
        return x, self.jacobian.times(line.dmotion, line.dqdd)

    def work(self, on_line: Any, share) -> Any:
        start, change = on_line
        return jnp.sum(work(self.cost, start, change, share), axis=0)

    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        constant = self.cost.model(model, self.offset)
        return self.jacobian.transpose(constant), self.stiffness(model)


def work(cost: AbstractCost, start: Residual, change: Residual, share):
    """Compute the work of row forces per share of a line of residuals, `(n, *batch)`."""
    x = tuple(a + share[None] * b for a, b in zip(start, change, strict=True))
    forces = cost.force(cost.piece(x), x)
    parts = [a * b for a, b in zip(change, forces, strict=True)]
    return ft.reduce(operator.add, parts)
