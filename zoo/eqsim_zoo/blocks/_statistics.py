"""Running statistics of observations, and normalization by them."""

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from eqsim.wrappers import Statistics

from ._parallel import replicate


LIMIT = 10.0
"""Bound of normalized observations."""


def init_statistics(obs: Float[Array, " nobs"]) -> Statistics:
    """Statistics of one observation of mean 0 and variance 1."""
    none = jnp.zeros_like(obs)
    return Statistics(jnp.ones((), obs.dtype), none, none + 1.0)


def update_statistics(
    statistics: Statistics | None,
    obs: Float[Array, "rows nobs"],
    valid: Bool[Array, " rows"] | None = None,
) -> Statistics | None:
    """Merge observations into running statistics (Chan, Golub, LeVeque 1979); None stays
    None.

    **Arguments:**

    - `valid`: true for rows that count; all by default.
    """
    if statistics is None:
        return None
    weight = jnp.ones(obs.shape[0], obs.dtype)
    if valid is not None:
        weight = weight * valid.astype(obs.dtype)
    count = jnp.sum(weight)
    mean = weight @ obs / jnp.maximum(count, 1.0)
    new = Statistics(count, mean, weight @ (obs - mean[None]) ** 2)
    pair = lambda x, y: jnp.stack([x, y])
    return replicate(jtu.tree_map(pair, statistics, new).merged())


def normalize(
    statistics: Statistics | None, obs: Float[Array, " nobs"]
) -> Float[Array, " nobs"]:
    """Subtract the mean and divide by the standard deviation, clipped to `LIMIT`. Without
    statistics, return the observation unchanged."""
    if statistics is None:
        return obs
    return jnp.clip(statistics.normalize(obs), -LIMIT, LIMIT)


def denormalize(
    statistics: Statistics, x: Float[Array, " nobs"]
) -> Float[Array, " nobs"]:
    """Invert `normalize`, within `LIMIT`."""
    # The difference of two, as the small number in the root is not ours.
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)
    slope = statistics.normalize(one) - statistics.normalize(zero)
    return statistics.mean + x / slope
