"""Observations in numbers of the order of one."""

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Float

from eqsim.wrappers import Statistics


LIMIT = 10.0
"""Of a normalized observation."""


def no_statistics(obs: Float[Array, " nobs"]) -> Statistics:
    """Of one observation of mean 0 and variance 1."""
    none = jnp.zeros_like(obs)
    return Statistics(jnp.ones((), obs.dtype), none, none + 1.0)


def updated(statistics: Statistics, obs: Float[Array, "rows nobs"]) -> Statistics:
    """With some observations more (Chan, Golub, LeVeque 1979)."""
    mean = jnp.mean(obs, axis=0)
    count = jnp.full((), obs.shape[0], obs.dtype)
    new = Statistics(count, mean, jnp.sum((obs - mean[None]) ** 2, axis=0))
    pair = lambda x, y: jnp.stack([x, y])
    return jtu.tree_map(pair, statistics, new).merged()


def normalize(
    statistics: Statistics | None, obs: Float[Array, " nobs"]
) -> Float[Array, " nobs"]:
    """The observation less the mean, over the standard deviation, within `LIMIT`; as it
    is without statistics."""
    if statistics is None:
        return obs
    return jnp.clip(statistics.normalize(obs), -LIMIT, LIMIT)
