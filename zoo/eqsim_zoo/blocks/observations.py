"""Running statistics of observations, and normalization by them.

Statistics of a dictionary, or of an image, are a dictionary of the statistics of its
vectors; images are not normalized.
"""

import functools as ft
import math
from collections.abc import Callable
from typing import Any, cast, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim.wrappers import Statistics

from ..vision.encoding import check_vector, Encoders, is_image, is_vector, named
from .parallel import replicate


ObservationStatistics: TypeAlias = Statistics | dict[str, Statistics]
_Statistics = TypeVar("_Statistics", bound=ObservationStatistics | None)

LIMIT = 10.0
"""Bound of normalized observations."""


def init_statistics(obs: Any) -> Any:
    """Return statistics of one observation with mean 0 and variance 1.

    **Arguments:**

    - `obs`: a vector, an image, or a dictionary of both, of which shapes and types matter.

    **Returns:** `Statistics` for a vector; else those of each vector, by name.
    """
    return _initial(obs) if is_vector(obs) else init_observation_statistics(obs)


def _initial(obs: Any, dtype: Any = None) -> Statistics:
    none = jnp.zeros(obs.shape, dtype or obs.dtype)
    return Statistics(jnp.ones((), none.dtype), none, none + 1.0)


def init_observation_statistics(obs: Any, dtype: Any = None) -> dict[str, Statistics]:
    """Return initial statistics of the vectors of an observation, by name.

    **Arguments:**

    - `dtype`: type of the statistics; by default that of each vector.
    """
    vectors = {k: x for k, x in named(obs).items() if not is_image(x.shape)}
    return {k: _initial(x, dtype) for k, x in vectors.items()}


def observation_statistics(obs: Any) -> dict[str, Statistics]:
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
        found[name] = Statistics(count, mean, spread)
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
    elif isinstance(statistics, Statistics):
        new = _updated(statistics, obs, valid)
    else:
        new = None
    return cast(_Statistics, new)


def _updated(
    statistics: Statistics,
    obs: Float[Array, "rows nobs"],
    valid: Bool[Array, " rows"] | None,
) -> Statistics:
    weight = jnp.ones(obs.shape[0], obs.dtype)
    if valid is not None:
        weight = weight * valid.astype(obs.dtype)
    count = jnp.sum(weight)
    mean = weight @ obs / jnp.maximum(count, 1.0)
    new = Statistics(count, mean, weight @ (obs - mean[None]) ** 2)
    pair = lambda x, y: jnp.stack([x, y])
    return replicate(jtu.tree_map(pair, statistics, new).merged())


def normalize(statistics: ObservationStatistics | None, obs: Any) -> Any:
    """Subtract the mean and divide by the standard deviation, clipped to `LIMIT`, all
    vectors of one observation. Without statistics, return the observation unchanged.

    **Raises:** `ValueError` if a vector has another size than its statistics.
    """
    if statistics is None:
        return obs
    if isinstance(statistics, Statistics):
        return _normalized(statistics, obs, "`obs`")
    scaled = lambda k, x: _normalized(statistics[k], x, f"`obs[{k!r}]`")
    one = lambda k, x: scaled(k, x) if k in statistics else x
    if not isinstance(obs, dict):
        return one("obs", obs)
    return {k: one(k, x) for k, x in obs.items()}


def _normalized(statistics: Statistics, x: Any, name: str) -> Float[Array, "..."]:
    check_vector(name, x, statistics.mean.shape[-1])
    return jnp.clip(statistics.normalize(x), -LIMIT, LIMIT)


def denormalize(
    statistics: Statistics, x: Float[Array, " nobs"]
) -> Float[Array, " nobs"]:
    """Invert `normalize`, within `LIMIT`."""
    # The difference of two, as the small number in the root is not ours.
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)
    slope = statistics.normalize(one) - statistics.normalize(zero)
    return statistics.mean + x / slope


def acts_on_batches(act: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of the method `act` of an agent, which computes one action, so that it also
    takes observations with leading batch axes.

    Images are recognized by the `Encoders` in the state; every other observation is a
    vector. With a key, each observation of a batch has a key of its own. The state needs
    the field `key`.

    !!! example

        ```python
        @blocks.acts_on_batches
        def act(self, state, obs, *, key=None):
            return blocks.scale(state.bounds, state.learner.model(obs))
        ```

    The method raises `ValueError` if the observation is a single number, its parts have
    different batch axes, or the state is that of several members.
    """

    @ft.wraps(act)
    def batched(
        self: Any, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*batch nu"]:
        name = f"`{type(self).__name__}.act`"
        _check_single(name, state)
        parts, batch = _parts(name, state, obs)
        if not batch:
            return act(self, state, obs, key=key)
        flat = lambda x: jnp.reshape(x, (-1, *jnp.shape(x)[len(batch) :]))
        rows = {part: flat(x) for part, x in parts.items()}
        one = lambda row, key: act(
            self, state, row if isinstance(obs, dict) else row["obs"], key=key
        )
        keys = None if key is None else jr.split(key, math.prod(batch))
        found = jax.vmap(one, in_axes=(0, None if key is None else 0))(rows, keys)
        return found.reshape(*batch, *found.shape[1:])

    return batched


def _check_single(name: str, state: Any) -> None:
    if state.key.ndim:
        raise ValueError(
            f"{name} needs the state of one member, got that of {state.key.size} members. "
            "Select one with `result.members.pick(state, member)`, or map over all of "
            "them with `eqx.filter_vmap`."
        )


def _parts(name: str, state: Any, obs: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the parts of an observation that networks see, by name, and their batch
    axes."""
    found = lambda x: isinstance(x, Encoders)
    encoders = [x for x in jtu.tree_leaves(state, is_leaf=found) if found(x)]
    parts = named(obs)
    if encoders and all(x.parts for x in encoders):
        used = {part for x in encoders for part in x.parts}
        parts = {part: x for part, x in parts.items() if part in used}
    images = {part for x in encoders for part in x.networks}
    batch = {}
    for part, x in parts.items():
        rank, shape = 3 if part in images else 1, jnp.shape(x)
        if len(shape) < rank:
            kind = "an image (height, width, channels)" if rank == 3 else "a vector"
            raise ValueError(
                f"{name}: the observation {part!r} must be {kind}, or a batch of them, "
                f"got shape {shape}."
            )
        batch[part] = shape[: len(shape) - rank]
    if len({*batch.values()}) > 1:
        raise ValueError(
            f"{name}: the parts of an observation must have the same batch axes, got "
            f"{batch}."
        )
    return parts, next(iter(batch.values()), ())
