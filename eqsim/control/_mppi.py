from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.arrays import as_array
from ._planner import AbstractPlanner, check_field, check_planner


class MPPI(AbstractPlanner):
    r"""Model predictive path integral control: the mean of many plans, weighted by
    their costs.

    In each iteration `samples` plans with costs $J$ are drawn around the mean $\mu$,

    $$u^k_t = \mu_t + \epsilon^k_t, \quad
    \epsilon^k_t = \beta\,\sigma\,n^k_t + (1 - \beta)\,\epsilon^k_{t-1}, \quad
    w_k \propto \exp\left(-\frac{J^k - \min J}{\lambda\,s}\right), \quad
    \mu \leftarrow \sum_k w_k u^k,$$

    with normal noise $n$ and $s = \mathrm{median}\,J - \min J$, so that neither the scale
    of the cost nor the costs of the worst plans matter. The previous mean is one of the
    plans; the result is a mean of projected actions.

    **Arguments:**

    - `samples`: plans per iteration, the previous mean among them.
    - `iterations`: number of updates of the mean.
    - `std`: $\sigma$, one number or one per control; at least 0.
    - `temperature`: $\lambda$, positive; a lower one gives the best plan more weight.
    - `smoothing`: $\beta$ in (0, 1]; a lower one makes noise change more slowly in time.

    **Raises:** `ValueError` if a number is out of its range.

    ??? cite "Reference"
        Williams, Aldrich, Theodorou, *Model predictive path integral control: from theory
        to parallel computation*, 2017, algorithm 2. The smoothing is that of Nagabandi,
        Konolige, Levine, Kumar, *Deep dynamics models for learning dexterous
        manipulation*, 2019, equation 3.
    """

    samples: int = eqx.field(static=True, default=64)
    iterations: int = eqx.field(static=True, default=8)
    std: Float[Array, "..."] = eqx.field(converter=as_array, default=0.5)
    temperature: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    smoothing: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        check_planner(self, ("samples", "iterations"), ("temperature",))
        check_field(self, "std", lambda x: x >= 0, "at least 0")
        check_field(self, "smoothing", lambda x: (x > 0) & (x <= 1), "in (0, 1]")

    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        keys = jr.split(key, self.iterations)
        improve = lambda mean, key: (self._improved(cost, mean, key, project), None)
        mean, _ = lax.scan(improve, start, keys)
        return mean, cost(mean)

    def _improved(self, cost, mean, key, project):
        plans = jax.vmap(jax.vmap(project))(mean[None] + self._noise(mean, key))
        costs = jax.vmap(cost)(plans)
        good = jnp.isfinite(costs)
        least = jnp.min(jnp.where(good, costs, jnp.inf))
        spread = jnp.nanmedian(jnp.where(good, costs, jnp.nan)) - least
        # Where all plans cost the same all count the same.
        tiny = jnp.finfo(costs.dtype).tiny
        scale = jnp.maximum(self.temperature.astype(costs.dtype) * spread, tiny)
        weights = jax.nn.softmax(jnp.where(good, (least - costs) / scale, -jnp.inf))
        return jnp.where(jnp.any(good), jnp.tensordot(weights, plans, 1), mean)

    def _noise(self, mean, key):
        """Return the deviations of all plans from the mean; the first plan is the mean."""
        shape = self.samples - 1, *mean.shape
        std = jnp.broadcast_to(self.std.astype(mean.dtype), mean.shape[1:])
        normal = jr.normal(key, shape, mean.dtype) * std[None, None]
        beta = self.smoothing.astype(mean.dtype)

        def step(before, now):
            noise = beta * now + (1.0 - beta) * before
            return noise, noise

        first = jnp.zeros_like(normal[:, 0])
        _, noise = lax.scan(step, first, jnp.moveaxis(normal, 1, 0))
        none = jnp.zeros_like(mean)[None]
        return jnp.concatenate([none, jnp.moveaxis(noise, 0, 1)])
