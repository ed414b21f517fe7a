"""Priors of parameters, as costs: half a sum of squares."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..model.arrays import as_array


_is_positive = lambda x: x > 0


class AbstractPrior(eqx.Module):
    """Knowledge of the values of one unknown."""

    @abc.abstractmethod
    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        """Compute the negative log density, up to a constant.

        **Arguments:**

        - `value`: parameters in their own units.
        - `start`: the same in the system that the fit starts from.
        """


class Normal(AbstractPrior):
    """A normal distribution of each value.

    **Arguments:**

    - `mean`: in the unit of the value; by default the start.
    - `sd`: standard deviation, in the unit of the value.
    """

    mean: Float[Array, "..."] | None = eqx.field(converter=as_array)
    sd: Float[Array, "..."] = eqx.field(converter=as_array)

    def __check_init__(self):
        check_numbers("Normal.sd", self.sd, _is_positive, "positive")

    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        mean = start if self.mean is None else self.mean
        return 0.5 * jnp.sum(((value - mean) / self.sd) ** 2)


class LogNormal(AbstractPrior):
    """A normal distribution of the logarithm of each (positive) value.

    **Arguments:**

    - `mean`: median, in the unit of the value; by default the start.
    - `sd`: relative standard deviation.
    """

    mean: Float[Array, "..."] | None = eqx.field(converter=as_array)
    sd: Float[Array, "..."] = eqx.field(converter=as_array)

    def __check_init__(self):
        check_numbers("LogNormal.sd", self.sd, _is_positive, "positive")
        check_numbers("LogNormal.mean", self.mean, _is_positive, "positive")

    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        mean = start if self.mean is None else self.mean
        return 0.5 * jnp.sum((jnp.log(value / mean) / self.sd) ** 2)


class LogDet(AbstractPrior):
    r"""Distance of inertias from their start, the same in every frame and unit.

    $s\,(\mathrm{tr}(P_0^{-1} P) - \log\det(P_0^{-1} P) - 4)$ summed over links, with the
    pseudo-inertia $P$ of a link and that of the start, $P_0$. A relative standard
    deviation $\sigma$ of a mass corresponds to about $s = 1/(4 \sigma^2)$.

    **Arguments:**

    - `strength`: $s$.

    ??? cite "Reference"
        Lee, Wensing, Park, *Geometric robot dynamic identification: a convex programming
        approach*, IEEE T-RO, 2020.
    """

    strength: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        check_numbers("LogDet.strength", self.strength, _is_positive, "positive")

    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        total: Any = 0.0
        for k in range(value.shape[0] // 10):
            at = slice(10 * k, 10 * k + 10)
            ratio = jnp.linalg.solve(
                pseudo_inertia(start[at]), pseudo_inertia(value[at])
            )
            total += jnp.trace(ratio) - jnp.linalg.slogdet(ratio)[1] - 4.0
        return self.strength * total


def pseudo_inertia(value: Float[Array, "10"]) -> Float[Array, "4 4"]:
    r"""Compute $P = \begin{pmatrix} \Sigma & h \\ h^\top & m \end{pmatrix}$.

    **Arguments:**

    - `value`: mass, center of mass, and the inertia about it (xx, yy, zz, xy, xz, yz).
    """
    m, c, (xx, yy, zz, xy, xz, yz) = value[0], value[1:4], value[4:]
    inertia = jnp.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    sigma = 0.5 * jnp.trace(inertia) * jnp.eye(3) - inertia + m * jnp.outer(c, c)
    h = (m * c)[:, None]
    return jnp.block([[sigma, h], [h.T, m[None, None]]])
