r"""Costs of constraint rows with one residual: inequality, equality, dry friction.

The cost $s(x)$ of a row is convex and piecewise quadratic in its residual $x = J a -
a_\mathrm{ref}$; its force is $f = -s'(x)$ with the weight $D$ as slope:

| class | force |
|---|---|
| `OneSided` | $-D x$ while $x < 0$, else zero |
| `TwoSided` | $-D x$ |
| `Huber` | $-\mathrm{clip}(D x, \pm f_\mathrm{max})$ |

A *piece* says on which quadratic piece of the cost a residual is. Given the piece, a force
is linear in the residual, and a Newton step is the solution of a linear system.

Sources: MuJoCo documentation, *Computation*, "Constraint model"; Todorov, *Convex and
analytically-invertible dynamics with contacts and constraints*, 2014.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu


Residual = tuple[Any, ...]
"""Residuals or forces of rows: one array `(n, *batch)` for each dimension."""

Weights = tuple[tuple[Any, ...], ...]
"""A symmetric matrix per row, by entry; None stands for zero."""


class AbstractCost(eqx.Module):
    """The costs of n constraints of d dimensions each.

    Residuals, forces and pieces are trees of arrays with leading axis n.

    - `piecewise_quadratic`: True if the cost is quadratic on each of its pieces.
    """

    piecewise_quadratic: ClassVar[bool] = True

    @abc.abstractmethod
    def piece(self, x: Residual) -> Any:
        """Return the pieces of the cost at residuals."""

    @abc.abstractmethod
    def force(self, piece: Any, x: Residual) -> Residual:
        """Compute forces on given pieces."""

    @abc.abstractmethod
    def model(self, piece: Any, x: Residual) -> Residual:
        """Compute the forces that Newton's method assumes: on given pieces, and linear in
        the residuals."""

    @abc.abstractmethod
    def stiffness(self, piece: Any) -> Weights:
        r"""Compute $-\partial f / \partial x$ of `model`."""

    @abc.abstractmethod
    def update(
        self, old: Any, x: Residual, offset: Residual, tolerance: float
    ) -> tuple[Any, Any]:
        """Return the pieces at residuals, and whether each has changed since `old`.

        **Arguments:**

        - `offset`: residuals at zero acceleration, the size of the terms that were added
            up to `x`.
        - `tolerance`: changes below it, relative to these terms, are rounding.
        """


def kept_or_changed(old, new, x, offset, tolerance: float):
    """Return `new` where it differs from `old` beyond rounding, else `old`, and whether
    any part of a row differs.

    **Arguments:** trees of the same structure, as of `AbstractCost.update`.
    """
    changed = jtu.tree_map(
        lambda n, o, y, size: _changed(n, o, y, jnp.abs(size), tolerance),
        new,
        old,
        x,
        offset,
    )
    piece = jtu.tree_map(jnp.where, changed, new, old)
    any_part = False
    for part in jtu.tree_leaves(changed):
        any_part = part | any_part
    return piece, any_part


def _changed(new, old, x, scale, tolerance: float):
    return (new != old) & (jnp.abs(x) > tolerance * (scale + jnp.abs(x - scale)))


def active(weight, x):
    """Return 1 where an inequality is violated, else 0."""
    return (weight * x < 0.0).astype(x.dtype)


class OneSided(AbstractCost):
    """Inequalities: a force acts while the residual is negative.

    - `weight`: $D$; zero where there is no constraint.
    """

    weight: Any

    def piece(self, x: Residual) -> Any:
        return active(self.weight, x[0])

    def force(self, piece: Any, x: Residual) -> Residual:
        return (-self.weight * piece * x[0],)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        return ((self.weight * piece,),)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return kept_or_changed(old, self.piece(x), x[0], offset[0], tolerance)


class TwoSided(AbstractCost):
    """Equalities: a force acts on either side.

    - `weight`: $D$; zero where there is no constraint.
    """

    weight: Any

    def piece(self, x: Residual) -> Any:
        return ()

    def force(self, piece: Any, x: Residual) -> Residual:
        return (-self.weight * x[0],)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        return ((self.weight,),)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return (), jnp.zeros_like(x[0], dtype=bool)


class Huber(AbstractCost):
    """Dry friction: a force of limited size against the motion.

    - `weight`: $D$.
    - `largest`: the largest force.
    """

    weight: Any
    largest: Any

    def piece(self, x: Residual) -> Any:
        force = self.weight * x[0]
        ahead, behind = (force >= self.largest), (force <= -self.largest)
        return ahead.astype(force.dtype) - behind.astype(force.dtype)

    def force(self, piece: Any, x: Residual) -> Residual:
        return (-self._stiff(piece) * x[0] - piece * self.largest,)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        return ((self._stiff(piece),),)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return kept_or_changed(old, self.piece(x), x[0], offset[0], tolerance)

    def _stiff(self, piece):
        return self.weight * (1.0 - jnp.abs(piece))
