r"""Rows of the convex problem: a Jacobian, offsets and a cost.

The solver sees constraints through `AbstractRows` alone. In each Newton step a kind of
rows replaces its cost by a quadratic *model*, which contributes $J^T W J$ to the matrix
and a constant force to the right hand side.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..spatial import Motion
from ._costs import AbstractCost, Residual
from ._jacobians import AbstractJacobian, Terms


class AbstractRows(eqx.Module):
    """Constraints that are treated alike, at one state of the robot."""

    @property
    @abc.abstractmethod
    def piecewise_quadratic(self) -> bool:
        """Whether the cost is quadratic on each of its pieces."""

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


class Rows(AbstractRows):
    """Rows made of a Jacobian and a cost.

    - `jacobian`: $J$.
    - `cost`: cost of the residuals.
    - `offset`: $-a_\\mathrm{ref}$, for each dimension `(n, *batch)`.
    """

    jacobian: AbstractJacobian
    cost: AbstractCost
    offset: Residual

    @property
    def piecewise_quadratic(self) -> bool:
        return self.cost.piecewise_quadratic

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

    def first_model(self, like) -> Any:
        return self.cost.piece(self.offset)

    def next_model(self, old: Any, before, qdd, motion: Motion, tolerance: float):
        x = self.residuals(motion, qdd)
        new, changed = self.cost.update(old, x, self.offset, tolerance)
        return new, jnp.any(changed, axis=0)

    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        constant = self.cost.model(model, self.offset)
        return self.jacobian.transpose(constant), self.stiffness(model)
