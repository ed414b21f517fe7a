"""Observations in numbers of the order of one."""

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from eqsim.wrappers import Statistics

from ._parallel import replicate


LIMIT = 10.0
"""Of a normalized observation."""


def init_statistics(obs: Float[Array, " nobs"]) -> Statistics:
    """Of one observation of mean 0 and variance 1."""
    none = jnp.zeros_like(obs)
    return Statistics(jnp.ones((), obs.dtype), none, none + 1.0)


def update_statistics(
    statistics: Statistics,
    obs: Float[Array, "rows nobs"],
    valid: Bool[Array, " rows"] | None = None,
) -> Statistics:
    """With some observations more (Chan, Golub, LeVeque 1979).

    **Arguments:**

    - `valid`: which of them count; by default all.
    """
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
    """The observation less the mean, over the standard deviation, within `LIMIT`; as it
    is without statistics."""
    if statistics is None:
        return obs
    return jnp.clip(statistics.normalize(obs), -LIMIT, LIMIT)


def denormalize(
    statistics: Statistics, x: Float[Array, " nobs"]
) -> Float[Array, " nobs"]:
    """The inverse of `normalize`, within `LIMIT`."""
    # The difference of two, as the small number in the root is not ours.
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)
    slope = statistics.normalize(one) - statistics.normalize(zero)
    return statistics.mean + x / slope
