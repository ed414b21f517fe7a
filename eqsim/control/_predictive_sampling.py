"""Predictive sampling: the best of noisy splines."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.arrays import as_array
from ._planner import AbstractPlanner, check_planner, evaluated


class PredictiveSampling(AbstractPlanner):
    """Predictive sampling: follow the best of many noisy splines.

    A plan is a spline through `knots`, spread evenly over the horizon. In each iteration
    noise is added to the knots, and the plan with the lowest cost wins; the plan of
    before is among them.

    **Arguments:**

    - `samples`: plans per iteration, the plan of before among them.
    - `iterations`: number of improvements.
    - `knots`: number of knots.
    - `degree`: 0 holds each knot, 1 interpolates linearly, 3 by cubic Hermite splines.
    - `std`: standard deviation at the knots, one number or one per control.

    **Raises:** `ValueError` if a number is out of its range.

    ??? cite "Reference"
        Howell et al., *Predictive sampling: real-time behaviour synthesis with MuJoCo*,
        2022.
    """

    samples: int = eqx.field(static=True, default=64)
    iterations: int = eqx.field(static=True, default=1)
    knots: int = eqx.field(static=True, default=5)
    degree: int = eqx.field(static=True, default=3)
    std: Float[Array, "..."] = eqx.field(converter=as_array, default=0.5)

    def __check_init__(self):
        check_planner(self, ("samples", "iterations", "knots"), ("std",))
        if self.degree not in (0, 1, 3):
            raise ValueError(
                f"`PredictiveSampling.degree` must be 0, 1 or 3, got {self.degree}."
            )

    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        horizon, n = start.shape
        knots = min(self.knots, horizon)
        spline = jnp.asarray(_spline(horizon, knots, self.degree), start.dtype)
        at = np.round(np.linspace(0, horizon - 1, knots)).astype(int)
        std = jnp.broadcast_to(self.std.astype(start.dtype), (n,))
        many = jax.vmap(jax.vmap(project))

        def improve(now, key):
            best, least = now
            noise = std[None, None] * jr.normal(
                key, (self.samples - 1, knots, n), best.dtype
            )
            plans = many(jnp.einsum("tk,skn->stn", spline, best[at][None] + noise))
            costs = evaluated(cost, plans)
            k = jnp.argmin(costs)
            better = costs[k] < least
            best = jnp.where(better, plans[k], best)
            return (best, jnp.where(better, costs[k], least)), None

        first = cost(start)
        begin = start, jnp.where(jnp.isfinite(first), first, jnp.inf)
        if self.samples == 1:
            return begin
        return lax.scan(improve, begin, jr.split(key, self.iterations))[0]


def _spline(horizon: int, knots: int, degree: int) -> np.ndarray:
    """Return the matrix from values at knots to values at all times."""
    one = np.eye(knots)
    if knots == 1:
        return np.ones((horizon, 1))
    time = np.linspace(0.0, knots - 1.0, horizon)
    left = np.clip(np.floor(time + 1e-9).astype(int), 0, knots - 2)
    s = (time - left)[:, None]
    if degree == 0:
        return one[np.clip(np.floor(time + 1e-9).astype(int), 0, knots - 1)]
    if degree == 1:
        return (1 - s) * one[left] + s * one[left + 1]
    slopes = np.gradient(one, axis=0)
    return (
        (1 + 2 * s) * (1 - s) ** 2 * one[left]
        + s * (1 - s) ** 2 * slopes[left]
        + s**2 * (3 - 2 * s) * one[left + 1]
        + s**2 * (s - 1) * slopes[left + 1]
    )
