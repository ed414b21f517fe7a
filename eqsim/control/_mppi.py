from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..model._fields import as_array


class MPPI(eqx.Module):
    r"""Model predictive path integral control: plans by trying many, and taking their
    mean, weighted by how good each is.

    In each iteration `samples` plans are drawn around the mean $\mu$, with the cost $J$ of
    each,

    $$u^k_t = \mu_t + \epsilon^k_t, \quad
    \epsilon^k_t = \beta\,\sigma\,n^k_t + (1 - \beta)\,\epsilon^k_{t-1}, \quad
    w_k \propto \exp\left(-\frac{J^k - \min J}{\lambda\,s}\right), \quad
    \mu \leftarrow \sum_k w_k u^k,$$

    with normal numbers $n$ and $s = \mathrm{median}\,J - \min J$, so that the scale of the
    cost does not matter, nor how bad the worst plans are. The mean of before is one of
    the plans.

    **Arguments:**

    - `samples`: plans per iteration, the mean of before among them.
    - `iterations`: how often the mean is improved.
    - `std`: $\sigma$, of one number or one per entry of an action.
    - `temperature`: $\lambda$; the lower, the more the best plan counts.
    - `smoothing`: $\beta$, between 0 (excluded) and 1: with less, what is tried changes
        less from step to step.

    **Raises:** `ValueError` if a size is not positive.

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
        for name in ("samples", "iterations"):
            if vars(self)[name] < 1:
                raise ValueError(f"`MPPI.{name}` is {vars(self)[name]}: at least 1.")

    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        """Improves a plan.

        **Arguments:**

        - `cost`: of a plan: JAX code, which may be a rollout. A plan whose cost is not
            finite is never followed.
        - `start`: what to begin with, for instance the last plan, one step further.
        - `key`: of the draws.
        - `project`: gives the nearest allowed action, and is applied to all that is
            tried: `lambda u: jnp.clip(u, -1.0, 1.0)`. The plan itself is a mean of such
            actions.

        **Returns:** the plan, and its cost.
        """
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
        """Of the plan that is the mean itself, zero."""
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
