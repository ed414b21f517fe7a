"""The cross-entropy method."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.arrays import as_array
from ._planner import (
    AbstractPlanner,
    check_field,
    check_planner,
    colored_noise,
    evaluated,
)


class CEM(AbstractPlanner):
    r"""The cross-entropy method: fit a normal distribution to the best plans.

    In each iteration `samples` plans are drawn, and mean and standard deviation move to
    those of the `elites` with the lowest cost,
    $\mu \leftarrow \alpha \mu + (1 - \alpha) \mu_{elite}$, likewise $\sigma$. The best
    plan of all iterations is returned, so that the cost never rises.

    **Arguments:**

    - `samples`: plans per iteration, the mean and the best plan so far among them.
    - `elites`: number of best plans.
    - `iterations`: number of fits of the distribution.
    - `std`: first standard deviation, one number or one per control.
    - `momentum`: $\alpha$, at least 0 and below 1.
    - `color`: exponent of the noise over time: 0 white; 2 slow changes.

    **Raises:** `ValueError` if a number is out of its range.

    ??? cite "Reference"
        Pinneri et al., *Sample-efficient cross-entropy method for real-time planning*,
        2020.
    """

    samples: int = eqx.field(static=True, default=64)
    elites: int = eqx.field(static=True, default=8)
    iterations: int = eqx.field(static=True, default=5)
    std: Float[Array, "..."] = eqx.field(converter=as_array, default=0.5)
    momentum: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    color: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        check_planner(self, ("samples", "elites", "iterations"), ("std",))
        check_field(self, "momentum", lambda x: (x >= 0) & (x < 1), "in [0, 1)")
        check_field(self, "color", lambda x: x >= 0, "at least 0")
        if self.samples < 3 or self.elites > self.samples:
            raise ValueError(
                "`CEM` needs at least 3 samples and at most as many elites, got "
                f"samples={self.samples}, elites={self.elites}."
            )

    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        std = jnp.broadcast_to(self.std.astype(start.dtype), start.shape[1:])
        std = jnp.broadcast_to(std, start.shape)
        first = cost(start)
        first = jnp.where(jnp.isfinite(first), first, jnp.inf)

        def improve(now, key):
            return self._improved(cost, project, now, key), None

        begin = start, std, start, first
        keys = jr.split(key, self.iterations)
        (_, _, best, least), _ = lax.scan(improve, begin, keys)
        return best, least

    def _improved(self, cost, project, now, key):
        mean, std, best, least = now
        shape = self.samples - 2, *mean.shape
        noise = colored_noise(key, shape, self.color.astype(mean.dtype), mean.dtype)
        plans = jnp.concatenate(
            [mean[None], best[None], mean[None] + std[None] * noise]
        )
        plans = jax.vmap(jax.vmap(project))(plans)
        costs = evaluated(cost, plans)
        order = jnp.argsort(costs)[: self.elites]
        elite, good = plans[order], jnp.isfinite(costs[order])
        number = jnp.maximum(jnp.sum(good), 1)
        average = lambda x: (
            jnp.sum(jnp.where(good[:, None, None], x, 0.0), 0)
            / number.astype(mean.dtype)
        )
        center = average(elite)
        spread = jnp.sqrt(average((elite - center[None]) ** 2))
        alpha = self.momentum.astype(mean.dtype)
        any_ = jnp.any(good)
        mix = lambda old, new: jnp.where(any_, alpha * old + (1 - alpha) * new, old)
        better = costs[order[0]] < least
        best = jnp.where(better, elite[0], best)
        least = jnp.where(better, costs[order[0]], least)
        return mix(mean, center), mix(std, spread), best, least
