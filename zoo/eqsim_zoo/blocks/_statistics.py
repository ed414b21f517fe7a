"""Running statistics of observations, and normalization by them.

RunningStatistics of a dictionary, or of an image, are a dictionary of the statistics of its
vectors; images are not normalized.
"""

from typing import Any, cast, TypeAlias, TypeVar

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from eqsim.wrappers import RunningStatistics

from ._encoding import check_vector, is_image, is_vector, named
from ._parallel import replicate


ObservationStatistics: TypeAlias = RunningStatistics | dict[str, RunningStatistics]
_Statistics = TypeVar("_Statistics", bound=ObservationStatistics | None)

LIMIT = 10.0
"""Bound of normalized observations."""


def init_statistics(obs: Any) -> Any:
    """Return statistics of one observation with mean 0 and variance 1.

    **Arguments:**

    - `obs`: a vector, an image, or a dictionary of both, of which shapes and types matter.

    **Returns:** `RunningStatistics` for a vector; else those of each vector, by name.
    """
    return _initial(obs) if is_vector(obs) else init_observation_statistics(obs)


def _initial(obs: Any, dtype: Any = None) -> Statistics:
    none = jnp.zeros(obs.shape, dtype or obs.dtype)
    return RunningStatistics(jnp.ones((), none.dtype), none, none + 1.0)


def init_observation_statistics(
    obs: Any, dtype: Any = None
) -> dict[str, RunningStatistics]:
    """Return initial statistics of the vectors of an observation, by name.

    **Arguments:**

    - `dtype`: type of the statistics; by default that of each vector.
    """
    vectors = {k: x for k, x in named(obs).items() if not is_image(x.shape)}
    return {k: _initial(x, dtype) for k, x in vectors.items()}


def observation_statistics(obs: Any) -> dict[str, RunningStatistics]:
    """Return the statistics of the vectors of many observations, along the first axis.

    ??? cite "Reference"
        Fujimoto, Gu, *A minimalist approach to offline reinforcement learning*, 2021,
        section 5.
    """
    found = {}
    for name, rows in named(obs).items():
        if is_image(rows.shape[1:]):
            continue
        mean = jnp.mean(rows, axis=0)
        # A second pass, as the sum of a million numbers is not exact.
        mean = mean + jnp.mean(rows - mean[None], axis=0)
        spread = jnp.sum((rows - mean[None]) ** 2, axis=0)
        count = jnp.full((), rows.shape[0], rows.dtype)
        found[name] = RunningStatistics(count, mean, spread)
    return found


def update_statistics(
    statistics: _Statistics,
    obs: Any,
    valid: Bool[Array, " rows"] | None = None,
) -> _Statistics:
    """Merge observations into running statistics (Chan, Golub, LeVeque 1979); None stays
    None.

    **Arguments:**

    - `obs`: observations along the first axis.
    - `valid`: true for rows that count; all by default.
    """
    if isinstance(statistics, dict):
        rows = named(obs)
        new = {k: _updated(each, rows[k], valid) for k, each in statistics.items()}
    elif isinstance(statistics, RunningStatistics):
        new = _updated(statistics, obs, valid)
    else:
        new = None
    return cast(_Statistics, new)


def _updated(
    statistics: RunningStatistics,
    obs: Float[Array, "rows nobs"],
    valid: Bool[Array, " rows"] | None,
) -> Statistics:
    weight = jnp.ones(obs.shape[0], obs.dtype)
    if valid is not None:
        weight = weight * valid.astype(obs.dtype)
    count = jnp.sum(weight)
    mean = weight @ obs / jnp.maximum(count, 1.0)
    new = RunningStatistics(count, mean, weight @ (obs - mean[None]) ** 2)
    pair = lambda x, y: jnp.stack([x, y])
    return replicate(jtu.tree_map(pair, statistics, new).merged())


def normalize(statistics: ObservationStatistics | None, obs: Any) -> Any:
    """Subtract the mean and divide by the standard deviation, clipped to `LIMIT`, all
    vectors of one observation. Without statistics, return the observation unchanged.

    **Raises:** `ValueError` if a vector has another size than its statistics.
    """
    if statistics is None:
        return obs
    if isinstance(statistics, RunningStatistics):
        return _normalized(statistics, obs, "`obs`")
    scaled = lambda k, x: _normalized(statistics[k], x, f"`obs[{k!r}]`")
    one = lambda k, x: scaled(k, x) if k in statistics else x
    if not isinstance(obs, dict):
        return one("obs", obs)
    return {k: one(k, x) for k, x in obs.items()}


def _normalized(
    statistics: RunningStatistics, x: Any, name: str
) -> Float[Array, "..."]:
    check_vector(name, x, statistics.mean.shape[-1])
    return jnp.clip(statistics.normalize(x), -LIMIT, LIMIT)


def denormalize(
    statistics: RunningStatistics, x: Float[Array, " nobs"]
) -> Float[Array, " nobs"]:
    """Invert `normalize`, within `LIMIT`."""
    # The difference of two, as the small number in the root is not ours.
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)
    slope = statistics.normalize(one) - statistics.normalize(zero)
    return statistics.mean + x / slope
