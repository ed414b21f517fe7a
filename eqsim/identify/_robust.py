r"""Robust losses $\rho(s)$ of a squared residual $s$ in units of the noise.

Each has the value and slope of a square at zero: $\rho(0) = 0$, $\rho'(0) = 1$. The cost is
$\tfrac12 \sum \rho(s)$, and Gauss-Newton weighs residuals by $\rho'(s)$.
"""

import abc
from typing import ClassVar, TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..model.arrays import as_array


class AbstractLoss(eqx.Module):
    """A loss of squared residuals."""

    if TYPE_CHECKING:
        # Type checkers would take an `AbstractVar` for the first argument of subclasses.
        per_window: ClassVar[bool]
    else:
        per_window: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Compute $\rho$."""

    @abc.abstractmethod
    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Compute $\rho'$."""


def consistency(loss: AbstractLoss) -> float:
    r"""Compute $E[\rho'(z^2) z^2]$ of a standard normal $z$: with it, the noise of normal
    residuals is estimated without bias (Huber's proposal 2)."""
    if loss.per_window:
        return float(loss.weight(jnp.ones(())))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    square = jnp.asarray(nodes**2)
    values = np.asarray(loss.weight(square) * square)
    return float((weights * values).sum() / weights.sum())


def _check_width(loss: "Huber | Cauchy | GemanMcClure") -> None:
    name = f"{type(loss).__name__}.width"
    check_numbers(name, loss.width, lambda x: x > 0.0, "positive")


class Square(AbstractLoss):
    """Least squares."""

    per_window: bool = eqx.field(static=True, default=False)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return square

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.ones_like(square)


class Huber(AbstractLoss):
    """Quadratic, then linear.

    **Arguments:**

    - `width`: residual at which it becomes linear, in units of the noise.
    - `per_window`: true if $s$ is the mean over a window, so that whole windows are
        discounted, instead of single samples.
    """

    width: Float[Array, ""] = eqx.field(converter=as_array, default=1.345)
    per_window: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        _check_width(self)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        inside = square < self.width**2
        root = jnp.sqrt(jnp.where(inside, 1.0, square))
        return jnp.where(inside, square, self.width * (2 * root - self.width))

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        inside = square < self.width**2
        root = jnp.sqrt(jnp.where(inside, 1.0, square))
        return jnp.where(inside, 1.0, self.width / root)


class Cauchy(AbstractLoss):
    r"""$w^2 \log(1 + s/w^2)$: outliers count less and less.

    **Arguments:** see `Huber`.
    """

    width: Float[Array, ""] = eqx.field(converter=as_array, default=2.385)
    per_window: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        _check_width(self)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.width**2 * jnp.log1p(square / self.width**2)

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 / (1.0 + square / self.width**2)


class GemanMcClure(AbstractLoss):
    r"""$s / (1 + s/w^2)$: outliers have a bounded cost.

    **Arguments:** see `Huber`.
    """

    width: Float[Array, ""] = eqx.field(converter=as_array, default=3.0)
    per_window: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        _check_width(self)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return square / (1.0 + square / self.width**2)

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 / (1.0 + square / self.width**2) ** 2
